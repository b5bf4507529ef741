package vfs

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard"
)

// The two queues of a watch: raw events from inotify, bounded, filled by the
// instance's goroutine; and the events to be reported, gathered for a while.

const (
	// maxRaw bounds the raw events a watch keeps while its receiver is busy.
	maxRaw = 4096
	// hurryRaw is how many make the watch look at them before the gathering
	// time is over.
	hurryRaw = 1024
	// hurryOut is how many gathered events are reported without waiting.
	hurryOut = 2048
)

// rawEvent is an event of inotify and when it came.
type rawEvent struct {
	SourceEvent
	dir *hubDir
	at  time.Time
}

// enqueue keeps a raw event, or notes that one was lost.
func (w *Watch) enqueue(ev SourceEvent) {
	d := ev.Dir.(*hubDir)
	switch {
	case ev.Name == "" && !ev.Self && d.parent != nil:
		return // the directory above reports it by name
	case ev.Name != "" && d.only != "" && ev.Name != d.only:
		return
	case strings.HasPrefix(ev.Name, TempPrefix):
		return
	}
	now := time.Now().UTC()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if n := len(w.raw); n > 0 {
		last := &w.raw[n-1]
		if last.SourceEvent == ev && ev.Changed {
			last.at = now
			return
		}
	}
	if len(w.raw) >= maxRaw {
		w.over, w.raw = true, nil
	} else {
		w.raw = append(w.raw, rawEvent{ev, d, now})
	}
	w.urgent = w.urgent || ev.Created && ev.IsDir && w.o.Recursive || len(w.raw) >= hurryRaw
	w.poke()
}

// overflow notes that events were lost.
func (w *Watch) overflow() {
	w.mu.Lock()
	w.over, w.raw = true, nil
	w.mu.Unlock()
	w.poke()
}

// work is what the goroutine has to do.
type work struct {
	raw     []rawEvent
	over    bool
	judge   bool
	acks    []chan struct{}
	waiting bool // there is something that can wait
}

// take returns what is to be done now; due says that the gathering is over.
func (w *Watch) take(due bool) (x work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.over, x.judge, x.acks = w.over, w.judge, w.narrows
	w.over, w.judge, w.narrows = false, false, nil
	if due || w.urgent || x.over || x.judge {
		x.raw, w.raw, w.urgent = w.raw, nil, false
	}
	x.waiting = len(w.raw) > 0
	return x
}

// judgePending reports whether what has been gathered may not be reported.
func (w *Watch) judgePending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.judge || w.ending == endRoot
}

// gathering is the events to be reported.
type gathering struct {
	list []gathered
	last map[string]int  // the latest event of a path that others may merge with
	left map[uint32]bool // renames whose first half is in the list
	over bool
}

type gathered struct {
	Event
	cookie uint32
}

// add gathers one event; the kinds that follow each other on one path merge. tree
// says that what was deleted may have been a directory, whose paths then begin
// anew.
//
// What came by a rename from a name that is not reported is a change like any
// other: atomic writes end so, a hundred of them as one.
func (g *gathering) add(e Event, cookie uint32, tree bool) {
	switch {
	case cookie == 0:
	case e.Kind != Deleted && !g.left[cookie]:
		cookie = 0
	case e.Kind == Deleted && g.left == nil:
		g.left = map[uint32]bool{cookie: true}
	case e.Kind == Deleted:
		g.left[cookie] = true
	}
	key := e.Path.Rel()
	if i, ok := g.last[key]; ok {
		have := &g.list[i]
		switch {
		case e.Kind == have.Kind && cookie == 0,
			e.Kind == Modified && have.Kind == Created && cookie == 0:
			have.Time = e.Time
			return
		}
	}
	if e.Kind == Deleted && tree || g.last == nil {
		g.last = map[string]int{}
	}
	g.last[key] = len(g.list)
	g.list = append(g.list, gathered{e, cookie})
}

func (g *gathering) empty() bool { return len(g.list) == 0 && !g.over }

// halved reports whether the latest event is the first half of a rename, whose
// second half may be on its way.
func (g *gathering) halved() bool {
	n := len(g.list)
	return n > 0 && g.list[n-1].cookie != 0 && g.list[n-1].Kind == Deleted
}

// drain returns what is to be reported, of the kinds wanted, and begins anew.
func (w *Watch) drain() []Event {
	g := &w.out
	halves := map[uint32]EventKind{}
	for i := range g.list {
		if c := g.list[i].cookie; c != 0 {
			halves[c] |= g.list[i].Kind
		}
	}
	var out []Event
	for i := range g.list {
		e := g.list[i]
		if e.Kind&w.o.Events == 0 {
			continue
		}
		if k := halves[e.cookie]; k&Deleted != 0 && k != Deleted {
			e.MoveID = w.moveID(e.cookie)
		}
		out = append(out, e.Event)
	}
	if g.over {
		out = append(out, Event{Path: w.path, Kind: Modified, Time: time.Now().UTC(), Overflow: true})
	}
	*g = gathering{}
	return out
}

// moveID hides the kernel's counter of renames, which tells how much is renamed
// elsewhere, and differs between subjects.
func (w *Watch) moveID(cookie uint32) string {
	mac := hmac.New(sha256.New, w.h.key[:])
	mac.Write([]byte(w.c.Subject))
	_ = binary.Write(mac, binary.LittleEndian, cookie)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:15])
}

// path makes the path of a name in a watched directory; ok is false for names
// that no path can hold.
func (d *hubDir) path(name string) (p guard.Path, ok bool) {
	if d.only != "" {
		return d.w.path, true
	}
	rel := d.rel()
	if rel != "" {
		rel += "/"
	}
	p, err := guard.NewPath(d.w.path.Root, rel+name)
	return p, err == nil
}
