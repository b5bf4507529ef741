package guard_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// R164: an operation without a row in the tables is denied, whatever the rights.
func TestUnknownOperationIsDenied(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	for _, op := range []guard.Op{names.OpNone, names.OpClose, names.OpGrant, names.OpPanic, guard.Op(names.Ops), 255} {
		if err := s.once(req(t, op), 0); !errors.Is(err, names.Permission) {
			t.Errorf("%v: %v", op, err)
		}
	}
	bad := req(t, names.OpRead)
	bad.Need = 1 << 12
	wantKind(t, s.once(bad, 0), names.Permission)
}

// R067, R115: an operation on a root that nobody approved, or that was approved for another
// subject, fails with NoConsent. A request without a caller and a rename across roots fail, too.
func TestNoConsent(t *testing.T) {
	s := newSetup(t, nil)
	for op := names.OpLookup; op < names.OpClose; op++ {
		if err := s.once(req(t, op), 0); !errors.Is(err, names.NoConsent) {
			t.Errorf("%v: %v", op, err)
		}
	}
	_, err := s.Grant(bg, guard.Grant{Root: "r", Dir: "/a", Policy: guard.Policy{Rights: guard.ReadWrite}, Subject: "srv", Origin: "test"})
	wantKind(t, err, 0)
	wantKind(t, s.once(req(t, names.OpRead), 0), names.NoConsent) // R127: another subject's
	mine := req(t, names.OpRead)
	mine.Caller.Subject = "srv"
	wantKind(t, s.once(mine, 0), 0)
	nobody := mine
	nobody.Caller = guard.Caller{Subject: "srv"}
	wantKind(t, s.once(nobody, 0), names.Internal)
	across := mine
	across.Op, across.Path2 = names.OpRename, path(t, "other", "b")
	err = s.once(across, 0)
	if names.Errno(err) != syscall.EXDEV {
		t.Errorf("rename across roots: %v", err)
	}
}

// R061, R076, R078: the limit of speed makes operations wait. The wait ends with the caller's
// context or with the root.
func TestRate(t *testing.T) {
	s := newSetup(t, nil)
	// The limit is one operation per 100 s, so the second one would wait longer than any test.
	s.grant(t, "r", "/a", guard.Policy{Limits: guard.Limits{OpsPerSecond: 0.01, Burst: 2, Timeout: time.Hour}})
	for range 2 {
		wantKind(t, s.once(req(t, names.OpGetattr), 0), 0)
	}
	ctx, cancel := context.WithCancel(bg)
	got := make(chan error, 2)
	wait := func(ctx context.Context) {
		l, err := s.Admit(ctx, req(t, names.OpGetattr))
		if err == nil {
			_ = l.Done(0, nil)
		}
		got <- err
	}
	isWaiting := func() bool { st, _ := s.Lookup("r"); return st.Waiting > 0 }
	go wait(ctx)
	testkit.Until(t, "the operation waits", isWaiting)
	cancel()
	if err := <-got; names.Errno(err) != syscall.EINTR {
		t.Errorf("cancelled: %v", err)
	}
	go wait(bg)
	testkit.Until(t, "the operation waits", isWaiting)
	if _, err := s.Revoke(bg, "r"); err != nil {
		t.Error(err)
	}
	wantKind(t, <-got, names.Revoked)
	if st, ok := s.Lookup("r"); ok {
		t.Errorf("%+v", st)
	}
}

// An operation that would have to wait beyond its time limit is refused at once, with the time
// after which to try again.
func TestRateRefusal(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Limits: guard.Limits{OpsPerSecond: 0.001, Burst: 1, Timeout: time.Second}})
	wantKind(t, s.once(req(t, names.OpGetattr), 0), 0)
	err := s.once(req(t, names.OpGetattr), 0)
	var ge *guard.Error
	if !errors.As(err, &ge) || ge.Kind != names.Rate || ge.RetryAfter <= time.Second || ge.Errno() != syscall.EAGAIN {
		t.Errorf("%#v", err)
	}
}

