package main

import (
	"strings"
	"testing"
)

// patternTurns takes turns with both peers and leaves no files. The turns decide the goal of the
// patterns, which the passes of the workload would miss.
func TestPatternTurns(t *testing.T) {
	needFUSE(t)
	l := newLab(t)
	if err := l.findPrograms(t.Context(), "", "bindfs"); err != nil {
		t.Fatal(err)
	}
	r := &report{Repetitions: 2}
	if err := l.patternTurns(t.Context(), r, l.peers()); err != nil {
		t.Fatal(err)
	}
	if !r.Turns.measured() || len(r.Turns.None) != 2*turnsEach || len(r.Turns.Many) != 2*turnsEach {
		t.Fatalf("took %+v", r.Turns)
	}
	if err := wantTree(l.path("src", scratch), 0, 0); err != nil {
		t.Error(err)
	}
	if text := r.turnsTable(); !strings.Contains(text, "| creates ") {
		t.Error(text)
	}
	if err := l.patternTurns(t.Context(), r, l.peers()[:1]); err != nil {
		t.Errorf("without the peers: %v", err)
	}
	r.Turns = &turns{None: []float64{1, 2, 4}, Many: []float64{1.05, 2, 8}}
	seconds := func(s float64) *cell { return &cell{Seconds: []float64{s}} }
	r.Rows = []*row{{Workload: turnsName, Cells: map[string]*cell{native: seconds(1), noPatterns: seconds(1), manyPatterns: seconds(2)}}}
	if got := judgePatterns(r); len(got) != 1 || got[0].Measured != "1.05" || got[0].Status != met {
		t.Errorf("judged %+v", got)
	}
}
