// Package watch reports the changes of a registry's roots: to peers, which watch a path under
// the rules of the roots (Hub), and to a mount, which watches directories to keep the kernel's
// caches up to date (SourceWatcher).
//
// # Promises
//
// A peer gets no event about a file that it may not see. It gets no event after its watch, its
// root or the right to watch has ended. Events that are lost are reported as lost. No subject
// can use up the room for watches.
//
// # Not promised
//
// Stores through a mapping, and what other machines do on remote file systems, are not
// reported: inotify does not report them.
//
// inotify is used directly, and not fsnotify: fsnotify watches by path, which would race with links
// in the roots, and does not return the cookies that join both halves of a rename.
package watch

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/shares"
)

// EventKind is the kind of a change of a path. Each kind is one bit, so an EventKind can also
// be a set of kinds.
type EventKind uint8

// The kinds of events.
const (
	Created EventKind = 1 << iota
	Modified
	Deleted
	// allEvents is the set of all kinds.
	allEvents = Created | Modified | Deleted
)

func (k EventKind) String() string {
	switch k {
	case Created:
		return "created"
	case Modified:
		return "modified"
	case Deleted:
		return "deleted"
	}
	return fmt.Sprintf("events(%d)", uint8(k))
}

// Event is one change that a Watch reports.
type Event struct {
	Path guard.Path
	Kind EventKind
	Time time.Time // when it was noticed, UTC
	// MoveID joins the two events of a rename, if the watch notices both of them together: Deleted
	// at the old path, and Created at the new one, or Modified where a file was replaced. Both have
	// the same MoveID, even if Options.Events leaves out one of them. Other events have "". A
	// MoveID reveals nothing else.
	MoveID string
	// Overflow is set on a Modified of the watched path when events were lost: the
	// receiver has to list again. Changes after that are reported as usual. If the watch
	// has become larger than its room, a part of it is not watched, and such an event comes
	// every HubOptions.RetryRoom.
	Overflow bool
	// Ended is set on a watch's last event, a Deleted of the watched path:
	// the path, the root or the right to watch is gone.
	Ended bool
}

// HubOptions bound a Hub.
type HubOptions struct {
	// MaxWatches is how many directories all watches of the hub may watch together. A
	// directory counts once for each watch that it is in, and once more for each further
	// thousand names, after the first thousand, that the watch knows in it. 0 stands for 65,536.
	// The hub also uses no more than a fifth of the user's inotify watches, so that a mount beside
	// it has enough.
	MaxWatches int
	// MaxEach is how many of these directories one subject may watch, in all its sessions
	// together. 0 stands for 8,192. No subject may have more than it leaves free, so that later
	// subjects find room.
	MaxEach int
	// Coalesce is how long changes are gathered before they are reported; 0
	// stands for 50 ms.
	Coalesce time.Duration
	// RetryRoom is how often a watch that has become larger than its room tells its receiver
	// to list again (Event.Overflow), and tries to get more room. 0 stands for 30 s.
	RetryRoom time.Duration
}

const (
	defaultMaxWatches = 65536
	defaultMaxEach    = 8192
	defaultCoalesce   = 50 * time.Millisecond
	defaultRetryRoom  = 30 * time.Second
)

// LimitError says which limit was reached; it is the cause of names.Quota errors.
type LimitError struct {
	What  string
	Limit int64
}

func (e *LimitError) Error() string { return fmt.Sprintf("no more than %d %s", e.Limit, e.What) }

// Hub reports changes in the roots to peers, whether the host, a mount or the tree itself makes
// them. It is a guard.View, which its owner registers with Registry.AddView. When a root ends
// or is narrowed, its watches end or are judged again before Invalidate returns.
//
// inotify reports write(2), truncation, attributes and names. It does not report stores through
// a mapping. On remote file systems (guard.Source.Remote) it reports only changes of this
// machine, so peers have to look for other changes themselves.
type Hub struct {
	reg  *guard.Registry
	o    HubOptions
	seed maphash.Seed
	key  [32]byte // for Event.MoveID
	// room counts the directories that each subject watches; maxRoom is how many all may
	// watch together. The sessions of a subject count as one, or a server could get more
	// room by beginning another session.
	room    shares.Shares[guard.Subject]
	maxRoom int64
	// A remote file system that hangs must not delay watches of local ones.
	local, remote *SourceWatcher

	mu      sync.Mutex // guards the fields below
	watches map[*Watch]struct{}
	closed  bool
}

