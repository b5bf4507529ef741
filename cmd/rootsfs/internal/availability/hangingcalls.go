package availability

import (
	"context"
	"sync"
)

// maxHanging bounds the calls of one hangingCalls that are in progress at a time. Each call may
// hold a thread.
const maxHanging = 256

// hangingCalls makes calls that may hang, each in a goroutine of its own, and one at a time for
// each key.
type hangingCalls[K comparable] struct {
	mu   sync.Mutex // guards the field below
	busy map[K]bool // keys whose call is in progress
}

// run calls f and waits until f or ctx ends. If a call with the key, or maxHanging calls in all,
// are in progress, run does not call f and reports false.
func (a *hangingCalls[K]) run(ctx context.Context, key K, f func()) bool {
	a.mu.Lock()
	begin := !a.busy[key] && len(a.busy) < maxHanging
	if a.busy == nil {
		a.busy = map[K]bool{}
	}
	if begin {
		a.busy[key] = true
	}
	a.mu.Unlock()
	if !begin {
		return false
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.busy, key)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return true
}
