package watch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Options select the changes that a Watch reports.
type Options struct {
	// Recursive watches all directories below too.
	Recursive bool
	// Events are the kinds reported; 0 stands for allEvents.
	Events EventKind
}

// Watch is one subject's watch on one path.
type Watch struct {
	h      *Hub
	c      guard.Caller
	path   guard.Path
	o      Options
	emit   func(context.Context, []Event)
	ctx    context.Context
	cancel context.CancelCauseFunc // makes the watch end
	done   chan struct{}           // closed when the watch has ended
	wake   chan struct{}
	muted  atomic.Bool  // the event with Ended must not be reported any more
	spare  atomic.Int64 // room of the hub that the watch has acquired but does not use

	runState

	mu       sync.Mutex // guards the fields below
	queue    queue
	started  bool
	finished bool
	narrowed bool               // everything is to be judged anew
	waiters  []chan struct{}    // to be closed when everything was judged anew
	giveUp   context.CancelFunc // cancels the delivery in progress; nil: there is none
	endedTo  uint64             // the latest of the root's epochs that the watch knows to have ended
}

// Why a watch ends.
var (
	errClosed    = errors.New("the watch was closed")
	errRootEnded = errors.New("the root, or the right to watch it, has ended")
	errPathGone  = errors.New("the watched path is gone")
)

// Watch reports the changes of a file or directory, or of the tree below it, to
// emit until Close, or until an event with Ended. The caller needs the right to watch.
//
// emit is called from one goroutine per watch, and never with a lock held. Events come in the
// order of the changes, except that deletions come first among changes that were inspected
// together. While emit blocks, changes are gathered, up to a bound; beyond it they are lost,
// which an event with Overflow reports. Links are not followed. Names that the caller may not
// see, special files and unfinished replacements are left out.
//
// Within HubOptions.Coalesce, several modifications of a path (atomic replacements among
// them) are one event, and a creation followed by modifications is a creation. A file that is
// created and removed within that time may not be reported at all. A directory that appears is
// reported with its contents, each Created. A directory that disappears is reported by its own
// name alone. Some events may come twice.
//
// The context of emit ends when the watch has to end or to judge everything again: the operation
// that ends or narrows the root waits until emit returns. For an event with Ended, the context
// has ended before the call.
//
// ctx bounds the setting up only. If there are not enough watches for all directories
// the error is names.Quota with a *LimitError.
func (h *Hub) Watch(ctx context.Context, c guard.Caller, p guard.Path, o Options, emit func(context.Context, []Event)) (*Watch, error) {
	if o.Events == 0 {
		o.Events = allEvents
	}
	w := &Watch{
		h: h, c: c, path: p, o: o, emit: emit,
		done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.watches[w] = struct{}{} // before admission: a change of the root must find it
	}
	h.mu.Unlock()
	if closed {
		return nil, &guard.Error{Kind: names.Internal, Err: errors.New("the hub is closed")}
	}
	if err := w.begin(ctx); err != nil {
		w.forget(false)
		return nil, err
	}
	go w.run()
	return w, nil
}

func (w *Watch) begin(ctx context.Context) error {
	set, err := admit(ctx, w, w.drop, func(l *guard.Lease) (*setup, error) { return w.setUp(ctx, l, nil) })
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.runState = runState{base: set.base, epoch: set.epoch, dead: set.dead}
	w.started = w.ctx.Err() == nil && set.epoch > w.endedTo
	started := w.started
	w.mu.Unlock()
	if !started {
		w.drop(set)
		return &guard.Error{Op: names.OpWatch, Path: w.path, Kind: names.Revoked}
	}
	w.poke()
	return nil
}

// Path is the watched path.
func (w *Watch) Path() guard.Path { return w.path }

// Done returns a channel that is closed when the watch has ended and nothing is reported any more.
func (w *Watch) Done() <-chan struct{} { return w.done }

// Close ends the watch without an event with Ended, and waits until emit has returned;
// emit itself must not call Close.
func (w *Watch) Close() {
	if done := w.end(errClosed); done != nil {
		<-done
	}
}

// end makes the watch end, unless it is ending already. It returns a channel that is closed
// when the watch has ended, or nil if the watch never began.
func (w *Watch) end(why error) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel(why)
	if !w.started {
		return nil
	}
	return w.done
}

// endOf ends the watch because the root's lifetime with this epoch has ended. It returns nil
// if the watch belongs to a later lifetime, or has not begun; begin then refuses to begin the
// watch in the ended lifetime.
func (w *Watch) endOf(epoch uint64) <-chan struct{} {
	w.mu.Lock()
	w.endedTo = max(w.endedTo, epoch)
	mine := w.started && w.epoch <= epoch
	w.mu.Unlock()
	if !mine {
		return nil
	}
	return w.end(errRootEnded)
}

// narrow makes the watch judge everything anew. It returns a channel that is closed
// when that is done, or nil if the watch has not started.
func (w *Watch) narrow() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.narrowed = true
	if !w.started {
		return nil // everything is judged before anything is reported
	}
	if w.finished {
		return w.done
	}
	judged := make(chan struct{})
	w.waiters = append(w.waiters, judged)
	if w.giveUp != nil {
		w.giveUp()
	}
	w.poke()
	return judged
}

// handOver calls emit with the events. The context of the call ends when they must not be reported
// any more.
func (w *Watch) handOver(events []Event) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.mu.Lock()
	w.giveUp = cancel
	if w.narrowed {
		cancel() // the root was narrowed after the events were looked at
	}
	w.mu.Unlock()
	w.emit(ctx, events)
	w.mu.Lock()
	w.giveUp = nil
	w.mu.Unlock()
}

// forget removes the watch from the hub. It is called after the last report: until then a
// change of the root must find the watch, to wait for it.
func (w *Watch) forget(began bool) {
	w.cancel(errClosed)
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	delete(w.h.watches, w)
	if began {
		close(w.done)
	}
}

func (w *Watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// acquireRoom acquires room for one directory, or for namesEach names. It uses the watch's spare
// room first. The error says that there is no room.
func (w *Watch) acquireRoom() *LimitError {
	for n := w.spare.Load(); n > 0; n = w.spare.Load() {
		if w.spare.CompareAndSwap(n, n-1) {
			return nil
		}
	}
	limit, ok := w.h.room.Acquire(w.c.Subject.WithoutSession(), w.h.maxRoom, int64(w.h.o.MaxEach))
	if !ok {
		return &LimitError{What: "directories, or thousands of names in them, can be watched by one server at present", Limit: limit}
	}
	return nil
}

// returnSpare gives back the room that the watch does not use.
func (w *Watch) returnSpare() { w.h.room.Release(w.c.Subject.WithoutSession(), w.spare.Swap(0)) }
