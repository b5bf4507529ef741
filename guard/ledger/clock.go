package ledger

import "time"

// The wall clock can be set, and goes on while the machine sleeps. The process's monotonic
// clock cannot be set, and stands still while the machine sleeps. The end of a grant is stored
// by both clocks, and the grant ends when the first of them reaches it. So setting the wall
// clock back does not extend a grant.

// Instant is a moment by both clocks, in nanoseconds: wall since 1970, own (the monotonic
// clock) since the registry was made.
type Instant struct{ Wall, Own int64 }

// Clock shows both clocks.
type Clock struct {
	Wall  func() time.Time
	began time.Time
	// Look is the longest time that a root's timer runs before both clocks are checked again.
	// The timer uses the monotonic clock.
	Look time.Duration
}

// NewClock returns the machine's clock.
func NewClock() Clock { return Clock{Wall: time.Now, began: time.Now(), Look: time.Minute} }

// Now returns the present instant.
func (c *Clock) Now() Instant {
	return Instant{c.Wall().UnixNano(), int64(time.Since(c.began))}
}

// At returns the Instant at which the wall clock will show t, if nobody sets it.
func (i Instant) At(t time.Time) Instant {
	wall := t.UnixNano()
	return Instant{wall, i.Own + wall - i.Wall}
}
