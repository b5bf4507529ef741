package vfs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// EventKind is what happened to a path; as bits, a set of kinds.
type EventKind uint8

// The kinds of events.
const (
	Created EventKind = 1 << iota
	Modified
	Deleted
	// AllEvents is the set of all.
	AllEvents = Created | Modified | Deleted
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
	// MoveID is the same for the two halves of a rename that are both
	// reported (Deleted at the old path, Created or, where a file was
	// replaced, Modified at the new one), else "". It tells nothing else.
	MoveID string
	// Overflow is set on a Modified of the watched path when events were
	// lost: list again. Everything from then on is reported.
	Overflow bool
	// Ended is set on a watch's last event, a Deleted of the watched path:
	// the path, the root or the right to watch is gone.
	Ended bool
}

// HubOptions bound a Hub.
type HubOptions struct {
	// MaxWatches is how many directories all watches of the hub may watch
	// together; 0 stands for 8,192. The user's inotify watches bound it too.
	MaxWatches int
	// Coalesce is how long changes are gathered before they are reported; 0
	// stands for 50 ms.
	Coalesce time.Duration
}

const (
	defaultMaxWatches = 8192
	defaultCoalesce   = 50 * time.Millisecond
)

// LimitError says which limit was reached; it is the cause of names.Quota errors.
type LimitError struct {
	What  string
	Limit int64
}

func (e *LimitError) Error() string { return fmt.Sprintf("no more than %d %s", e.Limit, e.What) }

// Hub tells peers of changes in the roots, whoever makes them: the host, a mount
// or the tree itself. It is a guard.View, to be registered by its owner with
// Registry.AddView: when a root ends or is narrowed, its watches end or are
// judged anew before the change is answered.
//
// All its watches share one inotify instance, made with the first of them.
// inotify reports write(2), truncation, attributes and names. It does not report
// stores through a mapping, and on remote file systems (guard.Lease.Remote) only
// what is done on this machine: there a peer has to look for itself.
type Hub struct {
	t    *Tree
	o    HubOptions
	seed maphash.Seed
	key  [32]byte // makes MoveIDs

	mu      sync.Mutex // guards the fields below
	src     *SourceWatcher
	watches map[*Watch]struct{}
	closed  bool
}

var _ guard.View = (*Hub)(nil)

// NewHub returns a hub without watches. Close it after use.
func NewHub(t *Tree, o HubOptions) *Hub {
	if o.MaxWatches <= 0 {
		o.MaxWatches = defaultMaxWatches
	}
	if o.Coalesce <= 0 {
		o.Coalesce = defaultCoalesce
	}
	h := &Hub{t: t, o: o, seed: maphash.MakeSeed(), watches: map[*Watch]struct{}{}}
	_, _ = rand.Read(h.key[:]) // never fails, see crypto/rand
	return h
}

// Close ends all watches, without a last event, and waits for them.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	src := h.src
	h.src = nil
	h.mu.Unlock()
	for _, w := range h.list(func(*Watch) bool { return true }) {
		w.Close()
	}
	if src != nil {
		src.Close()
	}
}

// Counts returns how many watches there are, and how many directories they watch.
func (h *Hub) Counts() (watches int, dirs int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.src != nil {
		dirs, _ = h.src.Counts()
	}
	return len(h.watches), dirs
}

func (h *Hub) list(which func(*Watch) bool) (out []*Watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches {
		if which(w) {
			out = append(out, w)
		}
	}
	return out
}

// source returns the inotify instance.
func (h *Hub) source() (*SourceWatcher, error) {
	h.mu.Lock()
	src, closed := h.src, h.closed
	h.mu.Unlock()
	if closed {
		return nil, &guard.Error{Kind: names.Internal, Err: errors.New("the hub is closed")}
	}
	if src != nil {
		return src, nil
	}
	src, err := NewSourceWatcher(h.event, h.lost)
	if errors.Is(err, unix.EMFILE) {
		err = &guard.Error{Kind: names.Quota, Err: errors.New("no inotify instance is left; raise fs.inotify.max_user_instances")}
	}
	if err != nil {
		return nil, err
	}
	src.limit = min(src.limit, int64(h.o.MaxWatches))
	h.mu.Lock()
	spare := src
	if h.src == nil && !h.closed {
		h.src, spare = src, nil
	}
	src = h.src
	h.mu.Unlock()
	if spare != nil {
		spare.Close()
	}
	if src == nil {
		return h.source()
	}
	return src, nil
}

// event is called by the instance's goroutine; it only queues.
func (h *Hub) event(ev SourceEvent) { ev.Dir.(*hubDir).w.enqueue(ev) }

func (h *Hub) lost() {
	for _, w := range h.list(func(*Watch) bool { return true }) {
		w.overflow()
	}
}

// Invalidate implements guard.View. After it has returned, nothing of an ended
// root, nor of what was fenced off, is reported any more. It waits for receivers
// that are busy with events handed to them before.
func (h *Hub) Invalidate(ctx context.Context, c guard.Change) error {
	var wait func(*Watch) <-chan struct{}
	switch c.Kind {
	case guard.ChangeEnded:
		wait = func(w *Watch) <-chan struct{} { return w.endOf(c.Epoch) }
	case guard.ChangeNarrowed:
		wait = (*Watch).narrow
	default:
		return nil
	}
	type waiting struct {
		w    *Watch
		done <-chan struct{}
	}
	var all []waiting
	for _, w := range h.list(func(w *Watch) bool { return w.path.Root == c.Root }) {
		if done := wait(w); done != nil {
			all = append(all, waiting{w, done})
		}
	}
	var errs []error
	for _, x := range all {
		select {
		case <-x.done:
		case <-ctx.Done():
			x.w.mute.Store(true)
			errs = append(errs, fmt.Errorf("the receiver of the watch on %s hangs: %w", names.Quote(x.w.path.String()), ctx.Err()))
		}
	}
	return errors.Join(errs...)
}

