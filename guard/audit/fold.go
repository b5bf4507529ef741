package audit

import (
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A program that does the same thing again and again makes one record a second of
// it, with a count: the first time is written like any record, and what follows
// within a second is counted and written when the second is over. Two rules keep
// everything that an owner could want to know:
//
//   - Folded is only what is the same in every field but time, bytes and duration.
//   - A change is never folded. A close is written as part of its open or create
//     while that is still in the queue: it changes nothing.

const (
	foldSpan = time.Second
	// maxFolds bounds the memory: where more happens within a second, the oldest
	// fold is written early.
	maxFolds = 1024
)

// foldKey is what folded records have in common.
type foldKey struct {
	subject     guard.Subject
	via         guard.Via
	uid         uint32
	pid         int32
	op          guard.Op
	path, path2 guard.Path
	rights      guard.Rights
	verdict     guard.Verdict
	kind        guard.Kind
	errno       int
	detail      string
}

// openKey finds the open that a close belongs to.
type openKey struct {
	subject guard.Subject
	via     guard.Via
	uid     uint32
	pid     int32
	path    guard.Path
}

// fold collects the repetitions of a record.
type fold struct {
	key   foldKey
	until time.Time
	acc   *item // not yet written; nil: none since the last one was
}

// folds are the folds of the last second. Its owner's mutex guards it.
type folds struct {
	byKey map[foldKey]*fold
	order []*fold // by until
	opens map[openKey]*item
}

func newFolds() folds {
	return folds{byKey: map[foldKey]*fold{}, opens: map[openKey]*item{}}
}

// looks are the operations that change nothing when they succeed. Opens and closes
// are judged apart: see foldable.
var looks = [names.Ops]bool{
	names.OpOpendir: true, names.OpOpen: true, names.OpWatch: true, names.OpClose: true,
	names.OpRead: true, names.OpLookup: true, names.OpGetattr: true, names.OpReadlink: true,
	names.OpGetxattr: true, names.OpListxattr: true, names.OpStatfs: true,
}

// foldable reports whether records like r may become one.
func foldable(r *guard.Record) bool {
	switch {
	case r.Via == guard.ViaControl || r.Written != 0:
		return false
	case r.Verdict == guard.Allowed:
		return int(r.Op) < len(looks) && looks[r.Op] && r.Rights&^(guard.Read|guard.List|guard.Watch) == 0
	case r.Verdict == guard.Failed && r.Kind == names.Timeout:
		return false // it may happen yet
	}
	return true
}

func keyOf(r *guard.Record) foldKey {
	return foldKey{
		subject: r.Subject, via: r.Via, uid: r.UID, pid: r.PID, op: r.Op, path: r.Path, path2: r.Path2,
		rights: r.Rights, verdict: r.Verdict, kind: r.Kind, errno: int(r.Errno), detail: r.Detail,
	}
}

func openOf(r *guard.Record) openKey {
	return openKey{subject: r.Subject, via: r.Via, uid: r.UID, pid: r.PID, path: r.Path}
}

// foldLocked counts r where a record of the same kind has been taken within the
// last second, or puts a close into its open. It reports whether it did.
func (l *Log) foldLocked(r *guard.Record, now time.Time) bool {
	if r.Op == names.OpClose && r.Verdict == guard.Allowed && r.Detail == "" {
		if it := l.folds.opens[openOf(r)]; it != nil && it.closed < it.count {
			it.closed++
			it.rec.Read += r.Read
			it.rec.Written += r.Written
			return true
		}
	}
	if !foldable(r) || l.opts.unfolded {
		return false
	}
	f := l.folds.byKey[keyOf(r)]
	if f == nil || !now.Before(f.until) {
		return false
	}
	if f.acc == nil {
		cost := lineBound(l.opts.Session, r)
		if !l.fitsLocked(cost) {
			return false
		}
		f.acc = l.newItemLocked(r, cost)
		f.acc.fold = f
		l.noteOpenLocked(f.acc)
		if !l.nudged {
			l.nudged = true
			signal(l.nudge)
		}
		return true
	}
	it := f.acc
	it.count++
	it.rec.Read += r.Read
	it.rec.Duration += r.Duration
	if r.Time.After(it.last) {
		it.last = r.Time
	}
	return true
}

// trackLocked begins a fold with a record that is about to be queued, and lets a
// close find it if it opens a file.
func (l *Log) trackLocked(it *item, now time.Time) {
	l.noteOpenLocked(it)
	if !foldable(&it.rec) || l.opts.unfolded {
		return
	}
	key := keyOf(&it.rec)
	if old := l.folds.byKey[key]; old != nil {
		l.writeOutLocked(old) // its time is over; what it counted comes first
	}
	f := &fold{key: key, until: now.Add(foldSpan), acc: it}
	it.fold = f
	l.folds.byKey[key] = f
	l.folds.order = append(l.folds.order, f)
	for len(l.folds.order) > maxFolds {
		l.endFoldLocked(now)
	}
}

func (l *Log) noteOpenLocked(it *item) {
	if it.rec.Verdict != guard.Allowed {
		return
	}
	switch it.rec.Op {
	case names.OpOpen, names.OpCreate, names.OpTmpfile:
		it.open = openOf(&it.rec)
		l.folds.opens[it.open] = it
	}
}

// writeOutLocked queues what a fold counted, and reports whether there was anything.
func (l *Log) writeOutLocked(f *fold) bool {
	if f.acc == nil || f.acc.queued {
		return false
	}
	l.queueLocked(f.acc)
	return true
}

// endFoldLocked ends the oldest fold. One that has counted something is written,
// and goes on while there is room.
func (l *Log) endFoldLocked(now time.Time) {
	f := l.folds.order[0]
	l.folds.order[0] = nil
	l.folds.order = l.folds.order[1:]
	wrote, current := l.writeOutLocked(f), l.folds.byKey[f.key] == f
	if wrote && current && len(l.folds.order) < maxFolds {
		f.until = now.Add(foldSpan)
		l.folds.order = append(l.folds.order, f)
		return
	}
	if f.acc != nil {
		f.acc.fold = nil
	}
	if current {
		delete(l.folds.byKey, f.key)
	}
}

// sweepLocked ends the folds whose time is over, all of them if final, and returns
// when the next one with something to write will be.
func (l *Log) sweepLocked(now time.Time, final bool) (next time.Time) {
	for n := len(l.folds.order); n > 0; n-- {
		f := l.folds.order[0]
		if now.Before(f.until) && !final {
			break
		}
		l.endFoldLocked(now)
	}
	if len(l.folds.order) > 0 {
		next = l.folds.order[0].until
	}
	return next
}

// takenLocked tells the folds that the writer has an item: what comes later is not
// in it.
func (l *Log) takenLocked(it *item) {
	if it.fold != nil {
		it.fold.acc, it.fold = nil, nil
	}
	if l.folds.opens[it.open] == it {
		delete(l.folds.opens, it.open)
	}
}
