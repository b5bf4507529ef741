package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// No more is held than there is room for, whatever the sizes, and everybody gets
// a turn.
func TestRoom(t *testing.T) {
	r := newRoom()
	var held, most, served atomic.Int64
	var wg sync.WaitGroup
	sizes := []int64{0, unlimited, unlimited + 1, slot, slot + 1, 7 * slot, slots * slot, 1000 * slot}
	for i := range 200 {
		wg.Go(func() {
			n := sizes[i%len(sizes)]
			leave, err := r.take(t.Context(), n)
			if err != nil {
				t.Error(err)
				return
			}
			weight := int64(0)
			if n > unlimited {
				weight = min((n+slot-1)/slot, slots)
			}
			now := held.Add(weight)
			for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
			}
			held.Add(-weight)
			served.Add(1)
			leave()
		})
	}
	wg.Wait()
	if most.Load() > slots || most.Load() == 0 || served.Load() != 200 || len(r.held) != 0 || len(r.turn) != 0 {
		t.Errorf("%d slots at a time, %d served, %d still held", most.Load(), served.Load(), len(r.held))
	}
}

// Who gives up waiting leaves nothing behind, in the queue or at its head.
func TestRoom_cancelled(t *testing.T) {
	r := newRoom()
	leave, err := r.take(t.Context(), (slots-1)*slot)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error)
	for range 3 {
		go func() { got <- func() error { _, err := r.take(ctx, 2*slot); return err }() }()
	}
	cancel()
	for range 3 {
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
	if _, err := r.take(ctx, 1); err != nil {
		t.Errorf("a small one waited: %v", err)
	}
	leave()
	if len(r.held) != 0 || len(r.turn) != 0 {
		t.Errorf("%d slots held", len(r.held))
	}
}
