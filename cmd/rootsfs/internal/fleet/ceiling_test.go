package fleet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
)

// The ceiling of the newest order holds: it is on disk before the sessions are made to keep to it,
// and there is no lease until all of them do. An older order that is repeated changes nothing, and
// neither does an order about something else.
func TestCeilingOfTheNewestOrder(t *testing.T) {
	l := newLab(t)
	p := l.puppet("m1")
	var stuck error
	lowered := 0
	p.agent.lower = func(context.Context) ([]Ended, error) { lowered++; return nil, stuck }
	onDisk := func() (text string) {
		t.Helper()
		var all config.FleetCeilings
		l.must(readJSON(p.dir.ceiling(), &all))
		for _, c := range all.Ceilings {
			text += strings.Repeat("I", int(c.Number)) + " for " + c.For + ": " + c.Text + "; "
		}
		return text
	}
	give := func(machines []string, text string) Outcome {
		t.Helper()
		return l.give(Order{Machines: machines, Ceiling: &text}, 10*time.Second)
	}
	if out := give(nil, "first"); !out.Done() || onDisk() != "I for all: first; " || lowered != 1 {
		t.Errorf("the first: %+v, on disk %q, %d times", out, onDisk(), lowered)
	}
	old := p.known[allMachines]
	give([]string{"m1"}, "own")
	stuck = errors.New("a session does not answer")
	text := "second"
	if out := l.give(Order{Ceiling: &text}, 50*time.Millisecond); out.Done() || onDisk() != "II for all: second; I for m1: own; " {
		t.Errorf("while a session is stuck: %+v, on disk %q", out, onDisk())
	}
	p.takeActions()
	if err := p.ask(); err == nil || !strings.Contains(err.Error(), "a session does not answer") {
		t.Errorf("the machine gets a lease, although a session does not keep to the ceiling: %v", err)
	}
	stuck = nil
	l.must(p.ask())
	l.must(p.receive(context.Background(), allMachines, old.signed))
	if onDisk() != "II for all: second; I for m1: own; " {
		t.Errorf("after the old order was repeated: %q", onDisk())
	}
	before := lowered
	l.give(Order{Lock: "x"}, 10*time.Second)
	if l.give(Order{Unlock: true}, 10*time.Second); lowered != before || onDisk() != "II for all: second; I for m1: own; " {
		t.Errorf("after a lock: %q, and sessions were asked %d times more", onDisk(), lowered-before)
	}
	if give(nil, ""); onDisk() != "I for m1: own; " {
		t.Errorf("after the ceiling for all was removed: %q", onDisk())
	}
	if give(nil, "again"); onDisk() != "IIII for all: again; I for m1: own; " {
		t.Errorf("after another one: %q", onDisk())
	}
	long := strings.Repeat("#", maxCeiling+1)
	if _, err := l.owner.Give(context.Background(), Order{Ceiling: &long}, time.Second); err == nil || !strings.Contains(err.Error(), "more than 12288 bytes") {
		t.Errorf("a ceiling that is too long: %v", err)
	}
}
