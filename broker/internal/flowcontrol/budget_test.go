package flowcontrol

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// acquire calls TryAcquire, and ends the test if the error is not want.
func acquire(t *testing.T, b *Budget, n int64, want error) *Reservation {
	t.Helper()
	r, err := b.TryAcquire(n)
	if !errors.Is(err, want) {
		t.Fatalf("%d bytes: %v, want %v", n, err, want)
	}
	return r
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Budget{Count: 2, Bytes: 100}
		done := make(chan struct{})
		large := acquire(t, b, 1000, nil) // the only request is admitted whatever its size
		acquire(t, b, 1, ErrBytes)
		large.Release()
		large.Release() // a second release does nothing
		first := acquire(t, b, 60, nil)
		acquire(t, b, 60, ErrBytes)
		second := acquire(t, b, 40, nil)
		acquire(t, b, 0, ErrCount)
		time.AfterFunc(time.Second, first.Release)
		begun := time.Now()
		third, err := b.Acquire(50, done, WaitFor(time.Minute))
		if err != nil || time.Since(begun) != time.Second {
			t.Fatalf("waited %v: %v", time.Since(begun), err)
		}
		// If nothing is released, the first request waits in vain, and later ones do not wait.
		for i, want := range []time.Duration{time.Minute, 0, 0} {
			begun = time.Now()
			if _, err := b.Acquire(50, done, WaitFor(time.Minute)); !errors.Is(err, ErrCount) || time.Since(begun) != want {
				t.Fatalf("%d waited %v, not %v: %v", i, time.Since(begun), want, err)
			}
		}
		second.Release()
		third.Release()
		if _, err := b.Acquire(100, done, WaitFor(time.Minute)); err != nil {
			t.Fatalf("there is room again: %v", err)
		}
		time.AfterFunc(time.Second, func() { close(done) })
		begun = time.Now()
		if _, err := b.Acquire(1, done, WaitFor(time.Minute)); !errors.Is(err, context.Canceled) || time.Since(begun) != time.Second {
			t.Fatalf("waited %v: %v", time.Since(begun), err)
		}
	})
}

// A reservation grows if there is room, or if it grows by at least as much as all reservations
// hold. GrowTo with must always counts. A released reservation no longer grows.
func TestReservation(t *testing.T) {
	b := &Budget{Bytes: 100}
	used := func(count int, bytes int64) {
		t.Helper()
		if c, n := b.Used(); c != count || n != bytes {
			t.Fatalf("%d requests hold %d bytes, want %d and %d", c, n, count, bytes)
		}
	}
	small, other := acquire(t, b, 10, nil), acquire(t, b, 20, nil)
	for _, c := range []struct {
		err  error
		want error
		held int64
	}{
		{small.Grow(60), nil, 90},
		{small.Grow(20), ErrBytes, 90},
		{other.Grow(200), nil, 290},
		{small.GrowTo(70, false), nil, 290},
		{small.GrowTo(71, false), ErrBytes, 290},
		{small.GrowTo(75, true), nil, 295},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%v, want %v", c.err, c.want)
		}
	}
	used(2, 295)
	other.Release()
	used(1, 75)
	small.Release()
	if err := small.Grow(1); !errors.Is(err, context.Canceled) {
		t.Errorf("growing after the release: %v", err)
	}
	if err := small.GrowTo(1000, true); err != nil {
		t.Error(err)
	}
	used(0, 0)
	var none *Reservation
	if none.Grow(1) == nil || none.GrowTo(1, true) != nil {
		t.Error("Grow of a nil reservation succeeds, or GrowTo of it fails")
	}
	none.Release()
}
