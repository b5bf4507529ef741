package watch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// A watch has two queues. One has the names that inotify, or the stage of a root, has reported;
// the goroutines that deliver these reports fill it. The other has the events that the receiver
// has not received yet.

const (
	// maxPending bounds the names that a watch keeps while its receiver is busy.
	maxPending = 4096
	// manyPending is the number of names at which the watch inspects them immediately, and does
	// not wait for the end of the coalescing time.
	manyPending = 1024
	// manyEvents is the number of events at which the watch reports them before the coalescing time
	// has passed.
	manyEvents = 2048
)

// place is a name in a watched directory; the name "" is the directory itself.
type place struct {
	dir  *watchedDir
	name string
}

// pendingName collects the events of inotify about a place since the watch last inspected the
// place. A name that changes often is one pendingName.
type pendingName struct {
	place
	time    time.Time // of the latest event, UTC
	changed bool      // the contents or attributes
	removed bool      // at some time; the name may exist again
	// The cookies of the rename that took away the first file of the name, and of the rename
	// that brought the present one; 0 if there was no such rename.
	oldCookie, newCookie uint32
}

// add adds an event, the latest of the place.
func (p *pendingName) add(ev *SourceEvent) {
	p.time = time.Now().UTC()
	p.changed = p.changed || ev.Changed
	switch {
	case ev.Created:
		p.newCookie = ev.Cookie
	case ev.Deleted:
		if !p.removed {
			p.oldCookie = ev.Cookie
		}
		p.removed, p.newCookie = true, 0
	}
}

// queue has the names that a watch has not inspected yet. Watch.mu guards it.
type queue struct {
	names []pendingName // in the order of their first events
	index map[place]int
	// urgent: the names must be inspected before the coalescing time has passed, because a new
	// directory has to be watched soon, or too many names wait.
	urgent bool
	// halfRename: the latest event is the first half of a rename, so the second half may be on
	// its way.
	halfRename bool
	overflowed bool // events were lost: everything has to be inspected
}

// add reports false if the queue is full.
func (q *queue) add(at place, ev *SourceEvent) bool {
	i, ok := q.index[at]
	if !ok {
		if len(q.names) >= maxPending {
			return false
		}
		if q.index == nil {
			q.index = map[place]int{}
		}
		i = len(q.names)
		q.names = append(q.names, pendingName{place: at})
		q.index[at] = i
	}
	q.names[i].add(ev)
	return true
}

// enqueue adds the name of an event to the queue.
func (w *Watch) enqueue(ev *SourceEvent) {
	d := ev.Dir.(*watchedDir)
	switch {
	case ev.Name == "" && d.parent != nil:
		return // the directory above reports the change by name
	case ev.Name != "" && d.only != "" && ev.Name != d.only:
		return
	case strings.HasPrefix(ev.Name, beneath.TempPrefix):
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &w.queue
	if q.overflowed {
		return
	}
	q.halfRename = ev.Deleted && ev.Moved
	if !q.add(place{d, ev.Name}, ev) {
		*q = queue{overflowed: true}
	}
	q.urgent = q.urgent || ev.Created && ev.IsDir && w.o.Recursive || len(q.names) >= manyPending
	w.poke()
}

// overflow makes the watch inspect everything, because events were lost.
func (w *Watch) overflow() {
	w.loseEvents()
	w.poke()
}

func (w *Watch) loseEvents() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue{overflowed: true}
}

// takeWork returns the names to inspect now, or none if they can wait. due reports whether the
// coalescing time has passed. anew means that everything has to be watched again instead. judge
// means that the gathered events must not be reported.
func (w *Watch) takeWork(due bool) (batch []pendingName, anew, judge bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	judge, w.narrowed = w.narrowed, false
	w.judging = append(w.judging, w.waiters...)
	w.waiters = nil
	anew = judge || w.queue.overflowed
	if due || w.queue.urgent || anew {
		batch = w.queue.names
		w.queue = queue{halfRename: w.queue.halfRename}
	}
	return batch, anew, judge
}

func (w *Watch) isHalfRename() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.halfRename
}

// isWaiting reports whether there are names or events that wait to be reported.
func (w *Watch) isWaiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue.names) > 0 || len(w.gathered) > 0 || w.lookAgain
}

// mayReport reports whether the gathered events may be reported: the watch goes on, and its
// root was not narrowed since the last takeWork.
func (w *Watch) mayReport() bool {
	select {
	case <-w.dead:
		return false
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.narrowed && w.ctx.Err() == nil
}

// pendingEvent is an event that is still to be reported.
type pendingEvent struct {
	Event
	cookie uint32 // of the rename that it is a half of, else 0
}

// gather adds an event that is still to be reported. at is the time of the change.
func (w *Watch) gather(kind EventKind, p guard.Path, at time.Time, cookie uint32) {
	w.gathered = append(w.gathered, pendingEvent{Event{Path: p, Kind: kind, Time: at}, cookie})
}

// drain returns the gathered events of the kinds in Options.Events, and forgets all gathered
// events. A modification without a MoveID is merged into the latest event of the same path, unless
// that event is a deletion. If lookAgain is set, the last event is one with Overflow.
func (w *Watch) drain() []Event {
	halves := map[uint32]EventKind{}
	for i := range w.gathered {
		halves[w.gathered[i].cookie] |= w.gathered[i].Kind
	}
	var out []Event
	latest := map[guard.Path]int{} // of out
	for _, g := range w.gathered {
		if k := halves[g.cookie]; g.cookie != 0 && k&Deleted != 0 && k != Deleted {
			g.MoveID = w.moveID(g.cookie)
		}
		i, ok := latest[g.Path]
		if ok && g.Kind == Modified && g.MoveID == "" && out[i].Kind != Deleted {
			out[i].Time = g.Time
			continue
		}
		latest[g.Path] = len(out)
		out = append(out, g.Event)
	}
	out = slices.DeleteFunc(out, func(e Event) bool { return e.Kind&w.o.Events == 0 })
	if w.lookAgain {
		out = append(out, Event{Path: w.path, Kind: Modified, Time: time.Now().UTC(), Overflow: true})
	}
	w.gathered, w.lookAgain = nil, false
	return out
}

// moveID returns the Event.MoveID for a cookie. It hides the cookie, which is the kernel's counter
// of renames and would reveal the number of renames elsewhere. The ids differ between subjects.
func (w *Watch) moveID(cookie uint32) string {
	mac := hmac.New(sha256.New, w.h.key[:])
	mac.Write([]byte(w.c.Subject))
	_ = binary.Write(mac, binary.LittleEndian, cookie)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:15])
}
