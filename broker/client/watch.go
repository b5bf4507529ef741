package client

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// maxQueued is how many events wait for a slow reader, and how many for a watch whose reply
// has not been read. Further changes become one overflow event, which says "look again".
const maxQueued = 1024

// WatchOptions chooses what Watch tells; the zero value: all changes of the
// directory itself.
type WatchOptions struct {
	Recursive bool
	Events    []string // wire.EventModified, EventCreated, EventDeleted; none: all
}

// Event is one change.
type Event struct {
	Path     string
	Event    string // wire.EventModified, EventCreated or EventDeleted
	Time     time.Time
	MoveID   string // shared by the two halves of a rename
	Overflow bool   // changes were lost: list Path again
	Ended    bool   // the last event: the root was revoked or the directory is gone
}

// watch is one watch of a session. Its queue lets the reading goroutine go on
// while the user is slow.
type watch struct {
	path      string
	recursive bool
	id        string

	mu      sync.Mutex // guards the fields below
	queue   []Event
	ended   bool // no event will follow
	changed chan struct{}
}

// Watch tells changes of a file or directory until ctx ends, the session ends or
// an event says Ended; then the channel is closed, and in the first case the
// client is told. Over HTTP give it a context that outlives the handler's and
// descends from it (context.WithoutCancel), because the events are meant for
// after the request. A client that names no watch in its notifications is
// understood only where it spells paths as name does.
func (f *Files) Watch(ctx context.Context, name string, o WatchOptions) (<-chan Event, error) {
	p := wire.WatchParams{Path: name, Recursive: o.Recursive, Events: o.Events}
	f.c.expectWatch(1)
	defer f.c.expectWatch(-1)
	r, err := do[wire.WatchResult](ctx, f, request{method: wire.Watch, path: name, params: p})
	if err != nil {
		return nil, err
	}
	if r.WatchID == "" {
		return nil, fault(wire.Watch, name, names.IO, "the client's result has no watchId")
	}
	w := &watch{path: strings.Trim(name, "/"), recursive: o.Recursive, id: r.WatchID, changed: make(chan struct{}, 1)}
	f.c.addWatch(w)
	out := make(chan Event)
	go f.deliver(ctx, w, out)
	return out, nil
}

// deliver passes the events of w to the user, and ends w when ctx does.
func (f *Files) deliver(ctx context.Context, w *watch, out chan<- Event) {
	defer close(out)
	for {
		ev, ok := w.next(ctx)
		if !ok {
			break
		}
		select {
		case out <- ev:
			if ev.Ended {
				f.c.removeWatch(w)
				return
			}
		case <-ctx.Done():
		}
	}
	f.c.removeWatch(w)
	if ctx.Err() == nil {
		return // the session has ended
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyTimeout)
	defer cancel()
	answer, _ := f.c.call(ctx, wire.Unwatch, wire.UnwatchParams{WatchID: w.id}) // the client's answer does not matter
	answer.release()
}

// next waits for an event. It reports false when ctx or the session has ended.
func (w *watch) next(ctx context.Context) (Event, bool) {
	for ctx.Err() == nil {
		w.mu.Lock()
		queue, ended := w.queue, w.ended
		if len(queue) > 0 {
			w.queue = queue[1:]
		}
		w.mu.Unlock()
		if len(queue) > 0 {
			return queue[0], true
		}
		if ended {
			break
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
		}
	}
	return Event{}, false
}

// put queues a change; when the queue is full, the last event becomes an overflow event.
func (w *watch) put(p wire.ChangedParams) {
	ev := Event{Path: p.Path, Event: p.Event, Time: parseTime(p.Timestamp), MoveID: p.MoveID, Overflow: p.Overflow, Ended: p.Ended}
	w.mu.Lock()
	if len(w.queue) < maxQueued || ev.Ended {
		w.queue = append(w.queue, ev)
	} else {
		w.queue[len(w.queue)-1] = Event{Path: w.path, Event: wire.EventModified, Time: ev.Time, Overflow: true}
	}
	w.mu.Unlock()
	w.wake()
}

// end lets next report false once the queue is empty.
func (w *watch) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.wake()
}

func (w *watch) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// matches reports whether a change is one of w's. A client that names no watch in its
// notifications is understood by the path.
func (w *watch) matches(p wire.ChangedParams) bool {
	if p.WatchID != "" {
		return p.WatchID == w.id
	}
	path := strings.Trim(p.Path, "/")
	if path == w.path {
		return true
	}
	rest, ok := strings.CutPrefix(path, w.path+"/")
	return ok && (w.recursive || !strings.Contains(rest, "/"))
}

// expectWatch counts the files/watch requests in flight. While there are any, addWatch may
// find the changes that came before it.
func (c *conn) expectWatch(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expected += n; c.expected == 0 {
		c.early, c.earlyLost = nil, false
	}
}

// addWatch makes a watch known. Changes that came before are delivered now.
func (c *conn) addWatch(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.early {
		if w.matches(p) {
			w.put(p)
		}
	}
	if c.earlyLost {
		w.put(wire.ChangedParams{Path: w.path, Event: wire.EventModified, Overflow: true})
	}
	if c.ended != nil {
		w.end()
		return
	}
	c.watches[w.id] = w
}

func (c *conn) removeWatch(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches[w.id] == w {
		delete(c.watches, w.id)
	}
}

// changed delivers notifications/files/changed. One that is malformed is
// dropped: a notification has no answer.
func (c *conn) changed(params json.RawMessage) {
	var p wire.ChangedParams
	if json.Unmarshal(params, &p) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.watches[p.WatchID]; w != nil {
		w.put(p)
		return
	}
	if p.WatchID == "" {
		for _, w := range c.watches {
			if w.matches(p) {
				w.put(p)
			}
		}
	}
	switch {
	case c.expected == 0:
	case len(c.early) < maxQueued:
		c.early = append(c.early, p)
	default:
		c.earlyLost = true
	}
}
