package ledger

import (
	"sync/atomic"
	"time"
)

// Lifetime says when a grant ends by itself: at a set time, or after a time without use
// (rules.Limits.Idle). The zero Lifetime has no end.
type Lifetime struct {
	end      atomic.Int64 // nanoseconds since 1970; 0: none
	endOwn   atomic.Int64 // the same end by the monotonic clock, see Instant
	endSetAt atomic.Int64 // when the end was set last, nanoseconds since 1970
	lastUse  atomic.Int64 // when the grant was used last, nanoseconds since 1970; 0: never
}

// SetEnd sets the end, and counts as a use. With the zero time there is no end.
func (l *Lifetime) SetEnd(t time.Time, now Instant) {
	l.endSetAt.Store(now.Wall)
	if t.IsZero() {
		l.end.Store(0)
		return
	}
	end := now.At(t)
	l.endOwn.Store(end.Own)
	l.end.Store(end.Wall)
}

// End returns the set end, the zero time if there is none.
func (l *Lifetime) End() time.Time { return timeOf(&l.end) }

// EndSetAt returns when the end was set last: when the root was granted or renewed.
func (l *Lifetime) EndSetAt() time.Time { return timeOf(&l.endSetAt) }

// Use records a use of the grant at a time.
func (l *Lifetime) Use(at time.Time) { l.lastUse.Store(at.UnixNano()) }

// LastUse returns the time of the last use, the zero time if there was none.
func (l *Lifetime) LastUse() time.Time { return timeOf(&l.lastUse) }

// Left returns the time until the grant ends if nothing uses it; ok is false if the grant never
// ends by itself. idle is how long the grant may be unused (0: for ever). busy says that the grant
// is in use now. If idle is set and the wall clock was set back, the times of the last use and of
// the last SetEnd may be later than now. Left then changes them to now.
func (l *Lifetime) Left(now Instant, idle time.Duration, busy bool) (left time.Duration, ok bool) {
	if n := l.end.Load(); n != 0 {
		left, ok = time.Duration(min(n-now.Wall, l.endOwn.Load()-now.Own)), true
	}
	if idle <= 0 {
		return left, ok
	}
	for _, at := range []*atomic.Int64{&l.lastUse, &l.endSetAt} {
		if t := at.Load(); t > now.Wall {
			at.CompareAndSwap(t, now.Wall)
		}
	}
	from := max(l.lastUse.Load(), l.endSetAt.Load())
	if busy {
		from = now.Wall
	}
	if by := time.Duration(from-now.Wall) + idle; !ok || by < left {
		return by, true
	}
	return left, true
}

func timeOf(n *atomic.Int64) time.Time {
	if n := n.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// The wall clock can be set, and goes on while the machine sleeps. The process's monotonic
// clock cannot be set, and stands still while the machine sleeps. The end of a grant is stored
// by both clocks, and the grant ends when the first of them reaches it. So setting the wall
// clock back does not postpone this end. An idle time is measured by the wall clock only.

// Instant is a moment by both clocks, in nanoseconds: Wall since 1970, Own (the monotonic
// clock) since the Clock was made.
type Instant struct{ Wall, Own int64 }

// Clock shows both clocks.
type Clock struct {
	Wall  func() time.Time
	began time.Time
	// CheckInterval is the longest time that a root's timer runs before both clocks are checked again.
	// The timer uses the monotonic clock.
	CheckInterval time.Duration
}

// NewClock returns the machine's clock.
func NewClock() Clock { return Clock{Wall: time.Now, began: time.Now(), CheckInterval: time.Minute} }

// Now returns the present instant.
func (c *Clock) Now() Instant {
	return Instant{c.Wall().UnixNano(), int64(time.Since(c.began))}
}

// At returns the Instant at which the wall clock will show t, if nobody sets the clock and the
// machine does not sleep.
func (i Instant) At(t time.Time) Instant {
	wall := t.UnixNano()
	return Instant{wall, i.Own + wall - i.Wall}
}
