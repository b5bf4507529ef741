package session

import (
	"context"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/events"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Stream implements control.Service. Events that come while an update is made are sent together
// in the next one.
func (s *Session) Stream(ctx context.Context, req control.StreamRequest, send func(control.Update) error) error {
	sub := s.hub.Subscribe(events.News{})
	defer sub.Close()
	var every <-chan time.Time
	if req.State {
		tick := time.NewTicker(control.StateEvery)
		defer tick.Stop()
		every = tick.C
	}
	var questionsChanged <-chan struct{}
	u, state, waiting := control.Update{}, true, true
	for {
		if state {
			st := s.state()
			u.Status = &st
		}
		if waiting {
			u.Waiting = &control.Waiting{}
			u.Waiting.Questions, questionsChanged = s.consent.Waiting()
			u.Waiting.Denials = s.consent.Denials()
		}
		if err := send(u); err != nil {
			return err
		}
		u, state, waiting = control.Update{}, false, false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-sub.Ready():
			news, ok := sub.Drain()
			if !ok {
				return nil
			}
			if u.Events = news.Events; news.Lost > 0 {
				u.Events[0].Lost = news.Lost
			}
			waiting = news.Changed&events.Waiting != 0
			state = req.State && changesState(u.Events)
		case <-questionsChanged:
			waiting = true
		case <-every:
			state = true
		}
	}
}

// changesState reports whether these events may have changed the roots.
func changesState(list []control.Event) bool {
	for i := range list {
		if list[i].Kind != string(guard.EventRefusal) && list[i].Kind != eventFailure {
			return true
		}
	}
	return false
}

// Subscribe returns a subscriber to the session's events, which ends with the session.
func (s *Session) Subscribe() *events.Subscriber { return s.hub.Subscribe(events.News{}) }

// eventFailure is the kind of an event about a failed operation.
const eventFailure = "failure"

// observe gets every event of the registry. It runs in the middle of operations, so it must not
// wait.
func (s *Session) observe(e guard.Event) {
	out := control.Event{Time: e.Time, Kind: string(e.Kind), Root: names.Foreign(e.Root), Detail: names.Foreign(e.Detail)}
	if rec := e.Record; rec != nil {
		out.Op, out.Path, out.Reason = rec.Op.String(), names.Text(names.Escape(rec.Path.String())), rec.Kind.String()
		out.UID, out.PID = rec.UID, rec.PID
		if rec.Detail != "" {
			out.Detail = names.Foreign(rec.Detail)
		}
		s.refusals.noteRefusal(s.reg, rec)
		if rec.Verdict == guard.Failed {
			out.Kind = eventFailure
		}
	}
	s.hub.Publish(out)
	if s.opt.Observe != nil {
		s.opt.Observe(e)
	}
	if e.Kind == guard.EventAdded && s.avail != nil {
		s.avail.Update() // for grants by consent, too; only Start grants while s.avail is nil
	}
	switch e.Kind {
	case guard.EventUnavailable:
		s.log.Warn("a root has become unavailable: its directory is gone, was replaced or cannot be read",
			"root", e.Root, "remedy", "put it back or make it again, then: rootsfs roots renew NAME")
	case guard.EventPaused:
		s.log.Warn("paused: everything is refused", "detail", e.Detail, "see", "rootsfs status; rootsfs resume")
	case guard.EventResumed:
		s.log.Info("resumed", "detail", e.Detail)
	case guard.EventAbuse, guard.EventSuspended:
		s.log.Warn("a server was refused too often: "+string(e.Kind), "detail", e.Detail, "see", "rootsfs status; rootsfs resume")
	case guard.EventRepository:
		s.log.Warn("a repository was created in a root", "root", e.Root, "detail", e.Detail)
	case guard.EventUnrecorded:
		s.log.Warn("a file was closed, and the audit log could not take the record of that; make room on the disk of the audit files",
			"detail", e.Detail, "see", "rootsfs audit verify")
	case guard.EventExpired, guard.EventRevoked, guard.EventAdded, guard.EventChanged:
		s.log.Info("root "+string(e.Kind), "root", e.Root, "detail", e.Detail)
	case guard.EventRefusal:
		s.log.Debug("refused", "op", out.Op, "path", out.Path, "reason", out.Reason, "pid", out.PID)
	}
}
