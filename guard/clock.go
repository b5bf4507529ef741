package guard

import "time"

// The wall's clock can be set, and goes on while the machine sleeps. The process's
// own cannot be set, and stands still then. A person says by the first when a grant
// ends, or how long from now; so its end is kept by both, and the one that comes
// first is it: a wall's clock that is set back gives no grant more time.

// instant is a moment by both clocks, nanoseconds: since 1970 and since the
// registry's beginning.
type instant struct{ wall, own int64 }

type clock struct {
	wall  func() time.Time
	began time.Time
	// look is how long a root's timer, which goes by the process's clock, runs at
	// most, before both are looked at again.
	look time.Duration
}

func newClock() clock { return clock{wall: time.Now, began: time.Now(), look: time.Minute} }

func (c *clock) now() instant {
	return instant{c.wall().UnixNano(), int64(time.Since(c.began))}
}

// at is when the wall's clock will show t, if nobody sets it.
func (i instant) at(t time.Time) instant {
	wall := t.UnixNano()
	return instant{wall, i.own + wall - i.wall}
}
