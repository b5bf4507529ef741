package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// Transfers larger than smallTransfer never hold more than maxTransfers together, and every
// transfer gets its turn.
func TestTransfers(t *testing.T) {
	r := newTransfers()
	var held, most, served atomic.Int64
	var wg sync.WaitGroup
	sizes := []int64{0, smallTransfer, smallTransfer + 1, 1 << 20, 7 << 20, maxTransfers, 1000 << 20}
	for i := range 200 {
		wg.Go(func() {
			n := sizes[i%len(sizes)]
			release, err := r.acquire(t.Context(), n)
			if err != nil {
				t.Error(err)
				return
			}
			weight := int64(0)
			if n > smallTransfer {
				weight = min(n, maxTransfers)
			}
			now := held.Add(weight)
			for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
			}
			held.Add(-weight)
			served.Add(1)
			release()
		})
	}
	wg.Wait()
	if most.Load() > maxTransfers || most.Load() == 0 || served.Load() != 200 || !r.bytes.TryAcquire(maxTransfers) {
		t.Errorf("%d bytes at a time, %d served, or something is still held", most.Load(), served.Load())
	}
}

// A caller that gives up waiting holds nothing afterwards, whether it was the first in the queue
// or a later one.
func TestTransfers_cancelled(t *testing.T) {
	r := newTransfers()
	release, err := r.acquire(t.Context(), maxTransfers-1<<20)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	for range 3 {
		go func() { got <- func() error { _, err := r.acquire(ctx, 2<<20); return err }() }()
	}
	cancel()
	for range 3 {
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if _, err := r.acquire(ctx, 1); err != nil {
		t.Errorf("a small transfer waited: %v", err)
	}
	release()
	if !r.bytes.TryAcquire(maxTransfers) {
		t.Error("something is still held")
	}
}
