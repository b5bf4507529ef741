package guard

import (
	"context"
	"errors"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// An operation waits for a place to run in, and for the speed limits.

// MaxRunning bounds the operations on one root that are in system calls at a time. Further ones
// wait, except with InsideOperation. While a source hangs, each operation in a system call holds a
// thread of the process, even after its caller has got an error and has tried again. Go ends a
// process that has 10,000 threads (runtime/debug.SetMaxThreads). Disks and network file systems
// work on far fewer operations at a time.
const MaxRunning = 256

type insideKey struct{}

// InsideOperation returns a context for operations that are part of a running one. With it, Run
// goes on without a place if none is free, so that such operations cannot wait for each other.
func InsideOperation(ctx context.Context) context.Context {
	return context.WithValue(ctx, insideKey{}, true)
}

// Run takes one of the root's MaxRunning places. It waits for a place at most as long as the
// operation may take (Timeout). stop, which is never nil, gives the place back. The caller must
// call it, from any goroutine, when the system calls have ended, not when the operation is
// answered.
func (l *Lease) Run(ctx context.Context) (stop func(), err error) {
	select {
	case <-l.root.places:
		return l.root.leavePlace, nil
	default:
	}
	if ctx.Value(insideKey{}) != nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout())
	defer cancel()
	if err := l.Life().Wait(ctx, l.root.places); err != nil {
		return func() {}, err
	}
	return l.root.leavePlace, nil
}

// Life tells an operation when it has to stop.
type Life struct{ l *Lease }

// Life returns the life of the operation.
func (l *Lease) Life() Life { return Life{l} }

// Wait receives a value from ready, or waits for one. It returns an error as soon as the root
// or ctx ends.
func (f Life) Wait(ctx context.Context, ready <-chan struct{}) error {
	return waitFor(ctx, f.l.root, ready)
}

// Ended returns the error of an operation that should stop, because its root or ctx has
// ended; else nil.
func (f Life) Ended(ctx context.Context) error {
	select {
	case <-f.l.root.dead:
		return f.l.root.endedError()
	default:
		return ctx.Err()
	}
}

// UntilEnd returns a context that ends with ctx, and as soon as the root ends. The caller
// must call stop.
func (f Life) UntilEnd(ctx context.Context) (alive context.Context, stop context.CancelFunc) {
	alive, stop = context.WithCancel(ctx)
	dead := f.l.root.dead
	go func() {
		select {
		case <-dead:
			stop()
		case <-alive.Done():
		}
	}()
	return alive, stop
}

func waitFor[T any](ctx context.Context, r *root, ready <-chan T) error {
	select {
	case <-ready:
		return nil
	case <-r.dead:
		return r.endedError()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return &Error{Kind: names.Timeout}
		}
		return ctx.Err()
	}
}

// waitForSpeed waits for the root's speed limit and for that of the audit log. Before it waits it
// calls Lease.release, so that a change of the root need not wait for the operation. If waited is
// true and err is nil, the caller has to find the root and count the operation again.
func waitForSpeed(ctx context.Context, l *Lease, auditor Reserver, rec *Record) (waited bool, err error) {
	r := l.root
	if r.flushing.Load() != 0 {
		return false, nil
	}
	limit := l.policy.Timeout()
	turn := r.speed.Reserve(l.req.Dry != nil)
	wait := turn.Wait
	if wait <= limit && auditor != nil {
		wait = max(wait, auditor.Pace(rec, limit))
	}
	if wait == 0 {
		return false, nil
	}
	if wait > limit {
		turn.Cancel()
		l.req.Dry.note(Step{Kind: StepLimit, Root: r.name, Refused: true})
		return false, &Error{Kind: names.Rate, RetryAfter: wait}
	}
	if l.req.Dry != nil {
		return false, nil
	}
	l.release()
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	t := time.NewTimer(wait)
	defer t.Stop()
	if err := waitFor(ctx, r, t.C); err != nil {
		turn.Cancel()
		return true, err
	}
	return true, nil
}
