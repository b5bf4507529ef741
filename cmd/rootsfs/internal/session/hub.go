package session

import (
	"sync"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
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
