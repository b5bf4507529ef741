package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// ofOp returns the entries of an operation.
func ofOp(list []Entry, op string) (out []Entry) {
	for _, e := range list {
		if e.Op.Raw() == op {
			out = append(out, e)
		}
	}
	return out
}

// R022: equal operations of a program share few records, which have the number of the operations
// and the sum of their bytes. This holds for allowed, refused and failed operations.
func TestSameIsFolded(t *testing.T) {
	const n = 5000
	for _, verdict := range []guard.Verdict{guard.Allowed, guard.Refused, guard.Failed} {
		t.Run(verdict.String(), func(t *testing.T) {
			o := options(t)
			l := mustOpen(t, o)
			for range n {
				r := allowed(t, "a")
				r.Op, r.Verdict, r.Read = names.OpOpendir, verdict, 3
				mustRecord(t, l, r)
				r.PID = 43
				mustRecord(t, l, r)
			}
			mustClose(t, l)
			mustVerify(t, o)
			list := ofOp(entries(t, o), "opendir")
			times, read := map[int32]int64{}, int64(0)
			for _, e := range list {
				times[e.PID] += e.Times()
				read += e.Read
			}
			if times[42] != n || times[43] != n || read != 2*3*n {
				t.Errorf("%v times, %d bytes", times, read)
			}
			if len(list) > n/10 {
				t.Errorf("%d records", len(list))
			}
		})
	}
}