var _ guard.View = (*Hub)(nil)

// NewHub returns a hub without watches on the roots of a registry. The caller must close
// it. local and remote are the inotify instances for local and remote file systems.
func NewHub(reg *guard.Registry, local, remote *Inotify, o HubOptions) *Hub {
	o.MaxWatches = cmp.Or(o.MaxWatches, defaultMaxWatches)
	o.MaxEach = cmp.Or(o.MaxEach, defaultMaxEach)
	o.Coalesce = cmp.Or(o.Coalesce, defaultCoalesce)
	o.RetryRoom = cmp.Or(o.RetryRoom, defaultRetryRoom)
	h := &Hub{reg: reg, o: o, seed: maphash.MakeSeed(), watches: map[*Watch]struct{}{}}
	h.maxRoom = min(int64(o.MaxWatches), hubRoom(userWatches()))
	_, _ = rand.Read(h.key[:]) // never fails, see crypto/rand
	h.local = local.NewWatcher(reg, h.queueEvent, h.overflowAll)
	h.remote = remote.NewWatcher(reg, h.queueEvent, h.overflowAll)
	return h
}

// Close ends all watches, without an event with Ended, and waits for them.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, w := range h.list(anyWatch) {
		w.Close()
	}
	h.local.Close()
	h.remote.Close()
}

// Counts returns how many watches there are, and how many directories they watch, each counted
// once. In a staged root, the two sides of a directory count separately.
func (h *Hub) Counts() (watches int, dirs int64) {
	local, _ := h.local.Counts()
	remote, _ := h.remote.Counts()
	return len(h.list(anyWatch)), local + remote
}

// source returns the watcher for the root of an operation.
func (h *Hub) source(l *guard.Lease) *SourceWatcher {
	if l.Source().Remote() {
		return h.remote
	}
	return h.local
}

// list returns the watches that match.
func (h *Hub) list(matches func(*Watch) bool) (out []*Watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches {
		if matches(w) {
			out = append(out, w)
		}
	}
	return out
}

func anyWatch(*Watch) bool { return true }

// queueEvent queues an event. It runs in a goroutine that delivers the events of all watches.
func (h *Hub) queueEvent(ev SourceEvent) {
	w := ev.Dir.(*watchedDir).w
	if ev.Stale {
		w.overflow()
		return
	}
	w.enqueue(&ev)
}

// overflowAll makes all watches inspect everything, because events were lost.
func (h *Hub) overflowAll() {
	for _, w := range h.list(anyWatch) {
		w.overflow()
	}
}

// Invalidate implements guard.View. After it has returned, no event is reported from an ended
// root, or of a path that the subject may not see any more. Invalidate waits for receivers
// that are busy with events handed to them before.
func (h *Hub) Invalidate(ctx context.Context, c guard.Change) error {
	var apply func(*Watch) (done <-chan struct{})
	switch c.Kind {
	case guard.ChangeEnded:
		apply = func(w *Watch) <-chan struct{} { return w.endOf(c.Epoch) }
	case guard.ChangeNarrowed, guard.ChangePaused:
		apply = (*Watch).narrow
	default:
		return nil
	}
	pending := map[*Watch]<-chan struct{}{}
	for _, w := range h.list(func(w *Watch) bool { return w.path.Root == c.Root }) {
		if done := apply(w); done != nil {
			pending[w] = done
		}
	}
	var errs []error
	for w, done := range pending {
		select {
		case <-done:
		case <-ctx.Done():
			w.muted.Store(true)
			errs = append(errs, fmt.Errorf("the receiver of the watch on %s hangs: %w", names.Quote(w.path.String()), ctx.Err()))
		}
	}
	return errors.Join(errs...)
}
