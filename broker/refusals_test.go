package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R084: each of a server's refused requests is recorded, by itself or in a count. In a flood of
// refused requests, only the first refusalBurst have records of their own.
func TestRefusalsAreSummedUp(t *testing.T) {
	l := newLab(t, nil)
	p := l.connect("me")
	const unknown, malformed = 15_000, 15_000
	p.s.refusals = flowcontrol.NewTally[names.Kind](refusalBurst, 0, time.Second) // as if all came within a moment
	for range unknown {
		p.s.record(&request{method: "files/evil"}, unknownMethod("files/evil"))
	}
	for range malformed {
		p.s.NoteRefusal("a line is no message")
	}
	p.s.Close()
	single, summed := 0, map[string]int{}
	for _, rec := range l.recs.all() {
		if rec.Kind != names.Invalid || rec.Subject != "me" {
			t.Fatalf("%+v", rec)
		}
		n := 0
		if _, err := fmt.Sscanf(rec.Detail, "%d more within a second", &n); err != nil {
			single++
			continue
		}
		_, last, _ := strings.Cut(rec.Detail, "the last: ")
		summed[last] += n
	}
	total := 0
	for _, n := range summed {
		total += n
	}
	if single != refusalBurst || single+total != unknown+malformed {
		t.Errorf("%d records of single refusals and counts %v: want %d and together %d", single, summed, refusalBurst, unknown+malformed)
	}
	if summed["a line is no message"] == 0 {
		t.Errorf("the counts end with %v: want the text of the last refusal", summed)
	}
}
