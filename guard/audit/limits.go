package audit

import (
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A server chooses its operations, and so the number of its refusals and the names in them.
// Three limits keep it from filling the disk, and from causing the records of others to be
// pruned:
//
//   - A fold: the first of equal records is written, and those that follow within a
//     second are counted in one more record. Records are equal if they differ only in time,
//     bytes, duration and Target. A change is never folded. A close is counted in the record
//     of its open or create if the writer has not taken that record yet.
//   - A sum: each subject has a budget of bytes for refusals and failures. Those above the
//     budget are summed up: every sumSpan one record says how many there were, of which
//     kinds and operations, with one of them as a sample.
//   - A wait: each subject has a budget of bytes for everything else. The size of a record
//     after compression counts. An operation above the budget waits. Ordinary work stays far
//     below: a thousand openings a second take 45 minutes to use it up. A server that opens
//     files with long names in a loop uses it up in seconds. From then on it is so slow that
//     the disk lasts for months.
//
// A live session is never pruned, so its share of MaxTotal bounds its files.
// When half of the share is used, all subjects together get one more budget. It refills ever
// more slowly as less of the share is left: operations wait longer, and more refusals are
// summed up.
const (
	foldSpan = time.Second
	sumSpan  = 10 * time.Second
	// slowSumSpan is how long a sum collects when half of the share is used.
	slowSumSpan = 5 * time.Minute

	// maxFolds bounds the folds in memory. If more begin within a second, the earlier ones end early.
	maxFolds = 1024
	// maxSums bounds the sums, of which a subject has one for refusals and one for failures.
	// maxBudgets bounds the subjects that have budgets of their own. All further subjects share
	// sums and a budget.
	maxSums    = 32
	maxBudgets = 256
	// maxSumOps is how many operations a sum names.
	maxSumOps = 8
	// maxSumText is the most bytes of each text in a sum: of the subject, and of the sample's path
	// and detail.
	maxSumText = 512
	// sumBound is how long the line of a sum can be at most.
	sumBound = 6 << 10

	refusalBurst = 1 << 20   // bytes, several thousand records
	refusalRate  = 4 << 10   // bytes a second: 15 MB an hour
	workBurst    = 256 << 20 // bytes
	workRate     = 24 << 10  // bytes a second: 88 MB an hour
	shareBurst   = 256 << 10 // bytes, of all subjects when half of the share is used
	// refusalBytes is the usual size of a refusal or a failure without its texts. workBytes is the
	// usual size of any other record without its paths, after compression.
	refusalBytes = 400
	workBytes    = 90
	// maxPause is the longest wait that Pace returns, if the caller's limit is not longer. Pace
	// returns it when nothing is left of the session's share. Operations do not wait that long:
	// they are refused.
	maxPause = time.Hour
)

// limits bound the session's records. The Log's mutex guards them.
type limits struct {
	folds   map[foldKey]*group
	sums    map[sumKey]*group
	opens   map[openKey]*item // items of opens, in which a close can still be counted
	sweepAt time.Time         // when the next group ends

	refusals, work pace // of each subject
	budgets        map[guard.Subject]*budget
	share          int64   // the session's share of the disk, bytes; 0: unbounded
	shareUsed      int64   // bytes of the files of this run, compressed or not
	shared         *budget // of all subjects together
	sharedBurst    int
}

func newLimits(o *Options) limits {
	l := limits{
		folds: map[foldKey]*group{}, sums: map[sumKey]*group{}, opens: map[openKey]*item{},
		refusals: o.refusals, work: o.work, budgets: map[guard.Subject]*budget{}, share: o.MaxTotal / 2,
	}
	l.sharedBurst = int(min(shareBurst, max(1, l.share/16)))
	l.shared = newBudget(pace{burst: l.sharedBurst}, pace{burst: l.sharedBurst})
	return l
}

// group collects records of one fold or one sum. Its item counts them.
type group struct {
	until time.Time // when it ends: the item is queued then
	item  *item     // nil: nothing was counted since the writer took the last item
}

// openKey has the fields that an open and its close share.
type openKey struct {
	subject guard.Subject
	via     guard.Via
	uid     uint32
	pid     int32
	path    guard.Path
}

func openKeyOf(r *guard.Record) openKey {
	return openKey{subject: r.Subject, via: r.Via, uid: r.UID, pid: r.PID, path: r.Path}
}

// foldKey has the fields that folded records share.
type foldKey struct {
	openKey
	op      guard.Op
	path2   guard.Path
	rights  guard.Rights
	verdict guard.Verdict
	kind    guard.Kind
	errno   syscall.Errno
	detail  string
	// facts is nil or a guard.Facts that is not zero: most records have no facts, and hashing
	// all the empty fields would take as long as the rest of Record.
	facts any
}

func foldKeyOf(r *guard.Record) foldKey {
	key := foldKey{
		openKey: openKeyOf(r), op: r.Op, path2: r.Path2, rights: r.Rights,
		verdict: r.Verdict, kind: r.Kind, errno: r.Errno, detail: r.Detail,
	}
	if r.Facts != (guard.Facts{}) {
		key.facts = r.Facts
	}
	return key
}

// sumKey has the fields that the records of one sum share.
type sumKey struct {
	subject guard.Subject
	verdict guard.Verdict
}

// sum counts the refusals or failures that an item sums up. The item's record is a sample
// of them.
type sum struct {
	kinds map[string]int64
	ops   map[string]int64 // "other" for those beyond maxSumOps
}

// harmless are the operations that change nothing when they succeed. Opens and closes are
// among them; foldable excludes those for writing by their rights.
var harmless = [names.Ops]bool{
	names.OpOpendir: true, names.OpOpen: true, names.OpWatch: true, names.OpClose: true,
	names.OpRead: true, names.OpLookup: true, names.OpGetattr: true, names.OpReadlink: true,
	names.OpGetxattr: true, names.OpListxattr: true, names.OpStatfs: true,
}

// foldable reports whether repetitions of r may be counted instead of written.
func foldable(r *guard.Record) bool {
	if r.Verdict == guard.Allowed {
		return r.Via != guard.ViaControl && r.Written == 0 &&
			int(r.Op) < len(harmless) && harmless[r.Op] && r.Rights&^(guard.Read|guard.List|guard.Watch) == 0
	}
	return summable(r)
}

// summable reports whether r may be counted in a sum: a refusal or a failure, not the owner's, that
// wrote no bytes. An operation that timed out may still happen, so it has its own record.
func summable(r *guard.Record) bool {
	return r.Verdict != guard.Allowed && r.Via != guard.ViaControl && r.Written == 0 &&
		!(r.Verdict == guard.Failed && r.Kind == names.Timeout)
}

// countLocked counts r in an item, if it can, and reports whether it did: a close in its open, a
// repetition in a fold, a refusal or a failure above the budgets in a sum.
func (l *Log) countLocked(r *guard.Record, now time.Time) bool {
	if r.Op == names.OpClose && r.Verdict == guard.Allowed && r.Detail == "" {
		if it := l.opens[openKeyOf(r)]; it != nil && it.closed < it.count {
			it.closed++
			it.rec.Read += r.Read
			it.rec.Written += r.Written
			return true
		}
	}
	if foldable(r) {
		if g := l.folds[foldKeyOf(r)]; g != nil && now.Before(g.until) {
			l.foldLocked(g, r)
			return true
		}
	}
	size := refusalBytes + len(r.Path.Rel()) + len(r.Path2.Rel()) + factBytes(&r.Facts) + len(r.Detail)
	if !summable(r) || chargeRefusal(l.budgetsOf(r.Subject, now), size, now) {
		return false
	}
	l.sumLocked(r, now)
	return true
}

// foldLocked counts the repetition r in the item of g.
func (l *Log) foldLocked(g *group, r *guard.Record) {
	if g.item != nil {
		g.item.add(r)
		return
	}
	g.item = l.newItemLocked(r, lineBound(l.opts.Session, r))
	g.item.group = g
	l.noteOpenLocked(g.item)
}

// sumLocked counts a refusal or a failure in the sum it belongs to.
func (l *Log) sumLocked(r *guard.Record, now time.Time) {
	key := sumKey{r.Subject, r.Verdict}
	if l.sums[key] == nil && len(l.sums) >= maxSums {
		key.subject = ""
	}
	g := l.sums[key]
	if g == nil {
		g = &group{}
		l.sums[key] = g
		l.setEndLocked(g, now.Add(l.sumSpan()))
	}
	if g.item == nil {
		first := sample(r)
		g.item = l.newItemLocked(&first, sumBound)
		g.item.group, g.item.sum = g, &sum{kinds: map[string]int64{}, ops: map[string]int64{}}
	} else {
		g.item.add(r)
	}
	s := g.item.sum
	s.kinds[r.Kind.String()]++
	op := r.Op.String()
	if s.ops[op] == 0 && len(s.ops) >= maxSumOps {
		op = "other"
	}
	s.ops[op]++
}

// sumSpan returns how long a sum collects.
func (l *limits) sumSpan() time.Duration {
	if l.tight() {
		return slowSumSpan
	}
	return sumSpan
}

// sample returns r with no more text than a sum has room for.
func sample(r *guard.Record) guard.Record {
	out := *r
	out.Path2 = guard.Path{}
	out.Subject = guard.Subject(clip(string(r.Subject)))
	out.Detail = clip(r.Detail)
	if textGrowth*factBytes(&r.Facts) > maxSumText {
		out.Facts = guard.Facts{}
	}
	if rel := r.Path.Rel(); clip(rel) != rel {
		out.Path, _ = names.NewPath(r.Path.Root, "")
	}
	return out
}

// factBytes returns how many bytes the texts of f have together.
func factBytes(f *guard.Facts) (n int) {
	if *f == (guard.Facts{}) {
		return 0
	}
	for _, t := range factTexts(f) {
		n += len(t.text)
	}
	return n
}

// clip returns the longest beginning of s that takes at most maxSumText bytes in a line.
func clip(s string) string {
	_, n := appendText(nil, s, maxSumText)
	return s[:n]
}

// trackLocked begins a fold with an item that is about to be queued. If the item is of an
// open, trackLocked also lets a close find it.
func (l *Log) trackLocked(it *item, now time.Time) {
	l.noteOpenLocked(it)
	if !foldable(&it.rec) {
		return
	}
	key := foldKeyOf(&it.rec)
	g := l.folds[key]
	if g != nil && !l.queueGroupLocked(g, now) {
		return // there is no room for the earlier count, which has to come first
	}
	if g == nil {
		if len(l.folds) >= maxFolds {
			sweep(l, l.folds, foldSpan, now, true)
		}
		if len(l.folds) >= maxFolds {
			return
		}
		g = &group{}
		l.folds[key] = g
	}
	g.item, it.group = it, g
	l.setEndLocked(g, now.Add(foldSpan))
}

// noteOpenLocked lets a close find the item of its open.
func (l *Log) noteOpenLocked(it *item) {
	switch r := &it.rec; r.Op {
	case names.OpOpen, names.OpCreate, names.OpTmpfile:
		if r.Verdict == guard.Allowed {
			l.opens[openKeyOf(r)] = it
		}
	}
}

// stopCountingLocked ends the counting in an item, which the writer is about to encode.
func (l *Log) stopCountingLocked(it *item) {
	if it.group != nil && it.group.item == it {
		it.group.item = nil
	}
	if key := openKeyOf(&it.rec); l.opens[key] == it {
		delete(l.opens, key)
	}
}

// setEndLocked sets the end of a group.
func (l *Log) setEndLocked(g *group, until time.Time) {
	g.until = until
	l.sweepAt = earlier(l.sweepAt, until)
	l.armLocked(l.sweepAt)
}

// queueGroupLocked queues the count of a group. It reports false if there is no room for
// it.
func (l *Log) queueGroupLocked(g *group, now time.Time) bool {
	if g.item == nil || g.item.queued {
		return true
	}
	if !l.fitsLocked(g.item.cost) && !l.closed {
		return false
	}
	l.queueLocked(g.item, now)
	return true
}

// sweepLocked ends the groups whose time is over, or all when the log is closed, and sets
// the timer for the next.
func (l *Log) sweepLocked(now time.Time) {
	if l.closed || !now.Before(l.sweepAt) {
		l.sweepAt = time.Time{}
		sweep(l, l.folds, foldSpan, now, l.closed)
		sweep(l, l.sums, l.sumSpan(), now, l.closed)
		if soon := now.Add(flushDelay); !l.sweepAt.IsZero() && l.sweepAt.Before(soon) {
			l.sweepAt = soon // many groups that end one after the other cost one sweep
		}
	}
	if !l.sweepAt.IsZero() {
		l.armLocked(l.sweepAt)
	}
}

// sweep handles the groups whose time is over, or all. It drops a group without a count to queue:
// the group's item is queued already, or the writer has taken it. Otherwise sweep queues the group's
// count, and the group goes on for another span. If there is no room for the count, the group goes
// on for retryDelay.
func sweep[K comparable](l *Log, groups map[K]*group, span time.Duration, now time.Time, all bool) {
	for key, g := range groups {
		switch {
		case now.Before(g.until) && !all:
			l.sweepAt = earlier(l.sweepAt, g.until)
		case g.item == nil || g.item.queued:
			delete(groups, key)
		case l.queueGroupLocked(g, now):
			l.setEndLocked(g, now.Add(span))
		default:
			l.setEndLocked(g, now.Add(retryDelay))
		}
	}
}

// pace is a limit in bytes: burst at once, and then perSecond.
type pace struct {
	burst     int
	perSecond rate.Limit
}

// budget limits the records of a subject, or of all subjects together.
type budget struct {
	refusals, work *rate.Limiter
	last           string // the path of the latest operation; the next path often begins alike
}

func newBudget(refusals, work pace) *budget {
	return &budget{
		refusals: rate.NewLimiter(refusals.perSecond, refusals.burst),
		work:     rate.NewLimiter(work.perSecond, work.burst),
	}
}

// tight reports whether half of the session's share is used.
func (l *limits) tight() bool { return l.share > 0 && l.shareUsed >= l.share/2 }

// budgetsOf returns the budgets that a subject's records are charged to: its own, and the shared
// one. The second is nil while less than half of the session's share is used.
func (l *limits) budgetsOf(s guard.Subject, now time.Time) [2]*budget {
	if l.budgets[s] == nil && len(l.budgets) >= maxBudgets {
		s = ""
	}
	own := l.budgets[s]
	if own == nil {
		own = newBudget(l.refusals, l.work)
		l.budgets[s] = own
	}
	if !l.tight() {
		return [2]*budget{own}
	}
	remaining := max(0, rate.Limit(l.share-l.shareUsed)/rate.Limit(l.share-l.share/2))
	burst := l.sharedBurst
	if remaining == 0 {
		burst = 0 // no operation may begin
	}
	l.shared.refusals.SetLimitAt(now, l.refusals.perSecond*remaining)
	l.shared.work.SetLimitAt(now, l.work.perSecond*remaining)
	l.shared.refusals.SetBurstAt(now, burst)
	l.shared.work.SetBurstAt(now, burst)
	return [2]*budget{own, l.shared}
}

// cappedSize returns size, but at most b's burst. It returns 1 for a burst of 0, which b refuses.
func cappedSize(b *rate.Limiter, size int) int { return min(size, max(1, b.Burst())) }

// chargeRefusal charges a refusal or a failure of size bytes to budgets, and reports whether
// they allow it a record of its own.
func chargeRefusal(budgets [2]*budget, size int, now time.Time) bool {
	for _, b := range budgets {
		if b != nil && !b.refusals.AllowN(now, cappedSize(b.refusals, size)) {
			return false
		}
	}
	return true
}

// chargeWork charges work of size bytes to budgets, and returns how long the work has to wait
// until they allow it. If that is more than limit, nothing is charged.
func chargeWork(budgets [2]*budget, size int, now time.Time, limit time.Duration) (wait time.Duration) {
	var reservations [2]rate.Reservation
	for i, b := range budgets {
		if b != nil {
			reservations[i] = *b.work.ReserveN(now, cappedSize(b.work, size))
			wait = max(wait, min(reservations[i].DelayFrom(now), max(maxPause, limit+1)))
		}
	}
	if wait > limit {
		for i := range reservations {
			reservations[i].CancelAt(now) // no effect on the zero Reservation
		}
	}
	return wait
}

// Pace returns how long an operation has to wait before it begins, so that its subject
// stays within its budget, and the session within its share. If Pace returns more than
// limit, the operation must not begin, and nothing was charged for it. r is the record of
// the operation as far as it is known.
func (l *Log) Pace(r *guard.Record, limit time.Duration) time.Duration {
	if r.Via == guard.ViaControl {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, rel := time.Now(), r.Path.Rel()
	budgets := l.budgetsOf(r.Subject, now)
	size := workBytes + len(rel) - common(rel, budgets[0].last) + len(r.Path2.Rel())
	budgets[0].last = rel
	return chargeWork(budgets, size, now, limit)
}

// common returns the length of the beginning that two texts have in common.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