// The speed of a nested root does not bound operations that come through its outer root.
func TestSpeedOfTheNestedRoot(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	s.grant(t, "in", "/a/sub", guard.Policy{Limits: guard.Limits{OpsPerSecond: 0.001, Burst: 1, BytesInFlight: 1, Timeout: time.Second}})
	in, _ := s.Lookup("in")
	for range 2 {
		read := req(t, names.OpRead)
		read.Bytes = 10
		l, err := s.Admit(bg, read)
		testkit.Must(t, err)
		if entered, err := l.EnterIfNested(in.ID, ""); entered == 0 || err != nil {
			t.Errorf("entered %v, %v", entered, err)
		}
		testkit.Must(t, l.Done(10, nil))
	}
	if st, _ := s.Lookup("in"); st.LastUse.IsZero() {
		t.Error("the nested root was not used")
	}
}

// R078: bytes in flight are bounded. An operation beyond the bound waits until another ends,
// and one that is larger than the bound runs alone.
func TestBytesInFlight(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Limits: guard.Limits{BytesInFlight: 100}})
	var used, most atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			r := req(t, names.OpRead)
			r.Bytes = 40
			l, err := s.Admit(bg, r)
			if err != nil {
				t.Error(err)
				return
			}
			n := used.Add(40)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			used.Add(-40)
			_ = l.Done(40, nil)
		})
	}
	wg.Wait()
	if most.Load() > 100 {
		t.Errorf("%d bytes in flight", most.Load())
	}
	huge := req(t, names.OpRead)
	huge.Bytes = 1000
	l, err := s.Admit(bg, huge)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	small := req(t, names.OpRead)
	small.Bytes = 1
	if _, err := s.Admit(ctx, small); names.Errno(err) != syscall.EINTR {
		t.Errorf("beside the huge one: %v", err)
	}
	_ = l.Done(1000, nil)
	wantKind(t, s.once(small, 1), 0)
}

// R055, R077, R193: sizes and amounts are limited.
func TestQuotas(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Limits: guard.Limits{MaxFile: 100, MaxWritten: 1000, MaxCreated: 3}})
	big := req(t, names.OpWrite)
	big.Bytes, big.Size = 10, 101
	err := s.once(big, 10)
	if !errors.Is(err, names.Quota) || names.Errno(err) != syscall.EFBIG {
		t.Errorf("beyond the largest file: %v", err)
	}
	mk := req(t, names.OpMkdir)
	mk.Names = 1
	for range 2 {
		wantKind(t, s.once(mk, 0), 0)
	}
	l, err := s.Admit(bg, mk) // Done reports a failure, which refunds the charge
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, l.Done(0, syscall.EEXIST), names.Exist)
	if l, err = s.Admit(bg, mk); err != nil { // the name exists: Done refunds the charge
		t.Fatal(err)
	}
	l.Notes().Existing()
	wantKind(t, l.Done(0, nil), 0)
	wantKind(t, s.once(mk, 0), 0)
	err = s.once(mk, 0)
	if !errors.Is(err, names.Quota) || names.Errno(err) != syscall.EDQUOT {
		t.Errorf("fourth name: %v", err)
	}
	if st, _ := s.Lookup("r"); st.Created != 3 || st.Written != 0 {
		t.Errorf("created %d, written %d", st.Created, st.Written)
	}
}

// An operation that was refused before it was charged is not refunded.
func TestRefusalsDoNotRefund(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Limits: guard.Limits{MaxFile: 100, MaxWritten: 50, MaxCreated: 1}})
	big := req(t, names.OpWrite)
	big.Bytes, big.Size = 10, 1000
	mk := req(t, names.OpMkdir)
	mk.Names, mk.Path2 = 1, path(t, "other", "x") // EXDEV
	for range 20 {
		if s.once(big, 10) == nil || s.once(mk, 0) == nil {
			t.Fatal("must be refused")
		}
	}
	if st, _ := s.Lookup("r"); st.Written != 0 || st.Created != 0 {
		t.Errorf("written %d, created %d after refusals only", st.Written, st.Created)
	}
	ok := req(t, names.OpWrite)
	ok.Bytes = 50
	wantKind(t, s.once(ok, 50), 0)
	ok.Bytes = 1
	wantKind(t, s.once(ok, 1), names.Quota)
}

