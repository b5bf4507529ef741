package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/consent"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A watcher that asks for states first gets the state and the waiting questions, then new questions
// and events. It gets the state again when a root is revoked.
func TestWatch(t *testing.T) {
	s, _ := start(t, "a", "b")
	updates := make(chan control.Update)
	watched := make(chan error, 1)
	stop := errors.New("enough")
	go func() {
		watched <- s.Stream(t.Context(), control.StreamRequest{State: true}, func(u control.Update) error {
			updates <- u
			if len(u.Events) > 0 && u.Status != nil && len(u.Status.Roots) == 1 {
				return stop
			}
			return nil
		})
	}()
	first := <-updates
	if first.Status == nil || len(first.Status.Roots) != 2 || first.Waiting == nil {
		t.Fatalf("the first update: %+v", first)
	}
	askOwner(t, s, "v", "/x")
	for u := range updates {
		if u.Waiting != nil && len(u.Waiting.Questions) == 1 {
			break
		}
	}
	if _, err := s.revoke(t.Context(), control.RevokeRequest{Names: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	for u := range updates {
		if len(u.Events) > 0 && u.Status != nil && len(u.Status.Roots) == 1 {
			break
		}
	}
	if err := <-watched; err != stop {
		t.Errorf("Stream returned %v, want the error of send", err)
	}
}

// Watchers are told when a denial is remembered and when it is lifted.
func TestWatchDenials(t *testing.T) {
	s, _ := start(t)
	updates := updatesOf(t, s)
	denials := func(n int) (list []control.Denial) {
		t.Helper()
		for u := range updates {
			if u.Waiting != nil && len(u.Waiting.Denials) == n {
				return u.Waiting.Denials
			}
		}
		return nil
	}
	denials(0)
	if _, err := s.consent.Answer(t.Context(), control.AnswerRequest{ID: askOwner(t, s, "v", "/x"), Remember: true}); err != nil {
		t.Fatal(err)
	}
	one := denials(1)[0]
	if _, err := s.consent.Forget(t.Context(), control.ForgetRequest{ID: one.ID}); err != nil {
		t.Fatal(err)
	}
	denials(0)
}

// A watcher that is too slow learns with the next event how many events before it are missing.
func TestWatchLosesEvents(t *testing.T) {
	s, _ := start(t)
	updates := updatesOf(t, s)
	<-updates
	const last = 3 * events.Backlog
	for i := range last {
		s.hub.Publish(control.Event{Kind: "x", PID: int32(i + 1)})
	}
	lost, before := 0, int32(0)
	for before < last {
		for _, e := range (<-updates).Events {
			if e.PID != before+int32(e.Lost)+1 {
				t.Fatalf("event %d with %d lost after event %d", e.PID, e.Lost, before)
			}
			lost, before = lost+e.Lost, e.PID
		}
	}
	if lost < events.Backlog { // the watcher gets at most one backlog at the first event, and another one at the end
		t.Errorf("%d lost", lost)
	}
}

// askOwner asks the owner of a session about one directory, and returns the ID of the question,
// which then waits for an answer.
func askOwner(t *testing.T, s *Session, subject guard.Subject, dir string) (id string) {
	t.Helper()
	q := &broker.Question{ID: "q-" + string(subject), Subject: subject, Until: time.Now().Add(time.Hour),
		Items: []broker.Item{{Requested: names.Foreign(dir), Resolved: names.Foreign(dir), Mode: "ro", Rights: guard.ReadOnly}}}
	go func() { _, _ = s.consent.Asker(consent.WayToken).Ask(t.Context(), q) }()
	return awaitQuestion(t, s, nil).ID
}

// updatesOf returns the updates of a session, until the test ends.
func updatesOf(t *testing.T, s *Session) <-chan control.Update {
	updates := make(chan control.Update)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Stream(ctx, control.StreamRequest{}, func(u control.Update) error {
			select {
			case updates <- u:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return updates
}
