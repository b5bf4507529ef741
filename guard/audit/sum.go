package audit

import (
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A server chooses what it is refused, under as many names as it likes, so
// folding does not bound what it can make the log write. Each subject therefore
// has a rate of bytes for refusals and failures. What comes above it is summed up:
// every sumSpan one record says how many there were, of which kinds and
// operations, with one of them as a sample. None is missing from the account.

const (
	// sumSpan is how long a sum collects.
	sumSpan = 10 * time.Second
	// maxSums bounds the subjects that are summed up apart; those beyond it are
	// summed up together.
	maxSums = 32
	// maxSumOps is how many operations a sum names.
	maxSumOps = 8
	// maxSumText is how much of the subject and of the sample's path and detail a
	// sum holds, bytes.
	maxSumText = 512
	// sumBound is how long the line of a sum can be at most.
	sumBound = 6 << 10
)

// sum is what happened too often to be written one by one. The sample is that of
// its item.
type sum struct {
	kinds map[string]int64
	ops   map[string]int64 // "other" for those beyond maxSumOps
}

// sumKey says what is summed up together.
type sumKey struct {
	subject guard.Subject
	verdict guard.Verdict
}

// sums are the sums being collected. Its owner's mutex guards it.
type sums struct {
	byKey map[sumKey]*collected
}

type collected struct {
	item
	since time.Time
}

func newSums() sums { return sums{byKey: map[sumKey]*collected{}} }

// summable reports whether records like r may be summed up.
func summable(r *guard.Record) bool {
	return r.Verdict != guard.Allowed && r.Via != guard.ViaControl && r.Written == 0 &&
		!(r.Verdict == guard.Failed && r.Kind == names.Timeout)
}

// add counts a record in the sum it belongs to.
func (s *sums) add(r *guard.Record, now time.Time) {
	key := sumKey{r.Subject, r.Verdict}
	if s.byKey[key] == nil && len(s.byKey) >= maxSums {
		key.subject = ""
	}
	c := s.byKey[key]
	if c == nil {
		c = &collected{item: item{rec: sample(r), sum: &sum{kinds: map[string]int64{}, ops: map[string]int64{}}}, since: now}
		s.byKey[key] = c
	}
	c.count++
	c.rec.Duration += r.Duration
	c.last = r.Time
	c.sum.kinds[r.Kind.String()]++
	op := r.Op.String()
	if c.sum.ops[op] == 0 && len(c.sum.ops) >= maxSumOps {
		op = "other"
	}
	c.sum.ops[op]++
}

// sample is r with no more text than a sum has room for.
func sample(r *guard.Record) guard.Record {
	out := *r
	out.Room, out.Path2, out.Read = 0, guard.Path{}, 0
	out.Subject = guard.Subject(clip(string(r.Subject)))
	out.Detail = clip(r.Detail)
	if rel := r.Path.Rel(); clip(rel) != rel {
		out.Path, _ = names.NewPath(r.Path.Root, "")
	}
	return out
}

// clip is the beginning of s that takes no more than maxSumText in a line.
func clip(s string) string {
	_, n := appendText(nil, s, maxSumText)
	return s[:n]
}

// sumLocked queues the sums that have collected long enough, all of them if final,
// and returns when the next one will have.
func (l *Log) sumLocked(now time.Time, final bool) (next time.Time) {
	for key, c := range l.sums.byKey {
		due := c.since.Add(l.share.span())
		if (final || !now.Before(due)) && (final || l.fitsLocked(sumBound)) {
			it := c.item
			it.cost = sumBound
			l.promised += it.cost
			l.queueLocked(&it)
			delete(l.sums.byKey, key)
			continue
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next
}
