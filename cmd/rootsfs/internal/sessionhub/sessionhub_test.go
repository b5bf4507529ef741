package sessionhub

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/guard/names"
)

// After ten thousand events, a subscriber that has not read them gets the last events.Backlog
// events and the number of the missing ones. A later subscriber gets the last maxPast events.
func TestEventsAreBounded(t *testing.T) {
	all := &Sessions{}
	s := all.Subscribe()
	defer s.Close()
	if u, ok := all.Next(t.Context(), s); !ok || !u.Empty || !u.QuestionsIncluded {
		t.Fatalf("the first update: %+v, %v", u, ok)
	}
	f := &follower{all: all, info: control.Info{Name: "s"}}
	for i := range 10_000 {
		f.apply(control.Update{Events: []control.Event{{Kind: "refusal", PID: int32(i)}}})
	}
	u, ok := all.Next(t.Context(), s)
	if !ok || len(u.Events) != events.Backlog || u.Lost != 10_000-events.Backlog || u.Events[events.Backlog-1].PID != 9999 || u.Sessions != nil || u.Empty {
		t.Errorf("%d events, %d lost, %v", len(u.Events), u.Lost, ok)
	}
	late := all.Subscribe()
	defer late.Close()
	if u, _ := all.Next(t.Context(), late); len(u.Events) != maxPast || u.Events[0].Session != "s" {
		t.Errorf("a later subscriber begins with %d events", len(u.Events))
	}
}

// Updates do not come faster than interval.
func TestNext(t *testing.T) {
	all := &Sessions{}
	s := all.Subscribe()
	defer s.Close()
	start := time.Now() // taken before the first update: a delay of the test cannot make the time too short
	all.Next(t.Context(), s)
	(&follower{all: all}).apply(control.Update{Events: make([]control.Event, 1)})
	if _, ok := all.Next(t.Context(), s); !ok || time.Since(start) < interval {
		t.Errorf("the next update came after %v, %v", time.Since(start), ok)
	}
}

// If there are very many roots, the first ones are passed on, with the number of the others.
func TestManyRoots(t *testing.T) {
	st := control.Status{Roots: make([]control.Root, maxRoots+5)}
	if s := stateOf(st); len(s.Roots) != maxRoots || s.MoreRoots != 5 {
		t.Errorf("%d roots, %d more", len(s.Roots), s.MoreRoots)
	}
}

// The first field of each event, question and denial is its session. The page and scripts read
// this JSON.
func TestJSON(t *testing.T) {
	all := &Sessions{}
	f := &follower{all: all, info: control.Info{Name: "s"}}
	all.sessions = map[string]*follower{"s": f}
	sub := all.Subscribe()
	defer sub.Close()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	w := &control.Waiting{}
	w.Questions = []control.Question{{Question: broker.Question{Kind: "file", ID: "q", Asked: now, Until: now, Subject: "v", Message: "m"}, Heading: "h", Lines: []names.Text{"l"}}}
	w.Denials = []control.Denial{{ID: "d", Since: now, Subject: "v", Path: "/p"}}
	f.apply(control.Update{Waiting: w, Events: []control.Event{{Time: now, Kind: "refusal", Op: "open", Path: "a", Reason: "Hidden", UID: 1, PID: 2, Lost: 3}}})
	u, _ := all.Next(t.Context(), sub)
	u.At = now
	got, err := json.Marshal(u)
	const want = `{"at":"2030-01-02T03:04:05Z",` +
		`"questions":[{"session":"s","kind":"file","id":"q","asked":"2030-01-02T03:04:05Z","until":"2030-01-02T03:04:05Z","subject":"v","message":"m","items":null,"heading":"h","lines":["l"]}],` +
		`"denials":[{"session":"s","id":"d","since":"2030-01-02T03:04:05Z","subject":"v","path":"/p"}],"asked":true,` +
		`"events":[{"session":"s","time":"2030-01-02T03:04:05Z","kind":"refusal","op":"open","path":"a","reason":"Hidden","uid":1,"pid":2,"lost":3}],"lost":3}`
	if string(got) != want || err != nil {
		t.Errorf("got\n%s\nwant\n%s\n%v", got, want, err)
	}
}