// WatchOptions say what a Watch reports.
type WatchOptions struct {
	// Recursive watches all directories below too.
	Recursive bool
	// Events are the kinds reported; 0 stands for AllEvents.
	Events EventKind
}

// Watch is one subject's watch on one path.
type Watch struct {
	h      *Hub
	c      guard.Caller
	path   guard.Path
	o      WatchOptions
	emit   func([]Event)
	ctx    context.Context
	cancel context.CancelFunc
	stop   chan struct{} // closed when the watch is to end
	done   chan struct{} // closed when it has
	wake   chan struct{}
	mute   atomic.Bool // the last event is not to be reported any more

	watchState // of the goroutine

	mu       sync.Mutex // guards the fields below
	started  bool
	finished bool
	ending   endReason
	raw      []rawEvent
	urgent   bool
	over     bool
	narrows  []chan struct{}
	judge    bool   // the root was narrowed
	doomed   uint64 // lifetimes of the root up to this one have ended
}

// endReason is why a watch ends.
type endReason uint8

const (
	endNot endReason = iota
	endClosed
	endRoot // the root or the right
	endGone // the watched path
)

// Watch reports the changes of a file or directory, or of the tree below it, to
// emit until Close, or until an event with Ended. It takes the right to watch.
//
// emit is called from one goroutine per watch, with the events in the order in
// which they happened, and never with a lock held. While it blocks, events are
// kept, up to a bound; beyond it they are lost, which an event with Overflow
// reports. Several modifications of a path within HubOptions.Coalesce are one
// event, a creation followed by modifications is a creation, and what came and
// went in the meantime may not be reported at all. A directory that appears is
// reported with its contents, each Created, one that disappears by its own name
// alone. Some events may come twice. Links are not followed; names that the
// caller may not see, special files and unfinished replacements are left out.
//
// ctx bounds the setting up only. If there are not enough watches for all
// directories the error is names.Quota with a *LimitError.
func (h *Hub) Watch(ctx context.Context, c guard.Caller, p guard.Path, o WatchOptions, emit func([]Event)) (*Watch, error) {
	if o.Events == 0 {
		o.Events = AllEvents
	}
	w := &Watch{
		h: h, c: c, path: p, o: o, emit: emit,
		stop: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	h.mu.Lock()
	h.watches[w] = struct{}{} // before admission: a change of the root must find it
	h.mu.Unlock()
	if err := w.begin(ctx); err != nil {
		w.forget(false)
		return nil, err
	}
	go w.run()
	return w, nil
}

func (w *Watch) begin(ctx context.Context) error {
	req := guard.Request{Caller: w.c, Op: names.OpWatch, Path: w.path}
	set, err := do(ctx, w.h.t, req, w.drop, func(l *guard.Lease) (*setup, int64, error) {
		src, err := w.h.source()
		if err != nil {
			return nil, 0, err
		}
		s, err := w.setUp(ctx, l, src, false, false)
		return s, 0, err
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.watchState = watchState{src: set.src, base: set.base, epoch: set.epoch, dead: set.dead,
		id: set.base.id, file: set.base.only != ""}
	ok := w.ending == endNot && set.epoch > w.doomed
	w.started = ok
	w.mu.Unlock()
	if !ok {
		w.kill(set.base)
		return &guard.Error{Op: names.OpWatch, Path: w.path, Kind: names.Revoked}
	}
	w.poke()
	return nil
}

// Path is what is watched.
func (w *Watch) Path() guard.Path { return w.path }

// Done is closed when the watch has ended and nothing is reported any more.
func (w *Watch) Done() <-chan struct{} { return w.done }

// Close ends the watch without a last event and waits until emit has returned;
// emit itself must not call it.
func (w *Watch) Close() {
	if done := w.end(endClosed); done != nil {
		<-done
	}
}

// end makes the watch end and returns what is closed when it has; nil means
// that it never began.
func (w *Watch) end(why endReason) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending == endNot {
		w.ending = why
		w.cancel()
		close(w.stop)
	}
	if !w.started {
		return nil
	}
	return w.done
}

// endOf is end for a lifetime of the root that has ended; nil means that the
// watch is of another, or has not begun and never will.
func (w *Watch) endOf(epoch uint64) <-chan struct{} {
	w.mu.Lock()
	w.doomed = max(w.doomed, epoch)
	mine := w.started && w.epoch <= epoch
	w.mu.Unlock()
	if !mine {
		return nil
	}
	return w.end(endRoot)
}

// narrow makes the watch judge everything anew and returns what is closed when
// it has.
func (w *Watch) narrow() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge = true
	if !w.started {
		return nil // it will, before anything is reported
	}
	if w.finished {
		return w.done
	}
	ack := make(chan struct{})
	w.narrows = append(w.narrows, ack)
	w.poke()
	return ack
}

// forget takes the watch out of the hub, when nothing is reported any more: a
// change of the root has to find it as long as it may have to wait for it.
func (w *Watch) forget(begun bool) {
	w.cancel()
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	delete(w.h.watches, w)
	if begun {
		close(w.done)
	}
}

func (w *Watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
