package top

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
)

// A chart has a bar for each span of speeds, which shows the highest speed of the span. A small
// speed looks different from 0.
func TestChart(t *testing.T) {
	of := func(r rate) float64 { return r.ops }
	rates := func(list ...float64) (out []rate) {
		for _, v := range list {
			out = append(out, rate{ops: v})
		}
		return out
	}
	for _, tt := range []struct {
		list   []rate
		places int
		want   string
	}{
		{nil, 10, ""},
		{rates(0, 0), 10, "▁▁"},
		{rates(0, 0.01, 50, 100), 10, "▁▂▅█"},
		{rates(1, 9, 0, 0, 3, 18), 3, "▅▁█"},
		{rates(1, 2), 0, ""},
	} {
		if got := chart(tt.list, of, tt.places); got != tt.want {
			t.Errorf("%v in %d: %s, want %s", tt.list, tt.places, got, tt.want)
		}
	}
}

// Speeds are computed from counters. A root that was granted again begins at 0.
func TestSpeeds(t *testing.T) {
	var s speeds
	at := time.Unix(1000, 0)
	state := func(epoch uint64, ops, read int64) *sessionhub.Session {
		return &sessionhub.Session{Status: control.Status{
			Process: control.Process{Ops: ops, Read: read}, Roots: []control.Root{{Name: "a", Epoch: epoch, Ops: ops, BytesRead: read}},
		}}
	}
	for i, step := range []struct {
		state *sessionhub.Session
		want  rate
	}{
		{state(1, 100, 1000), rate{}}, // how long these operations took is not known
		{state(1, 110, 3000), rate{ops: 5, read: 1000}},
		{state(1, 110, 3000), rate{}},
		{state(1, 111, 3001), rate{ops: 0.5, read: 0.5}},
		{state(2, 7, 70), rate{}}, // granted anew
		{state(2, 9, 70), rate{ops: 1}},
	} {
		at = at.Add(2 * time.Second)
		s.count(at, step.state)
		if s.total[i] != step.want || s.roots[step.state.Roots[0].Epoch] != step.want {
			t.Errorf("%+v: %+v and %+v, want %+v", step.state.Roots, s.total, s.roots, step.want)
		}
	}
	// A state that comes soon after the last one, as after an event, adds no point.
	if s.count(at.Add(time.Millisecond), state(2, 1000, 70)); len(s.total) != 6 {
		t.Errorf("%d points", len(s.total))
	}
	for range 2 * keptPoints {
		at = at.Add(time.Second)
		s.count(at, state(2, 1000, 70))
	}
	if len(s.total) != keptPoints || len(s.roots) != 1 {
		t.Errorf("%d points and %d roots are kept", len(s.total), len(s.roots))
	}
}
