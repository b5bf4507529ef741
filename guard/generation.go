package guard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// The operations of a root are counted by generation. A change of the root (its end, other
// rights or patterns, a root granted or ended inside) begins a generation, and waits until
// the operations of the older ones are answered. Two kinds of operations still run after
// that: those that were answered early, because the source hangs (Lease.Detach), and those
// for which the change has waited until its deadline. Lease.Change keeps the first kind from
// changing the source once the root has changed. It keeps the second kind from that, too, except
// after a grant, change or end of a root inside, and after the suspension of a subject.

// generation counts the operations that were admitted between two changes of a root.
type generation struct {
	running atomic.Int64 // operations that are not answered yet
	changes atomic.Int64 // calls of Lease.Change that are in progress
	cut     atomic.Bool  // its operations may not begin a change of the source, see drainOrCut
	older   atomic.Pointer[generation]
}

// atStep is set by tests only. It is called before certain steps, so that tests can delay
// them.
var atStep func(step string)

func step(s string) {
	if atStep != nil {
		atStep(s)
	}
}

// acquire counts an operation and returns the generation to release; ok is false
// when the root is not live.
func (r *root) acquire() (g *generation, ok bool) {
	for {
		step("admit")
		g = r.gen.Load()
		step("count")
		g.running.Add(1)
		if r.gen.Load() != g {
			// A change began between the two loads. It may have read the counter before this
			// operation raised it.
			g.release()
			continue
		}
		if State(r.state.Load()) != Live {
			g.release()
			return nil, false
		}
		return g, true
	}
}

func (g *generation) release() { g.running.Add(-1) }

// counted returns how many operations, and how many calls of Lease.Change, are in progress in g and
// in the older generations.
func (g *generation) counted() (running, changes int64) {
	for ; g != nil; g = g.older.Load() {
		running += g.running.Load()
		changes += g.changes.Load()
	}
	return running, changes
}

// drain begins a generation and waits until no operation of the older ones is left
// or ctx ends. The caller has locked the root's changes.
func (r *root) drain(ctx context.Context) error {
	next := &generation{}
	next.older.Store(r.gen.Load())
	r.gen.Store(next)
	err := await(ctx, func() bool {
		running, _ := next.older.Load().counted()
		return running == 0
	})
	if err != nil {
		return fmt.Errorf("operations on root %s are still running: %w", r.name, err)
	}
	return nil
}

// drainOrCut calls drain. If operations are left, it keeps them from beginning a change of the
// source.
func (r *root) drainOrCut(ctx context.Context) error {
	err := r.drain(ctx)
	if err != nil {
		for g := r.gen.Load().older.Load(); g != nil; g = g.older.Load() {
			g.cut.Store(true)
		}
	}
	return err
}

// settle waits for the calls of older generations that change the source. If
// ctx ends first, it returns an error that says how many calls are left. The caller has
// called drain, and has locked the root's changes.
func (r *root) settle(ctx context.Context) error {
	newest := r.gen.Load()
	err := await(ctx, func() bool {
		_, changes := newest.older.Load().counted()
		return changes == 0
	})
	// Older generations at zero are dropped. A late operation raises their counts only for a
	// moment, because it then finds that the root has changed.
	last := newest
	for g := last.older.Load(); g != nil; g = g.older.Load() {
		if g.running.Load() != 0 || g.changes.Load() != 0 {
			last.older.Store(g)
			last = g
		}
	}
	last.older.Store(nil)
	if err == nil {
		return nil
	}
	_, left := newest.older.Load().counted()
	switch left {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("root %s: 1 call that changes the source has not returned and may still arrive", r.name)
	}
	return fmt.Errorf("root %s: %d calls that change the source have not returned and may still arrive", r.name, left)
}

// await polls until done reports true or ctx ends.
func await(ctx context.Context, done func() bool) error {
	wait := 20 * time.Microsecond
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, 2*time.Millisecond)
		}
	}
	return nil
}

// Change runs call, which is one system call that changes the source, unless the lease is dead.
// Two things make a lease dead:
//   - The operation was answered early (Abandon), and its root, or a nested root that the
//     operation has entered, has begun a new generation since the operation was counted there.
//   - Such a root has ended, was narrowed or was paused, and that change has given up waiting for
//     the operation.
//
// A change of the root still waits for a call that has begun, and reports the call if it does not
// return in time. In a dry run, Change does not run call and returns an error.
func (l *Lease) Change(call func() error) error {
	if l.req.Dry != nil {
		return &Error{Kind: names.Internal, Err: errDryChange}
	}
	countChange(l, 1)
	defer countChange(l, -1)
	// A change of the root is stored before the counter is read, so the call is counted before
	// the root is tested.
	step("change")
	answered := l.detached != nil && l.detached.answered.Load()
	if err := l.root.mayChange(l.gen, answered); err != nil {
		return err
	}
	for _, c := range l.crossed {
		if err := c.root.mayChange(c.gen, answered); err != nil {
			return err
		}
	}
	return call()
}

func countChange(l *Lease, n int64) {
	l.gen.changes.Add(n)
	for _, c := range l.crossed {
		c.gen.changes.Add(n)
	}
}

func (r *root) mayChange(g *generation, answered bool) error {
	switch {
	case !g.cut.Load() && (!answered || r.gen.Load() == g):
		return nil
	case State(r.state.Load()) == Live:
		return &Error{Kind: names.Timeout}
	}
	return r.endedError()
}

// Detach returns a lease for a part of the operation that may outlive the operation. The new lease
// keeps the root's descriptor open, but the ending of the root waits only for calls of Change by
// the new lease. The returned function must be called when the part has ended; Done must not be
// called on the new lease.
func (l *Lease) Detach() (*Lease, func()) {
	l.Notes().ensure() // both leases share the notes, for example on where links lead
	both := struct {
		lease  Lease
		shared detached
	}{}
	l.detached = &both.shared
	both.lease = *l
	d := &both.lease
	d.crossed, d.pinned, d.bytes = nil, true, 0
	_ = d.req.room.Take() // the room belongs to the operation
	d.root.pins.Add(1)
	// The new lease also has the nested roots that the operation has entered, because a Hold made
	// from it has to list them.
	for _, c := range l.crossed {
		c.root.pins.Add(1)
		d.crossed = append(d.crossed, c)
	}
	return d, func() {
		for _, c := range d.crossed {
			c.root.pins.Add(-1)
		}
		d.root.pins.Add(-1)
	}
}

// Abandon says that the operation is answered while its detached part goes on. Bytes that this
// part writes still count for the quota: the part passes them to Charges.Settle. See Change for
// the calls that the part may still make.
func (l *Lease) Abandon() {
	l.abandoned = true
	l.detached.answered.Store(true)
	l.detached.uncross()
}

// detached is the state that an operation and its detached part share.
type detached struct {
	answered atomic.Bool // the operation was answered while its detached part goes on

	mu      sync.Mutex // guards the field below
	crossed []*generation
}

// cross takes over the count in g, a generation of a nested root that the detached part has
// entered. The count is released when the operation is answered.
func (d *detached) cross(g *generation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answered.Load() {
		g.release()
		return
	}
	d.crossed = append(d.crossed, g)
}

// uncross releases the counts that cross has taken over, because the operation is answered.
func (d *detached) uncross() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.crossed {
		g.release()
	}
	d.crossed = nil
}
