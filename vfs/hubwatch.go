package vfs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

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
	emit   func(context.Context, []Event)
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
	giveUp   context.CancelFunc // of the events being handed over; nil: none are
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
// reports. Several modifications of a path within HubOptions.Coalesce, atomic
// replacements among them, are one event, a creation followed by modifications
// is a creation, and what came and went in the meantime may not be reported at
// all. A directory that appears is reported with its contents, each Created, one
// that disappears by its own name alone. Some events may come twice. Links are
// not followed; names that the caller may not see, special files and unfinished
// replacements are left out.
//
// The context of emit ends when the watch is to end or to judge everything anew:
// whoever changes the root waits until emit returns. That of an event with Ended
// has ended from the beginning.
//
// ctx bounds the setting up only. If there are not enough watches for all
// directories the error is names.Quota with a *LimitError.
func (h *Hub) Watch(ctx context.Context, c guard.Caller, p guard.Path, o WatchOptions, emit func(context.Context, []Event)) (*Watch, error) {
	if o.Events == 0 {
		o.Events = AllEvents
	}
	w := &Watch{
		h: h, c: c, path: p, o: o, emit: emit,
		stop: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
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
	req := guard.Request{Caller: w.c, Op: names.OpWatch, Path: w.path}
	set, err := gate.Do(ctx, w.h.t.reg, req, w.drop, func(l *guard.Lease) (*setup, int64, error) {
		s, err := w.setUp(ctx, l, false, false, 0)
		return s, 0, err
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.watchState = watchState{base: set.base, epoch: set.epoch, dead: set.dead,
		id: set.base.id, file: set.base.only != ""}
	ok := w.ending == endNot && set.epoch > w.doomed
	w.started = ok
	w.mu.Unlock()
	if !ok {
		set.base.kill()
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
	if w.giveUp != nil {
		w.giveUp()
	}
	w.poke()
	return ack
}

// handOver gives events to the receiver, until they are not to be reported any
// more.
func (w *Watch) handOver(events []Event) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.mu.Lock()
	w.giveUp = cancel
	if w.judge {
		cancel() // it was asked for since the events were looked at
	}
	w.mu.Unlock()
	w.emit(ctx, events)
	w.mu.Lock()
	w.giveUp = nil
	w.mu.Unlock()
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
