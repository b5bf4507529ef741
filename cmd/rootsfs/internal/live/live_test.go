package live

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
)

// Ten thousand events in ten seconds, or at once: a subscriber that does not read
// has the last of them, knows how many are missing, and holds no more than that.
func TestEventsAreBounded(t *testing.T) {
	h := &Hub{}
	s := h.Subscribe()
	defer s.Close()
	if u, ok := h.Next(t.Context(), s); !ok || !u.Empty || !u.Asked {
		t.Fatalf("the first update: %+v, %v", u, ok)
	}
	f := &follower{hub: h, info: control.Info{Name: "s"}}
	for i := range 10_000 {
		f.apply(control.Update{Events: []control.Event{{Kind: "refusal", PID: int32(i)}}})
	}
	u, ok := h.Next(t.Context(), s)
	if !ok || len(u.Events) != events.Backlog || u.Lost != 10_000-events.Backlog || u.Events[events.Backlog-1].PID != 9999 || u.Sessions != nil || u.Empty {
		t.Errorf("%d events, %d lost, %v", len(u.Events), u.Lost, ok)
	}
	late := h.Subscribe()
	defer late.Close()
	if u, _ := h.Next(t.Context(), late); len(u.Events) != Past || u.Events[0].Session != "s" {
		t.Errorf("who comes later begins with %d events", len(u.Events))
	}
}

// Updates do not come faster than Interval.
func TestNext(t *testing.T) {
	h := &Hub{}
	s := h.Subscribe()
	defer s.Close()
	start := time.Now() // not after the first, or a pause of ours would count for the hub's
	h.Next(t.Context(), s)
	(&follower{hub: h}).apply(control.Update{Events: make([]control.Event, 1)})
	if _, ok := h.Next(t.Context(), s); !ok || time.Since(start) < Interval {
		t.Errorf("the next came after %v, %v", time.Since(start), ok)
	}
}

// Of very many roots the first are passed on, and how many there are more.
func TestManyRoots(t *testing.T) {
	st := control.Status{Roots: make([]control.Root, MaxRoots+5)}
	if s := stateOf(st); len(s.Roots) != MaxRoots || s.MoreRoots != 5 {
		t.Errorf("%d roots, %d more", len(s.Roots), s.MoreRoots)
	}
}