// R193: concurrent operations together use exactly the quota, and short writes refund the rest.
func TestQuotaIsExact(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{Limits: guard.Limits{MaxWritten: 700, MaxCreated: 100}})
	var wrote, made atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				w := req(t, names.OpWrite)
				w.Bytes = 7
				if s.once(w, 7) == nil {
					wrote.Add(7)
				}
				m := req(t, names.OpCreate)
				m.Names = 1
				if s.once(m, 0) == nil {
					made.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if wrote.Load() != 700 || made.Load() != 100 {
		t.Errorf("%d bytes of 700, %d names of 100", wrote.Load(), made.Load())
	}
	s.grant(t, "short", "/b", guard.Policy{Limits: guard.Limits{MaxWritten: 10}})
	w := guard.Request{Caller: who, Op: names.OpWrite, Path: path(t, "short", "a"), Bytes: 10}
	wantKind(t, s.once(w, 4), 0)
	w.Bytes = 6
	wantKind(t, s.once(w, 6), 0)
	wantKind(t, s.once(w, 6), names.Quota)
}

// R059, R079: every operation has a limit of 60 s unless the grant says another.
func TestEveryOperationHasATimeout(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	s.grant(t, "short", "/b", guard.Policy{Limits: guard.Limits{Timeout: time.Second}})
	tried := 0
	for op := names.OpLookup; op < names.OpClose; op++ {
		for root, want := range map[string]time.Duration{"r": 60 * time.Second, "short": time.Second} {
			l, err := s.Admit(bg, guard.Request{Caller: who, Op: op, Path: path(t, root, "a")})
			if err != nil {
				t.Errorf("%v: %v", op, err)
				continue
			}
			tried++
			if l.Timeout() != want {
				t.Errorf("%v in %s: %v", op, root, l.Timeout())
			}
			wantKind(t, l.Done(0, context.DeadlineExceeded), names.Timeout)
		}
	}
	if tried != 2*int(names.OpClose-names.OpLookup) {
		t.Errorf("%d operations tried", tried)
	}
}

// quiet has the operations that leave no record when they succeed.
var quiet = map[guard.Op]bool{
	names.OpLookup: true, names.OpGetattr: true, names.OpReadlink: true, names.OpReaddir: true, names.OpRead: true,
	names.OpWrite: true, names.OpAllocate: true, names.OpFsync: true, names.OpFlush: true, names.OpLseek: true,
	names.OpGetxattr: true, names.OpListxattr: true, names.OpStatfs: true, names.OpGetlk: true, names.OpSetlk: true,
}

// R082, R084, R145: each refusal and each failure has one record. So has each success, except of
// quiet operations.
func TestRecords(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	s.grant(t, "w", "/b", guard.Policy{Rights: guard.Watch})
	for op := names.OpLookup; op < names.OpClose; op++ {
		before := len(s.rec.Of(op))
		wantKind(t, s.once(req(t, op), 5), 0)
		want := 1
		if quiet[op] {
			want = 0
		}
		recs := s.rec.Of(op)
		if len(recs)-before != want {
			t.Errorf("%v: %d records of a success", op, len(recs)-before)
		} else if want == 1 {
			r := recs[before]
			if r.Path.String() != "r/a" || r.UID != 7 || r.PID != 8 || r.Via != guard.ViaFiles || r.Verdict != guard.Allowed || r.Read+r.Written != 5 {
				t.Errorf("%v: %+v", op, r)
			}
		}
		l, err := s.Admit(bg, req(t, op))
		if err != nil {
			t.Fatal(err)
		}
		before = len(s.rec.Of(op))
		wantKind(t, l.Done(0, syscall.EIO), names.IO)
		if recs := s.rec.Of(op); len(recs)-before != 1 || recs[before].Verdict != guard.Failed || recs[before].Errno != syscall.EIO {
			t.Errorf("%v: records of a failure: %+v", op, recs[before:])
		}
		before = len(s.rec.Of(op))
		none := guard.Request{Caller: who, Op: op, Path: path(t, "none", "a")}
		wantKind(t, s.once(none, 0), names.NoConsent)
		if recs := s.rec.Of(op); len(recs)-before != 1 || recs[before].Verdict != guard.Refused || recs[before].Kind != names.NoConsent {
			t.Errorf("%v: records of a refusal: %+v", op, recs[before:])
		}
	}
	if n := s.countEvents(guard.EventRefusal); n == 0 {
		t.Error("no event tells of the refusals") // R146
	}
}

