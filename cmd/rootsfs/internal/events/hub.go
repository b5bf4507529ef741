// Package events distributes the events of sessions: a session uses it for the readers of its
// control stream, and package sessionhub for the console and the terminal view.
//
// # Promises
//
// Publishing never waits. A subscriber that does not keep up loses the oldest events, and gets
// their number. It holds at most Backlog events.
//
// # Not promised
//
// Events are not kept for later subscribers.
//
// The exported functions may be called concurrently, but Next by one goroutine at a time.
package events

import (
	"context"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// Backlog is how many events a subscriber may be behind.
const Backlog = 1024

// Change is a part of the publisher's state that subscribers have to read again. Several
// changes count as one.
type Change uint8

// The changes.
const (
	State   Change = 1 << iota // the state of a session
	Waiting                    // the questions and denials
)

// News holds the events and changes that a subscriber has not yet received.
type News struct {
	Events  []control.Event // the oldest first
	Lost    int             // how many events before these were lost
	Changed Change
}

// Hub passes events to its subscribers. The zero Hub is ready to use.
type Hub struct {
	mu       sync.Mutex // guards the fields below, and the news of the subscribers
	subs     map[*Subscriber]struct{}
	isClosed bool
}

// Subscriber gets all events from the moment of its creation.
type Subscriber struct {
	hub  *Hub
	last time.Time // when Next returned last
	// ready holds a token while there is news. It is closed with the subscription.
	ready chan struct{}
	news  News // guarded by hub.mu
}

// Subscribe adds a subscriber, whose news begin with first. For a closed hub, the subscriber is
// closed.
func (h *Hub) Subscribe(first News) *Subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &Subscriber{hub: h, ready: make(chan struct{}, 1)}
	if h.isClosed {
		close(s.ready)
		return s
	}
	if h.subs == nil {
		h.subs = map[*Subscriber]struct{}{}
	}
	h.subs[s] = struct{}{}
	if first.Changed != 0 || len(first.Events) > 0 {
		s.news = first
		s.wakeLocked()
	}
	return s
}

// Publish passes an event to every subscriber.
func (h *Hub) Publish(e control.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		s.news.Lost += e.Lost
		if s.news.Events = append(s.news.Events, e); len(s.news.Events) > Backlog {
			s.news.Events = s.news.Events[1:]
			s.news.Lost++
		}
		s.wakeLocked()
	}
}

// Mark passes changes of state to every subscriber.
func (h *Hub) Mark(c Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		s.news.Changed |= c
		s.wakeLocked()
	}
}

// Close ends all subscriptions. The subscribers still get everything that was published before.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isClosed = true
	for s := range h.subs {
		close(s.ready)
	}
	h.subs = nil
}

// Close ends the subscription. News that were not received are dropped.
func (s *Subscriber) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.news = News{}
	if _, ok := s.hub.subs[s]; ok {
		delete(s.hub.subs, s)
		close(s.ready)
	}
}

func (s *Subscriber) wakeLocked() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Ready returns a channel that has a value while Drain has news to return.
func (s *Subscriber) Ready() <-chan struct{} { return s.ready }

// Drain returns the news. ok is false when the subscription has ended and all news were
// returned.
func (s *Subscriber) Drain() (news News, ok bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	news, s.news = s.news, News{}
	select { // take the token of the returned news
	case <-s.ready:
	default:
	}
	_, isOpen := s.hub.subs[s]
	return news, isOpen || len(news.Events) > 0 || news.Changed != 0
}

// Next waits until there is news and at least minInterval has passed since Next last returned.
// ok is false when ctx has ended, or when the subscription has ended and all news were returned.
func (s *Subscriber) Next(ctx context.Context, minInterval time.Duration) (news News, ok bool) {
	pause := time.NewTimer(time.Until(s.last.Add(minInterval)))
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return News{}, false
	case <-pause.C:
	}
	select {
	case <-ctx.Done():
		return News{}, false
	case <-s.ready:
	}
	s.last = time.Now()
	return s.Drain()
}
