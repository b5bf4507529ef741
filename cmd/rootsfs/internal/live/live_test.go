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
	if u, ok := s.Next(t.Context()); !ok || !u.Empty || !u.Asked || u.History == nil {
		t.Fatalf("the first update: %+v, %v", u, ok)
	}
	for i := range 10_000 {
		h.happened(Event{Session: "s", Event: control.Event{Kind: "refusal", PID: int32(i)}})
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
	s.Next(t.Context())
	h.happened(Event{})
	start := time.Now()
	if _, ok := s.Next(t.Context()); !ok || time.Since(start) < Interval/2 {
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

// Speeds are made of counters; a root that was granted anew begins again, and the
// rings have an end.
func TestFigures(t *testing.T) {
	var f figures
	at := time.Unix(1000, 0)
	root := func(epoch uint64, ops, read int64) control.Status {
		return control.Status{Roots: []control.Root{{Name: "a", Epoch: epoch, Ops: ops, BytesRead: read}}}
	}
	for _, step := range []struct {
		st   control.Status
		want Rate
	}{
		{root(1, 100, 1000), Rate{}}, // how long that took is not known
		{root(1, 110, 3000), Rate{Ops: 5, Read: 1000}},
		{root(1, 110, 3000), Rate{}},
		{root(2, 7, 70), Rate{}}, // granted anew
		{root(2, 9, 70), Rate{Ops: 1}},
	} {
		at = at.Add(2 * time.Second)
		s := f.add(at, step.st)
		if s.Rate != step.want || s.Rates["a"] != step.want {
			t.Errorf("%+v: %+v, want %+v", step.st.Roots, s.Rate, step.want)
		}
	}
	for range 2 * Points {
		at = at.Add(time.Second)
		f.add(at, root(2, 9, 70))
	}
	st := root(2, 9, 70)
	st.Roots = append(st.Roots, control.Root{Name: "late", Epoch: 3})
	f.add(at.Add(time.Second), st)
	h := f.history()
	if len(h.Times) != Points || len(h.Total) != Points || len(h.Rates["a"]) != Points || len(h.Rates["late"]) != Points {
		t.Errorf("%d times, %d, %d, %d", len(h.Times), len(h.Total), len(h.Rates["a"]), len(h.Rates["late"]))
	}
}

// Of very many roots the first are passed on, and how many there are more.
func TestManyRoots(t *testing.T) {
	var f figures
	st := control.Status{Roots: make([]control.Root, MaxRoots+5)}
	for i := range st.Roots {
		st.Roots[i].Epoch, st.Roots[i].Name = uint64(i), string(rune('a'+i))
	}
	if s := f.add(time.Now(), st); len(s.Roots) != MaxRoots || s.MoreRoots != 5 || len(s.Rates) != MaxRoots {
		t.Errorf("%d roots, %d more, %d speeds", len(s.Roots), s.MoreRoots, len(s.Rates))
	}
}
