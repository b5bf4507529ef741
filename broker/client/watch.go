package client

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// maxQueued is how many events of a watch wait for a slow reader, and how many changes a connection
// keeps for watches whose replies have not been read. Further changes become one overflow event,
// which says "look again".
const maxQueued = 1024

// WatchOptions chooses the changes that Watch reports. The zero value reports all changes of the
// watched file, or of the watched directory and the names in it.
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

// watch is one watch of a session. The connection's mu guards the sends on events and the closing
// of events.
type watch struct {
	path      string
	recursive bool
	id        string
	events    chan Event // has room for maxQueued changes, an overflow event and an Ended event
	// overflowed is set if the last event that put added is put's own overflow event.
	overflowed bool
	stop       func() bool // removes the function that ends the watch when ctx ends
}

// Watch reports changes of a file or directory until ctx ends, the session ends, an event says
// Ended, or the client gives the watch's id to another watch. Then the channel is closed; if ctx
// ended, the client is told to stop.
// Over HTTP, ctx must descend from the handler's context and outlive it (context.WithoutCancel),
// because events come after the request. If a client names no watch in its notifications, Watch
// reports only changes whose paths are spelt with name: name itself and paths below name.
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
	w := &watch{path: strings.Trim(name, "/"), recursive: o.Recursive, id: r.WatchID, events: make(chan Event, maxQueued+2)}
	f.c.addWatch(ctx, w)
	return w.events, nil
}

// put adds a change to the events. If there is no room, put adds an overflow event instead,
// which also stands for the changes that come before the reader has read everything.
func (w *watch) put(p wire.ChangedParams) {
	ev := Event{Path: p.Path, Event: p.Event, Time: parseTime(p.Timestamp), MoveID: p.MoveID, Overflow: p.Overflow, Ended: p.Ended}
	if w.overflowed && len(w.events) > 0 && !ev.Ended {
		return
	}
	if w.overflowed = len(w.events) >= maxQueued && !ev.Ended; w.overflowed {
		ev = Event{Path: w.path, Event: wire.EventModified, Time: ev.Time, Overflow: true}
	}
	w.events <- ev
}

// matches reports whether a change belongs to w. If the client names no watch in the
// notification, the path decides.
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

// expectWatch adds n to the number of files/watch requests in flight. While there are any,
// handleChanged keeps the changes of unknown watches for addWatch.
func (c *conn) expectWatch(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expected += n; c.expected == 0 {
		c.early, c.earlyLost = nil, false
	}
}

// addWatch registers a watch until ctx ends, and delivers the watch's changes that came earlier.
func (c *conn) addWatch(ctx context.Context, w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if same := c.watches[w.id]; same != nil {
		c.endLocked(same) // the client has reused the id
	}
	c.watches[w.id] = w
	w.stop = context.AfterFunc(ctx, func() { c.unwatch(context.WithoutCancel(ctx), w) })
	for _, p := range c.early {
		if w.matches(p) {
			c.deliverLocked(w, p)
		}
	}
	if c.earlyLost {
		c.deliverLocked(w, wire.ChangedParams{Path: w.path, Event: wire.EventModified, Overflow: true})
	}
	if c.endErr != nil {
		c.endLocked(w)
	}
}

// deliverLocked hands a change to a watch that has not ended.
func (c *conn) deliverLocked(w *watch, p wire.ChangedParams) {
	if c.watches[w.id] == w {
		w.put(p)
	}
	if p.Ended {
		c.endLocked(w)
	}
}

// endLocked closes the events of a watch. It reports false if they were closed already.
func (c *conn) endLocked(w *watch) bool {
	if c.watches[w.id] != w {
		return false
	}
	delete(c.watches, w.id)
	close(w.events)
	w.stop()
	return true
}

// unwatch ends a watch, here and at the client.
func (c *conn) unwatch(ctx context.Context, w *watch) {
	c.mu.Lock()
	ended := c.endLocked(w)
	c.mu.Unlock()
	if !ended {
		return
	}
	for range w.events { //nolint:revive // events that were not read before ctx ended are dropped
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	answer, _ := c.call(ctx, wire.Unwatch, wire.UnwatchParams{WatchID: w.id}) // the client's answer does not matter
	answer.release()
}

// handleChanged delivers notifications/files/changed. It drops a malformed notification,
// because a notification has no answer.
func (c *conn) handleChanged(params json.RawMessage) {
	var p wire.ChangedParams
	if json.Unmarshal(params, &p) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.watches[p.WatchID]; w != nil {
		c.deliverLocked(w, p)
		return
	}
	if p.WatchID == "" {
		for _, w := range c.watches {
			if w.matches(p) {
				c.deliverLocked(w, p)
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
