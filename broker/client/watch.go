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

// Limits of what waits for a slow reader; beyond them changes become one
// overflow event, which says "look again".
const (
	maxQueued = 1024
	maxEarly  = 256
)

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
	over    bool // no event will follow
	changed chan struct{}
}

func newWatch(path string, recursive bool) *watch {
	return &watch{path: strings.Trim(path, "/"), recursive: recursive, changed: make(chan struct{}, 1)}
}

// Watch tells changes of a file or directory until ctx ends, the session ends or
// an event says Ended; then the channel is closed, and in the first case the
// client is told. Over HTTP give it a context that outlives the handler's and
// descends from it (context.WithoutCancel), because the events are meant for
// after the request. A client that names no watch in its notifications is
// understood only where it spells paths as name does.
func (f *Files) Watch(ctx context.Context, name string, o WatchOptions) (<-chan Event, error) {
	if err := f.check(name); err != nil {
		return nil, refusedHere(names.OpWatch, err)
	}
	w := newWatch(name, o.Recursive)
	f.c.asks(1)
	answer, err := f.request(ctx, wire.Watch, name, wire.WatchParams{Path: name, Recursive: o.Recursive, Events: o.Events},
		func(raw json.RawMessage) { f.c.watching(w, raw) })
	answer.release()
	f.c.asks(-1)
	if err != nil {
		return nil, err
	}
	if w.id == "" {
		return nil, broken(wire.Watch, name, "the client's result has no watchId")
	}
	out := make(chan Event)
	go f.pump(ctx, w, out)
	return out, nil
}

// pump hands the queue to the user.
func (f *Files) pump(ctx context.Context, w *watch, out chan<- Event) {
	defer close(out)
	for {
		ev, ok, over := w.next()
		switch {
		case ok:
			select {
			case out <- ev:
				if ev.Ended {
					f.c.unwatch(w)
					return
				}
			case <-ctx.Done():
				f.stop(ctx, w)
				return
			}
		case over:
			f.c.unwatch(w)
			return
		default:
			select {
			case <-w.changed:
			case <-ctx.Done():
				f.stop(ctx, w)
				return
			}
		}
	}
}

// stop ends the watch at the client, whose answer does not matter.
func (f *Files) stop(ctx context.Context, w *watch) {
	f.c.unwatch(w)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyTimeout)
	defer cancel()
	answer, _ := f.c.call(ctx, wire.Unwatch, wire.UnwatchParams{WatchID: w.id}, nil)
	answer.release()
}

func (w *watch) next() (ev Event, ok, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return Event{}, false, w.over
	}
	ev, w.queue = w.queue[0], w.queue[1:]
	return ev, true, false
}

func (w *watch) put(p wire.ChangedParams) {
	ev := Event{Path: p.Path, Event: p.Event, Time: parseTime(p.Timestamp), MoveID: p.MoveID, Overflow: p.Overflow, Ended: p.Ended}
	w.mu.Lock()
	switch {
	case len(w.queue) < maxQueued:
		w.queue = append(w.queue, ev)
	case ev.Ended:
		w.queue = append(w.queue, ev)
	default:
		last := &w.queue[len(w.queue)-1]
		*last = Event{Path: w.path, Event: wire.EventModified, Time: ev.Time, Overflow: true}
	}
	w.mu.Unlock()
	w.wake()
}

func (w *watch) end() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.wake()
}

func (w *watch) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// matches is for a client that names no watch in its notifications.
func (w *watch) matches(path string) bool {
	path = strings.Trim(path, "/")
	if path == w.path {
		return true
	}
	rest, ok := strings.CutPrefix(path, w.path+"/")
	return ok && (w.recursive || !strings.Contains(rest, "/"))
}

func (c *conn) asks(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking += n; c.asking == 0 {
		c.early = nil
	}
}

// watching makes the watch known, in the reading goroutine, so that no event
// after the reply is missed. Events that came before it are delivered now.
func (c *conn) watching(w *watch, raw json.RawMessage) {
	var r wire.WatchResult
	if json.Unmarshal(raw, &r) != nil || r.WatchID == "" {
		return
	}
	w.id = r.WatchID
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		w.end()
		return
	}
	c.watch[w.id] = w
	early := c.early
	c.mu.Unlock()
	for _, p := range early {
		if p.WatchID == w.id {
			w.put(p)
		}
	}
}

func (c *conn) unwatch(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch[w.id] == w {
		delete(c.watch, w.id)
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
	var to []*watch
	if p.WatchID != "" {
		if w := c.watch[p.WatchID]; w != nil {
			to = append(to, w)
		} else if c.asking > 0 && len(c.early) < maxEarly {
			c.early = append(c.early, p)
		}
	} else {
		for _, w := range c.watch {
			if w.matches(p.Path) {
				to = append(to, w)
			}
		}
	}
	c.mu.Unlock()
	for _, w := range to {
		w.put(p)
	}
}
