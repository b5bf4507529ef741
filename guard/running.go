package guard

import (
	"context"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// MaxRunning is how many operations on one root are in system calls at a time;
// more wait. Each holds a thread of the process while its source hangs, also when
// its caller has been answered and has asked again, and Go ends a process that
// has 10,000 of them (runtime/debug.SetMaxThreads). It is far above what disks and
// network file systems work on at once.
const MaxRunning = 256

type insideKey struct{}

// InsideOperation returns a context for operations that are part of another, which runs
// already: they take no place of their own, so that many such pairs cannot wait
// for each other.
func InsideOperation(ctx context.Context) context.Context {
	return context.WithValue(ctx, insideKey{}, true)
}

// Run takes one of the root's MaxRunning places, waiting for one no longer than an
// operation may take. stop, which is never nil, gives it back: when the system
// calls have ended, not when the operation is answered. It may be called from
// another goroutine.
func (l *Lease) Run(ctx context.Context) (stop func(), err error) {
	select {
	case l.root.running <- struct{}{}:
		return l.root.stopRunning, nil
	default:
	}
	if ctx.Value(insideKey{}) != nil {
		return func() {}, nil
	}
	timer := time.NewTimer(l.Timeout())
	defer timer.Stop()
	select {
	case l.root.running <- struct{}{}:
		return l.root.stopRunning, nil
	case <-l.Dead():
		return func() {}, &Error{Kind: names.Revoked}
	case <-ctx.Done():
		return func() {}, ctx.Err()
	case <-timer.C:
		return func() {}, &Error{Kind: names.Timeout}
	}
}
