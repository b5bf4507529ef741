package session

import (
	"context"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// hub passes events on to whoever listens. A listener that does not keep up
// loses events and is told how many; nobody waits for it.
type hub struct {
	mu     sync.Mutex // guards the fields below
	subs   map[*subscriber]struct{}
	closed bool
}

type subscriber struct {
	ch   chan control.Event
	lost int
}

// hubBacklog is how many events a listener may be behind.
const hubBacklog = 1024

func (h *hub) subscribe() (<-chan control.Event, func()) {
	s := &subscriber{ch: make(chan control.Event, hubBacklog)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(s.ch)
		return s.ch, func() {}
	}
	if h.subs == nil {
		h.subs = map[*subscriber]struct{}{}
	}
	h.subs[s] = struct{}{}
	return s.ch, func() { h.drop(s) }
}

func (h *hub) drop(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.subs[s]; ok {
		delete(h.subs, s)
		close(s.ch)
	}
}

func (h *hub) publish(e control.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		e.Lost = s.lost
		select {
		case s.ch <- e:
			s.lost = 0
		default:
			s.lost++
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for s := range h.subs {
		close(s.ch)
	}
	h.subs = nil
}

// Watch implements control.Service. Events that come while an update is made are told
// together by the next one.
func (s *Session) Watch(ctx context.Context, req control.WatchRequest, send func(control.Update) error) error {
	events, cancel := s.hub.subscribe()
	defer cancel()
	var every <-chan time.Time
	if req.State {
		tick := time.NewTicker(control.StateEvery)
		defer tick.Stop()
		every = tick.C
	}
	var asked, lifted <-chan struct{}
	u, state, waiting := control.Update{}, true, true
	for {
		if state {
			st := s.state()
			u.Status = &st
		}
		if waiting {
			u.Waiting = &control.Waiting{}
			u.Waiting.Questions, asked = s.waitingQuestions()
			u.Waiting.Denials, lifted = s.denials.list()
		}
		if err := send(u); err != nil {
			return err
		}
		u, state, waiting = control.Update{}, false, false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-events:
			if !ok {
				return nil
			}
			u.Events = moreEvents(events, e)
			state = req.State && changesState(u.Events)
		case <-asked:
			waiting = true
		case <-lifted:
			waiting = true
		case <-every:
			state = true
		}
	}
}

// moreEvents are an event and those that have come since, not more than hubBacklog.
func moreEvents(events <-chan control.Event, first control.Event) []control.Event {
	list := []control.Event{first}
	for len(list) < hubBacklog {
		select {
		case e, ok := <-events:
			if !ok {
				return list
			}
			list = append(list, e)
		default:
			return list
		}
	}
	return list
}

// changesState reports whether the roots may be others after these events.
func changesState(list []control.Event) bool {
	for i := range list {
		if list[i].Kind != string(guard.EventRefusal) && list[i].Kind != eventFailure {
			return true
		}
	}
	return false
}

// Subscribe returns a channel of events, which is closed when the session ends or cancel
// is called.
func (s *Session) Subscribe() (<-chan control.Event, func()) { return s.hub.subscribe() }

// eventFailure is the kind of an event that tells of an operation that failed.
const eventFailure = "failure"

// observe is told of everything that happens in the registry. It runs in the
// middle of operations, so it does not wait for anything.
func (s *Session) observe(e guard.Event) {
	out := control.Event{Time: e.Time, Kind: string(e.Kind), Root: string(e.Root), Detail: e.Detail}
	if rec := e.Record; rec != nil {
		out.Op, out.Path, out.Reason = rec.Op.String(), names.Escape(rec.Path.String()), rec.Kind.String()
		out.UID, out.PID = rec.UID, rec.PID
		if rec.Detail != "" {
			out.Detail = rec.Detail
		}
		s.noteRefusal(rec)
		if rec.Verdict == guard.Failed {
			out.Kind = eventFailure
		}
	}
	s.hub.publish(out)
	if s.opt.Observe != nil {
		s.opt.Observe(e)
	}
	if e.Kind == guard.EventAdded && s.avail != nil {
		s.avail.update() // of a consent, too; s.avail is there before anything but Start grants
	}
	switch e.Kind {
	case guard.EventUnavailable:
		s.log.Warn("a root has become unavailable: its directory is gone, was replaced or cannot be read",
			"root", e.Root, "remedy", "put it back or make it again, then: rootsfs roots renew NAME")
	case guard.EventAbuse, guard.EventSuspended, guard.EventResumed:
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