// A close cannot be refused, so the owner gets an event if the close could not be recorded. There
// is one event until a close was recorded again.
func TestUnrecordedCloseIsReported(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	l, err := s.Admit(bg, req(t, names.OpOpen))
	if err != nil {
		t.Fatal(err)
	}
	h := l.Hold()
	_ = l.Done(0, nil)
	for i, failure := range []error{syscall.ENOSPC, syscall.ENOSPC, nil, syscall.ENOSPC} {
		s.rec.Fail(failure)
		s.Closed(h, who, path(t, "r", "a"), 10, 0, "", 0)
		if got, want := s.countEvents(guard.EventUnrecorded), 1+i/3; got != want {
			t.Errorf("close %d (%v): the owner was told %d times, want %d", i, failure, got, want)
		}
	}
}

// The record of a close has the bytes that were read and written. An error that is an expected
// answer, such as ENOENT from a lookup, leaves no record.
func TestRecordOfCloseAndOrdinaryAnswers(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	l, err := s.Admit(bg, req(t, names.OpOpen))
	if err != nil {
		t.Fatal(err)
	}
	h := l.Hold()
	_ = l.Done(0, nil)
	s.Closed(h, who, path(t, "r", "a"), 10, 20, "", 0)
	if recs := s.rec.Of(names.OpClose); len(recs) != 1 || recs[0].Read != 10 || recs[0].Written != 20 {
		t.Errorf("%+v", recs)
	}
	for op, errno := range map[guard.Op]syscall.Errno{names.OpLookup: syscall.ENOENT, names.OpGetxattr: syscall.ENODATA,
		names.OpSetlk: syscall.EAGAIN, names.OpLseek: syscall.ENXIO} {
		l, err := s.Admit(bg, req(t, op))
		if err != nil {
			t.Fatal(err)
		}
		if got := names.Errno(l.Done(0, errno)); got != errno {
			t.Errorf("%v: %v became %v", op, errno, got)
		}
		if n := len(s.rec.Of(op)); n != 0 {
			t.Errorf("%v: %d records of an ordinary answer", op, n)
		}
	}
}

// R084: if the log rejects a record, the operation fails. The owner is notified of a refusal
// nevertheless.
func TestFullAuditLog(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/a", guard.Policy{})
	s.rec.Fail(errors.New("no space left on device"))
	wantKind(t, s.once(req(t, names.OpMkdir), 0), names.IO)
	wantKind(t, s.once(req(t, names.OpGetattr), 0), 0) // leaves no record
	none := guard.Request{Caller: who, Op: names.OpMkdir, Path: path(t, "none", "a")}
	wantKind(t, s.once(none, 0), names.NoConsent)
	if s.countEvents(guard.EventRefusal) == 0 {
		t.Error("no event reports the refusal")
	}
}

// R125, R126: an operation's error names the operation and the path in the root. The error and the
// detail of its record have no host path, whatever the text of the cause is.
func TestErrorsHaveNoHostPath(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/very/secret/place", guard.Policy{})
	for _, cause := range []error{
		syscall.ENOENT, syscall.EIO,
		&pathError{"/very/secret/place/a", syscall.EACCES},
		context.DeadlineExceeded, context.Canceled,
		&guard.Error{Kind: names.Hidden}, &guard.Error{Kind: names.Escaped},
	} {
		l, err := s.Admit(bg, req(t, names.OpOpen))
		if err != nil {
			t.Fatal(err)
		}
		err = l.Done(0, cause)
		var ge *guard.Error
		if !errors.As(err, &ge) || ge.Op != names.OpOpen || ge.Path.String() != "r/a" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v became %v", cause, err)
		}
	}
	for _, r := range s.rec.Of(names.OpOpen) {
		if strings.Contains(r.Detail, "secret") {
			t.Errorf("record: %+v", r)
		}
	}
}

type pathError struct {
	path string
	err  error
}

func (p *pathError) Error() string { return p.path + ": " + p.err.Error() }
func (p *pathError) Unwrap() error { return p.err }
