package guard

import (
	"context"
	"time"

	"github.com/rootsfs/rootsfs/guard/ledger"
)

// A grant ends by itself at a set time, or when it was not used for Limits.Idle. It ends as
// by a revocation. Every operation that the gate admits is a use. Requests that the kernel
// answers from its caches are not, and neither is a file that is merely open.
//
// The clocks are checked once a minute, and at every operation. So a root whose time passed
// while the machine slept, or because the clock was set, refuses its next operation
// (isOverdue).

// startTimer starts the timer that ends a root, or restarts it.
func (g *Registry) startTimer(r *root) {
	g.mu.Lock() // guards r.timer, which shut reads
	defer g.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	left, ok := r.timeLeft(g.clock.Now())
	if !ok || State(r.state.Load()) != Live {
		return
	}
	r.timer = time.AfterFunc(min(left, g.clock.CheckInterval), func() {
		if !r.isExpired(g.clock.Now()) {
			g.startTimer(r) // it was used meanwhile, or the timer ran for less than the time left
			return
		}
		_, _ = g.end(context.Background(), r, ExpiredState)
	})
}

// overdueAfter is how late the timer of a root may be. After that, the gate refuses operations
// without waiting for the timer.
const overdueAfter = time.Second

// isOverdue reports whether the root should have ended more than overdueAfter ago, so that
// the operation is to be refused. If so, and the operation is no dry run, it also begins to end
// the root. It reports false while dirty data is flushed, which is a part of ending the root.
func (g *Registry) isOverdue(r *root, dry bool) bool {
	if r.life.End().IsZero() && r.policy.Load().Limits.Idle <= 0 || r.flushing.Load() != 0 {
		return false
	}
	left, ok := r.timeLeft(g.clock.Now())
	if !ok || left > -overdueAfter {
		return false
	}
	if dry {
		return true
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

// timeLeft returns the time until the root ends if nothing uses it. ok is false if the root
// never ends by itself. An operation that runs or waits is a use.
func (r *root) timeLeft(now ledger.Instant) (left time.Duration, ok bool) {
	idle, busy := r.policy.Load().Limits.Idle, false
	if idle > 0 {
		running, _ := r.gen.Load().counted()
		busy = running+r.waiting.Load() > 0
	}
	return r.life.Left(now, idle, busy)
}

// isExpired reports whether the root's time is up.
func (r *root) isExpired(now ledger.Instant) bool {
	left, ok := r.timeLeft(now)
	return ok && left <= 0
}
