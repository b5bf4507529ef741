package guard

import (
	"context"
	"sync/atomic"
	"time"
)

// A grant ends by itself at a time, or when nothing has used it for a while
// (Limits.Idle), with all that a revocation does. Use is what comes to the gate
// and is not refused: what the kernel answers from its caches is not seen, nor is
// a file that is merely open.
//
// The clocks are looked at once a minute, and at every operation: a root whose time
// passed while the machine slept, or because the clock was set, is refused at once.

// startTimer starts the timer of a root's end, or sets it anew.
func (g *Registry) startTimer(r *root) {
	g.mu.Lock() // shut reads the timer under it
	defer g.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	left, ok := r.timeLeft(g.clock.now())
	if !ok || State(r.state.Load()) != Live {
		return
	}
	r.timer = time.AfterFunc(min(left, g.clock.look), func() {
		if !r.isExpired(g.clock.now()) {
			g.startTimer(r) // it was used meanwhile, or is not to end yet
			return
		}
		_, _ = g.end(context.Background(), r, ExpiredState)
	})
}

// NextUse returns a channel that is closed when the next operation comes to the gate. One
// caller may wait at a time.
func (g *Registry) NextUse() <-chan struct{} {
	used := make(chan struct{})
	g.nextUse.Store(&used)
	return used
}

func (g *Registry) noteUse() {
	if g.nextUse.Load() == nil {
		return // as a rule; this is cheaper than Swap
	}
	if used := g.nextUse.Swap(nil); used != nil {
		close(*used)
	}
}

// overdueAfter is how long the timer of a root's end may take to fire, before operations
// notice by themselves that the root should have ended.
const overdueAfter = time.Second

// isOverdue reports whether the root should have ended a while ago, so that the operation
// that asks is refused. If so, it also ends the root. Writing back what is dirty, which
// belongs to the ending, still passes.
func (g *Registry) isOverdue(r *root) bool {
	if r.expires.Load() == 0 && r.policy.Load().Limits.Idle <= 0 || r.flushing.Load() != 0 {
		return false
	}
	left, ok := r.timeLeft(g.clock.now())
	if !ok || left > -overdueAfter {
		return false
	}
	r.refused.Add(1)
	if r.endingOverdue.CompareAndSwap(false, true) {
		go func() {
			_, _ = g.end(context.Background(), r, ExpiredState) // its failure is in the event and the record
			r.endingOverdue.Store(false)
		}()
	}
	return true
}

// timeLeft is how long it is until the root may end, so that it has to be looked at then; ok
// is false if it never ends by itself.
func (r *root) timeLeft(now instant) (left time.Duration, ok bool) {
	if n := r.expires.Load(); n != 0 {
		left, ok = time.Duration(min(n-now.wall, r.expiresOwn.Load()-now.own)), true
	}
	idle := r.policy.Load().Limits.Idle
	if idle <= 0 {
		return left, ok
	}
	for _, at := range []*atomic.Int64{&r.lastUse, &r.since} {
		// Used at a time to come: the clock was set back. It counts from now.
		if t := at.Load(); t > now.wall {
			at.CompareAndSwap(t, now.wall)
		}
	}
	from := max(r.lastUse.Load(), r.since.Load())
	if running, _ := r.gen.Load().counted(); running+r.waiting.Load() > 0 {
		from = now.wall // what takes long is use
	}
	if by := time.Duration(from-now.wall) + idle; !ok || by < left {
		return by, true
	}
	return left, true
}

// isExpired reports that the root's time is up.
func (r *root) isExpired(now instant) bool {
	left, ok := r.timeLeft(now)
	return ok && left <= 0
}

// setEnd sets the root's end; the zero time is that of the session.
func (r *root) setEnd(t time.Time, now instant) {
	r.since.Store(now.wall)
	if t.IsZero() {
		r.expires.Store(0)
		return
	}
	end := now.at(t)
	r.expiresOwn.Store(end.own)
	r.expires.Store(end.wall)
}

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
