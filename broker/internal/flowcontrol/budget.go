// Package flowcontrol bounds the memory and the log records that a peer can cause. A
// Budget counts requests and the bytes that they hold. A Backlog counts the messages that
// the SDK was handed and has not handled yet. A Tally reports events at a bounded rate.
//
// Only these exceed a Budget: the only request, a request that grows by at least as much as
// all requests hold, and GrowTo with must. Another bound limits the size of a request. A
// Reservation is given back once, however often it is released. Each event of a Tally is in
// one of its reports. Callers that wait for room are not served in their order.
package flowcontrol

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Refusals of a Budget.
var (
	ErrCount = errors.New("too many requests at a time")
	ErrBytes = errors.New("too many bytes in flight")
)

// Budget bounds how many requests are held at a time, and how many bytes they hold. A
// bound that is not positive bounds nothing.
type Budget struct {
	Count int
	Bytes int64

	mu      sync.Mutex // guards the fields below, and those of reservations
	count   int
	bytes   int64
	freed   chan struct{} // closed by the next release; nil: no one waits
	stalled bool          // somebody waited in vain since the last release
}

// Reservation is the part of a Budget that one request holds. Nil is the reservation of
// a request that holds nothing.
type Reservation struct {
	budget   *Budget
	bytes    int64
	released bool
}

// TryAcquire reserves n bytes for one request, or reports ErrCount or ErrBytes. The only request
// is admitted whatever its size, which is bounded by the length that a message may have.
func (b *Budget) TryAcquire(n int64) (*Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tryAcquireLocked(n)
}

func (b *Budget) tryAcquireLocked(n int64) (*Reservation, error) {
	switch {
	case b.Count > 0 && b.count >= b.Count:
		return nil, ErrCount
	case b.Bytes > 0 && b.count > 0 && b.bytes+n > b.Bytes:
		return nil, ErrBytes
	}
	b.count++
	b.bytes += n
	return &Reservation{budget: b, bytes: n}, nil
}

// WaitStep is the longest time between two calls of the function that Acquire is given.
const WaitStep = 200 * time.Millisecond

// Acquire waits until there is room for n bytes, and reserves n bytes. It calls patient again and
// again with the time that it has waited. When patient returns false, Acquire gives up: the error
// is ErrCount or ErrBytes. Once a caller has waited in vain, others give up at once, until
// something is released. If done is closed while Acquire waits, the error is context.Canceled.
func (b *Budget) Acquire(n int64, done <-chan struct{}, patient func(waited time.Duration) bool) (*Reservation, error) {
	if r, err := b.TryAcquire(n); err == nil {
		return r, nil
	}
	begun := time.Now()
	step := time.NewTicker(WaitStep)
	defer step.Stop()
	for waited := false; ; waited = true {
		b.mu.Lock()
		r, err := b.tryAcquireLocked(n)
		if err == nil || b.stalled {
			b.mu.Unlock()
			return r, err
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		freed := b.freed
		b.mu.Unlock()
		if !patient(time.Since(begun)) {
			b.mu.Lock()
			if waited && b.freed == freed { // nothing was released meanwhile
				b.stalled = true
			}
			b.mu.Unlock()
			return nil, err
		}
		select {
		case <-freed:
		case <-step.C:
		case <-done:
			return nil, context.Canceled
		}
	}
}

// WaitFor returns a function that makes Acquire give up after d.
func WaitFor(d time.Duration) func(waited time.Duration) bool {
	return func(waited time.Duration) bool { return waited < d }
}

// Used returns how many requests are held, and how many bytes they hold.
func (b *Budget) Used() (count int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count, b.bytes
}

// Grow adds n bytes. It reports ErrBytes if there is no room, and context.Canceled if the
// request was released. If n is at least what all requests hold, r included, there is always
// room, so that a request of an allowed size is never refused for good.
func (r *Reservation) Grow(n int64) error {
	if r == nil {
		return context.Canceled
	}
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	if r.released {
		return context.Canceled
	}
	return r.growLocked(n, false)
}

func (r *Reservation) growLocked(n int64, must bool) error {
	b := r.budget
	if !must && b.Bytes > 0 && b.bytes+n > b.Bytes && b.bytes > n {
		return ErrBytes
	}
	b.bytes += n
	r.bytes += n
	return nil
}

// GrowTo makes a reservation of fewer than size bytes one of size bytes. Without room for that, the
// error is ErrBytes. If must is set, GrowTo needs no room: bytes that exist already must be counted.
func (r *Reservation) GrowTo(size int64, must bool) error {
	if r == nil {
		return nil
	}
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	if n := size - r.bytes; n > 0 && !r.released {
		return r.growLocked(n, must)
	}
	return nil
}

// Release gives the reservation back, once.
func (r *Reservation) Release() {
	if r == nil {
		return
	}
	b := r.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.released {
		return
	}
	r.released = true
	b.count--
	b.bytes -= r.bytes
	b.stalled = false
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}
