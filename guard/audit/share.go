package audit

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// A session that is live is never pruned, so what it writes is bounded by its share of
// MaxTotal. The budgets bound the speed of each subject (budget.go). When half of the
// share is used, all subjects together have one budget more, whose speed falls with
// what is left: the nearer the end of the share, the longer an operation waits, and the
// more refusals are summed up. The share is never used up by what is paced, and the
// disk never fills.

const (
	// shareBurst is how much may be written at once when half of the share is used.
	shareBurst = 256 << 10
	// sharePatience is what an operation is told to wait for when there is no share left.
	sharePatience = time.Hour
	// slowSumSpan is how long a sum collects when half of the share is used.
	slowSumSpan = 5 * time.Minute
)

// share is how much of the disk a session has. The owner's mutex guards it.
type share struct {
	most           int64 // bytes; 0: without bound
	used           int64 // bytes of the files of this run, compressed or not
	work, refusals *rate.Limiter
}

func newShare(o *Options) share {
	s := share{most: o.MaxTotal / 2}
	burst := int(min(shareBurst, max(1, s.most/16)))
	s.work = rate.NewLimiter(rate.Limit(o.work.perSecond), burst)
	s.refusals = rate.NewLimiter(rate.Limit(o.refusals.perSecond), burst)
	return s
}

// tight reports whether half of the share is used.
func (s *share) tight() bool { return s.most > 0 && s.used >= s.most/2 }

// left is how much of the second half of the share is left, from 1 to 0.
func (s *share) left() float64 {
	return math.Max(0, math.Min(1, float64(s.most-s.used)/float64(s.most-s.most/2)))
}

// wait is how long an operation whose record has size bytes waits for the share; it is
// not charged where that is more than limit.
func (s *share) wait(o *Options, now time.Time, size int, limit time.Duration) time.Duration {
	if !s.tight() {
		return 0
	}
	left := s.left()
	if left == 0 {
		return max(sharePatience, limit+1)
	}
	s.work.SetLimitAt(now, rate.Limit(o.work.perSecond*left))
	turn := s.work.ReserveN(now, min(size, s.work.Burst()))
	wait := turn.DelayFrom(now)
	if wait > limit {
		turn.CancelAt(now)
	}
	return wait
}

// refuses reports whether a refusal of size bytes is to be summed up for want of share.
func (s *share) refuses(o *Options, now time.Time, size int) bool {
	if !s.tight() {
		return false
	}
	s.refusals.SetLimitAt(now, rate.Limit(o.refusals.perSecond*s.left()))
	return !s.refusals.AllowN(now, min(size, s.refusals.Burst()))
}

// span is how long a sum collects.
func (s *share) span() time.Duration {
	if s.tight() {
		return slowSumSpan
	}
	return sumSpan
}
