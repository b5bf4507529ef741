// Package gate runs the operations of package vfs: the registry admits each operation and gives
// it a lease. The operation runs under the lease, and the lease settles and records it.
//
// # Promises
//
// An operation passes the gate once, and none runs without its record. An operation on a
// file system that can hang is answered at the latest when its root ends, its context ends,
// or its time is up. A panic of an operation settles its lease.
//
// # Not promised
//
// The system call of an operation that was answered early goes on, and so do the
// operation's own goroutine and lease until the call returns.
package gate

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Run is Do for an operation without a result.
func Run(ctx context.Context, r *guard.Registry, req guard.Request, f func(l *guard.Lease) error) error {
	_, err := Do(ctx, r, req, nil, func(l *guard.Lease) (struct{}, int64, error) {
		return struct{}{}, 0, f(l)
	})
	return err
}

// Do runs the operation f: it admits the request, calls f with the lease, and settles
// the lease with the number of bytes that f moved. If the file system can hang, f runs in a
// goroutine of its own with a lease of its own. So f may only use memory that the operation
// owns or that its result hands over.
//
// Do calls drop, unless nil, with a result that its caller does not get: one that came
// after the operation had been answered, or that the audit log could not record.
func Do[T any](ctx context.Context, r *guard.Registry, req guard.Request, drop func(T), f func(l *guard.Lease) (T, int64, error)) (T, error) {
	return DoPrepared(ctx, r, req, nil, drop, f)
}

// DoPrepared is Do for an f that uses what belongs to its caller: the memory of the data
// to write, which the front end uses again after the answer, or a descriptor that the
// caller closes. If the file system can hang, DoPrepared calls prepare before the
// operation can be answered: prepare copies the memory and pins the descriptor. The function
// release, the result of prepare, is called when f has returned or will not run.
func DoPrepared[T any](ctx context.Context, r *guard.Registry, req guard.Request, prepare func() (release func()), drop func(T),
	f func(l *guard.Lease) (T, int64, error),
) (T, error) {
	var zero T
	if req.Dry != nil && drop != nil {
		// A result with a drop function is an open file, which a dry run must not return.
		return zero, &guard.Error{Op: req.Op, Path: req.Path, Kind: names.Internal, Err: errDryResult}
	}
	l, err := r.Admit(ctx, req)
	if err != nil {
		return zero, err
	}
	var v T
	var n int64
	stop, err := l.Run(ctx)
	switch {
	case err != nil:
	case l.Source().Remote():
		if prepare != nil {
			release, giveBack := prepare(), stop
			stop = func() { release(); giveBack() }
		}
		v, n, err = runDetached(ctx, l, stop, drop, f)
	default:
		v, n, err = guardPanic(l, stop, f)
	}
	worked := err == nil
	if err = l.Done(n, err); err != nil {
		if worked && drop != nil {
			drop(v) // the audit log has no room for the record
		}
		return zero, err
	}
	return v, nil
}

var errDryResult = errors.New("a dry run opens nothing")

// guardPanic runs f in this goroutine, gives back the place that Lease.Run took and, if f
// panics, settles the lease.
func guardPanic[T any](l *guard.Lease, stop func(), f func(l *guard.Lease) (T, int64, error)) (v T, n int64, err error) {
	done := false
	defer func() {
		stop()
		if !done {
			_ = l.Done(0, &guard.Error{Kind: names.Internal})
		}
	}()
	v, n, err = f(l)
	done = true
	return v, n, err
}

type outcome[T any] struct {
	v   T
	n   int64
	err error
}

// The states of a detached operation.
const (
	running int32 = iota
	finished
	abandoned
)

// runDetached runs f in a goroutine of its own and answers early when the root ends, the
// context does, or the time for one operation is up. An f that has not begun before an early
// answer never runs.
func runDetached[T any](ctx context.Context, l *guard.Lease, stop func(), drop func(T), f func(l *guard.Lease) (T, int64, error)) (T, int64, error) {
	dl, release := l.Detach()
	o := outcome[T]{err: context.Canceled}
	done := make(chan struct{}) // closed when o is the answer
	var state atomic.Int32
	go func() {
		defer release()
		if state.Load() != abandoned {
			o = runRecovering(dl, f)
		}
		stop()
		if state.CompareAndSwap(running, finished) {
			close(done)
			return
		}
		dl.Charges().Settle(o.n, o.err)
		if drop != nil && o.err == nil {
			drop(o.v)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, l.Timeout())
	defer cancel()
	err := l.Life().Wait(ctx, done)
	if err != nil && state.CompareAndSwap(running, abandoned) {
		l.Abandon()
		var zero T
		return zero, 0, err
	}
	<-done
	return o.v, o.n, o.err
}

// runRecovering runs f and turns its panic into an error: an unrecovered panic would end the
// daemon, and every mount with it.
func runRecovering[T any](l *guard.Lease, f func(l *guard.Lease) (T, int64, error)) (o outcome[T]) {
	defer func() {
		if p := recover(); p != nil {
			o = outcome[T]{err: &guard.Error{Kind: names.Internal, Err: fmt.Errorf("panic: %v", p)}}
		}
	}()
	o.v, o.n, o.err = f(l)
	return o
}
