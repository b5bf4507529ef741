package live

import (
	"context"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// Ten thousand events in ten seconds, or at once: a subscriber that does not read
// has the last of them, knows how many are missing, and holds no more than that.
func TestEventsAreBounded(t *testing.T) {
	h := &Hub{}
	s := h.Subscribe()
	defer s.Close()
	if u, ok := s.Next(t.Context()); !ok || !u.Empty || !u.Asked {
		t.Fatalf("the first update: %+v, %v", u, ok)
	}
	f := &follower{hub: h, info: control.Info{Name: "s"}}
	for i := range 10_000 {
		f.apply(control.Update{Events: []control.Event{{Kind: "refusal", PID: int32(i)}}})
	}
	h.mu.Lock()
	h.markLocked(func(s *Subscriber) {})
	h.mu.Unlock()
	u, ok := s.Next(t.Context())
	if !ok || len(u.Events) != Backlog || u.Lost != 10_000-Backlog || u.Events[Backlog-1].PID != 9999 || u.Sessions != nil || u.Empty {
		t.Errorf("%d events, %d lost, %v", len(u.Events), u.Lost, ok)
	}
	late := h.Subscribe()
	defer late.Close()
	if u, _ := late.Next(t.Context()); len(u.Events) != Backlog {
		t.Errorf("who comes later begins with %d events", len(u.Events))
	}
}

// Updates do not come faster than Interval, and a closed subscription ends.
func TestNext(t *testing.T) {
	h := &Hub{}
	s := h.Subscribe()
	start := time.Now() // not after the first, or a pause of ours would count for the hub's
	s.Next(t.Context())
	(&follower{hub: h}).apply(control.Update{Events: make([]control.Event, 1)})
	if _, ok := s.Next(t.Context()); !ok || time.Since(start) < Interval {
		t.Errorf("the next came after %v, %v", time.Since(start), ok)
	}
	go s.Close()
	if _, ok := s.Next(t.Context()); ok {
		t.Error("a closed subscription tells something")
	}
	s.Close() // once more is nothing
	o := h.Subscribe()
	defer o.Close()
	o.Next(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := o.Next(ctx); ok {
		t.Error("told after the end")
	}
	if len(h.subs) != 1 {
		t.Errorf("%d subscriptions are kept", len(h.subs))
	}
}

// Of very many roots the first are passed on, and how many there are more.
func TestManyRoots(t *testing.T) {
	st := control.Status{Roots: make([]control.Root, MaxRoots+5)}
	if s := stateOf(st); len(s.Roots) != MaxRoots || s.MoreRoots != 5 {
		t.Errorf("%d roots, %d more", len(s.Roots), s.MoreRoots)
	}
}
