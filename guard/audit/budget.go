package audit

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard"
)

// Each subject has two budgets, so that none can fill the disk, or have the records
// of others pruned, by the length and the number of its records.
//
// The one for refusals and failures counts bytes as written; what is above it is
// summed up (sum.go). The one for everything else, which is never summed up,
// counts about what is left of a record after compression, and an operation above
// it waits. Work does not come near it: a thousand files opened a second use it up
// in 45 minutes. A server that opens files with long names in a loop does in seconds,
// and goes on at the speed at which the disk lasts for months.
const (
	refusalBurst = 1 << 20   // bytes, several thousand records
	refusalRate  = 4 << 10   // bytes a second: 15 MB an hour
	workBurst    = 256 << 20 // bytes
	workRate     = 24 << 10  // bytes a second: 85 MB an hour

	// refusalBytes is what a refusal costs beside its texts, workBytes what is left
	// of any other record after compression.
	refusalBytes = 400
	workBytes    = 90

	// maxBudgets bounds the subjects that have budgets of their own.
	maxBudgets = 256
)

// budget is what a subject may have written. The owner's mutex guards last.
type budget struct {
	refusals, work *rate.Limiter
	last           string // path, which the next one is compressed against
}

// budgets are those of the session's subjects. Its owner's mutex guards it.
type budgets map[guard.Subject]*budget

// of returns the budget of a subject; those beyond maxBudgets share one.
func (b budgets) of(s guard.Subject, o *Options) *budget {
	if b[s] == nil && len(b) >= maxBudgets {
		s = ""
	}
	if b[s] == nil {
		b[s] = &budget{
			refusals: rate.NewLimiter(rate.Limit(o.refusals.perSecond), o.refusals.burst),
			work:     rate.NewLimiter(rate.Limit(o.work.perSecond), o.work.burst),
		}
	}
	return b[s]
}

// exceedsLocked sums a refusal or a failure up where its subject has had too many
// written.
func (l *Log) exceedsLocked(r *guard.Record, now time.Time) bool {
	if !summable(r) {
		return false
	}
	size := refusalBytes + len(r.Path.Rel()) + len(r.Path2.Rel()) + len(r.Detail)
	if l.budgets.of(r.Subject, &l.opts).refusals.AllowN(now, min(size, l.opts.refusals.burst)) && !l.share.refuses(&l.opts, now, size) {
		return false
	}
	l.sums.add(r, now)
	return true
}

// Pace returns how long an operation has to wait before it begins, so that its
// subject stays within its budget, and the session within its share. Where that is more than limit it is not to begin
// at all, and is not charged. r is the record of the operation as far as it is known.
func (l *Log) Pace(r *guard.Record, limit time.Duration) time.Duration {
	if r.Via == guard.ViaControl {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.budgets.of(r.Subject, &l.opts)
	rel := r.Path.Rel()
	size := workBytes + len(rel) - common(rel, b.last) + len(r.Path2.Rel())
	b.last = rel
	now := time.Now()
	turn := b.work.ReserveN(now, min(size, l.opts.work.burst))
	wait := turn.DelayFrom(now)
	if wait <= limit {
		wait = max(wait, l.share.wait(&l.opts, now, size, limit))
	}
	if wait > limit {
		turn.CancelAt(now)
	}
	return wait
}

// common is the length of the beginning that two texts share.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
