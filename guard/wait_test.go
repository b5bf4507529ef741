package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A program that is killed again and again while a source hangs leaves parts of operations
// behind. The number of parts that hold a thread is bounded. A part that waits for a place stops
// waiting at its time limit, or when its caller is gone.
func TestRunningIsBounded(t *testing.T) {
	s := newSetup(t, nil)
	s.grant(t, "r", "/r", guard.Policy{Rights: guard.ReadWrite, Limits: guard.Limits{Timeout: 20 * time.Millisecond}})
	admit := func() *guard.Lease {
		l, err := s.Admit(context.Background(), req(t, names.OpLookup))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Done(0, nil) })
		return l
	}
	var stop func()
	for range guard.MaxRunning {
		one, err := admit().Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		stop = one
	}
	l := admit()
	if _, err := l.Run(context.Background()); names.Reason(err) != names.Timeout {
		t.Errorf("one more than the limit: %v", err)
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Run(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("with a caller that is gone: %v", err)
	}
	if _, err := l.Run(guard.InsideOperation(context.Background())); err != nil {
		t.Errorf("part of an operation that runs: %v", err)
	}
	stop()
	if _, err := l.Run(context.Background()); err != nil {
		t.Errorf("after a place came free: %v", err)
	}
}
