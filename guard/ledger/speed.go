package ledger

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard/rules"
)

// Speed bounds how many operations begin in a second. A nil Speed bounds nothing.
type Speed struct{ limiter *rate.Limiter }

// SpeedOf returns the speed that a root's limits set, nil if they set none.
func SpeedOf(l *rules.Limits) *Speed {
	if l.OpsPerSecond <= 0 {
		return nil
	}
	burst := l.Burst
	if burst <= 0 {
		burst = max(1, int(l.OpsPerSecond))
	}
	return &Speed{rate.NewLimiter(rate.Limit(l.OpsPerSecond), burst)}
}

// Turn is the moment at which an operation may begin.
type Turn struct {
	// Wait is the time from the call of Reserve until that moment.
	Wait time.Duration

	reserved *rate.Reservation // nil: nothing is reserved
}

// Reserve returns the next turn, which nobody else gets. In a dry run it returns the turn
// that a call without dry would get now, and reserves nothing.
func (s *Speed) Reserve(dry bool) Turn {
	switch {
	case s == nil:
		return Turn{}
	case dry:
		return Turn{Wait: s.untilToken()}
	}
	r := s.limiter.Reserve()
	return Turn{Wait: r.Delay(), reserved: r}
}

// Cancel gives the turn back to others. It is for an operation that does not begin.
func (t Turn) Cancel() {
	if t.reserved != nil {
		t.reserved.Cancel()
	}
}

// untilToken returns how long an operation that came now would have to wait.
func (s *Speed) untilToken() time.Duration {
	missing := 1 - s.limiter.Tokens()
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing / float64(s.limiter.Limit()) * float64(time.Second))
}