// An operation has its own record if it changes something, is the owner's or timed out, or if it
// differs from the others in its path, process, subject, verdict or detail.
func TestChangesAreNotFolded(t *testing.T) {
	base := allowed(t, "a")
	base.Op, base.Rights = names.OpMkdir, guard.Create
	with := func(f func(*guard.Record)) guard.Record {
		r := base
		r.Op, r.Rights = names.OpOpendir, guard.List
		f(&r)
		return r
	}
	for name, list := range map[string][]guard.Record{
		"mkdir":          {base, base},
		"open to write":  {with(func(r *guard.Record) { r.Op, r.Rights = names.OpOpen, guard.Write }), with(func(r *guard.Record) { r.Op, r.Rights = names.OpOpen, guard.Write })},
		"close, written": {with(func(r *guard.Record) { r.Op, r.Written = names.OpClose, 1 }), with(func(r *guard.Record) { r.Op, r.Written = names.OpClose, 1 })},
		"control":        {with(func(r *guard.Record) { r.Via = guard.ViaControl }), with(func(r *guard.Record) { r.Via = guard.ViaControl })},
		"timeout": {with(func(r *guard.Record) { r.Verdict, r.Kind = guard.Failed, names.Timeout }),
			with(func(r *guard.Record) { r.Verdict, r.Kind = guard.Failed, names.Timeout })},
		"path":    {with(func(*guard.Record) {}), with(func(r *guard.Record) { r.Path = at(t, "code", "b") })},
		"process": {with(func(*guard.Record) {}), with(func(r *guard.Record) { r.PID++ })},
		"subject": {with(func(*guard.Record) {}), with(func(r *guard.Record) { r.Subject = "x" })},
		"verdict": {with(func(*guard.Record) {}), with(func(r *guard.Record) { r.Verdict = guard.Refused })},
		"detail":  {with(func(*guard.Record) {}), with(func(r *guard.Record) { r.Detail = "x" })},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			l := mustOpen(t, o)
			for _, r := range list {
				mustRecord(t, l, r)
			}
			mustClose(t, l)
			if got := entries(t, o)[1:]; len(got) != len(list) || got[0].Times() != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A close that comes soon is part of the open's record, with the bytes. A later close has its
// own record. Searches for closes find both.
func TestCloseInItsOpen(t *testing.T) {
	o := options(t)
	l := mustOpen(t, o)
	open := func(rel string) guard.Record {
		r := allowed(t, rel)
		r.Op, r.Rights = names.OpCreate, guard.Create|guard.Write
		return r
	}
	closing := func(rel string) guard.Record {
		r := allowed(t, rel)
		r.Op, r.Rights, r.Written, r.Read = names.OpClose, 0, 7, 5
		return r
	}
	mustRecord(t, l, open("soon"))
	mustRecord(t, l, closing("soon"))
	mustRecord(t, l, open("late"))
	mustRecord(t, l, refusal(t, "x")) // the writer takes what is queued
	mustRecord(t, l, closing("late"))
	mustRecord(t, l, closing("never opened"))
	mustClose(t, l)
	var got []string
	files, _ := Files(o.Dir, "")
	err := Read(files, Filter{Op: "close"}, func(e Entry) error {
		got = append(got, fmt.Sprint(e.Op, " ", e.Path, " ", e.Closed, " ", e.Read, " ", e.Written))
		return nil
	})
	want := "[create soon 1 5 7 close late 0 5 7 close never opened 0 5 7]"
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v, want %s", got, err, want)
	}
}

// The number of folds is bounded, and the count of a fold that ends early is written.
func TestFoldsAreBounded(t *testing.T) {
	o := options(t)
	o.refusals = pace{1 << 30, 1 << 30}
	l := mustOpen(t, o)
	const n = 3 * maxFolds
	for range 2 {
		for i := range n {
			r := allowed(t, fmt.Sprint(i))
			r.Op = names.OpOpendir
			mustRecord(t, l, r)
			mustRecord(t, l, r)
		}
		l.mu.Lock()
		kept := len(l.folds)
		l.mu.Unlock()
		if kept > maxFolds+1 {
			t.Errorf("%d folds are kept", kept)
		}
	}
	mustClose(t, l)
	times := int64(0)
	for _, e := range ofOp(entries(t, o), "opendir") {
		times += e.Times()
	}
	if times != 4*n {
		t.Errorf("%d of %d are accounted for", times, 4*n)
	}
}

// However many operations of a server are refused or fail, under however many names, the log stays
// small. The sums account for every refusal and failure, and the refusals of another server are
// written one by one.
func TestRefusalsAreSummedUp(t *testing.T) {
	o := options(t)
	o.refusals = pace{burst: 64 << 10, perSecond: 1}
	l := mustOpen(t, o)
	const n = 4000
	long := strings.Repeat(strings.Repeat("\x01", 200)+"/", 10) // six bytes each, as written
	for i := range n {
		r := refusal(t, fmt.Sprint(long, i))
		r.Subject = "hostile"
		if i%4 == 0 {
			r.Op, r.Verdict, r.Kind = names.OpMkdir, guard.Failed, names.TooLong
		}
		mustRecord(t, l, r)
	}
	for i := range 10 {
		r := refusal(t, fmt.Sprint("other", i))
		r.Subject = "other"
		mustRecord(t, l, r)
	}
	mustClose(t, l)
	mustVerify(t, o)
	if s := l.Status(); s.Bytes > 8*64<<10 { // each byte of a name may take eight
		t.Errorf("%d bytes", s.Bytes)
	}
	account, others := map[string]int64{}, 0
	for _, e := range entries(t, o) {
		switch {
		case e.Subject == "other" && e.Op == "open":
			others++
		case e.Subject == "hostile":
			account[e.Verdict.Raw()] += e.Times()
		}
		if e.Op == opSummed {
			kinds, ops := int64(0), int64(0)
			for _, k := range e.Kinds {
				kinds += k
			}
			for _, k := range e.Ops {
				ops += k
			}
			if kinds != e.Count || ops != e.Count || e.Last.Before(e.Time) {
				t.Errorf("a sum of %d: %v, %v, from %v to %v", e.Count, e.Kinds, e.Ops, e.Time, e.Last)
			}
		}
	}
	if account["refused"] != n*3/4 || account["failed"] != n/4 || others != 10 {
		t.Errorf("accounted for %v, %d others", account, others)
	}
}

// A subject that has used up its budget has to wait before further operations. No other subject
// waits.
func TestPace(t *testing.T) {
	o := options(t)
	o.work = pace{burst: 10_000, perSecond: 1000}
	l := mustOpen(t, o)
	r := allowed(t, "a")
	var waits int
	for i := range 1000 {
		r.Path = at(t, "code", fmt.Sprint(i, "/", i))
		if l.Pace(&r, time.Second) > 0 {
			waits++
		}
	}
	if waits < 500 {
		t.Errorf("%d of 1000 had to wait", waits)
	}
	// An operation that was not admitted is not charged.
	if wait := l.Pace(&r, 0); wait > 3*time.Second {
		t.Errorf("wait %v", wait)
	}
	r.Subject = "another"
	if wait := l.Pace(&r, time.Second); wait != 0 {
		t.Errorf("another subject waits %v", wait)
	}
	r.Via = guard.ViaControl
	if wait := l.Pace(&r, 0); wait != 0 {
		t.Errorf("the owner waits %v", wait)
	}
}

// No line is longer than its promised room.
func FuzzLineBound(f *testing.F) {
	f.Add("a/b", "c", "s", "detail", 3)
	f.Add("\x00\x01\u202e", "\xff\xfe/\xff", "\"\\", "\U0001f600", 4000)
	f.Add("a/b", "c/d", "plain", "detail", 4000)
	f.Fuzz(func(t *testing.T, rel, rel2, subject, detail string, times int) {
		grow := func(s string) string {
			out := s
			for range min(max(times, 0), 8000) / max(len(s), 1) {
				out += s
			}
			return out
		}
		p, err := names.NewPath("code", grow(rel))
		if err != nil {
			t.Skip()
		}
		p2, err := names.NewPath("other", grow(rel2))
		if err != nil {
			t.Skip()
		}
		r := refusal(t, "x")
		r.Path, r.Path2, r.Subject, r.Detail = p, p2, guard.Subject(grow(subject)), names.Brief(grow(detail))
		long := grow(subject)
		r.Facts = guard.Facts{
			Dir: long, Origin: long, Effect: "protect", Rule: long, RuleFrom: long, RuleLine: 1 << 62, Point: long, Level: "namespaces",
			Host: long, Port: 1<<16 - 1, ServerName: long, NoRule: true, Program: long,
			Secret: long, Method: long, URLPath: long, Status: 1 << 62, SecretRule: long,
		}
		r.Rights, r.Read, r.Written, r.Duration = 0xff, 1<<62, 1<<62, 1<<62
		for _, mode := range []PathMode{PathsFull, PathsHash, PathsNone} {
			e := newEncoder("work-1", mode, make([]byte, 32), mark{seq: 1 << 63})
			it := &item{rec: r, count: 1 << 62, closed: 1 << 62, last: time.Now()}
			if n, bound := int64(len(e.item(it))), lineBound("work-1", &r); n > bound {
				t.Errorf("%s: %d bytes, %d were promised", mode, n, bound)
			}
			l := &Log{opts: Options{Session: "work-1"}, limits: newLimits(&Options{}), timer: time.NewTimer(time.Hour)}
			l.sumLocked(&r, time.Now())
			for _, g := range l.sums {
				if n := len(e.item(g.item)); n > sumBound {
					t.Errorf("%s: a sum of %d bytes", mode, n)
				}
			}
		}
	})
}
