package broker

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// sessionWatch is one watch that the peer began with files/watch.
type sessionWatch struct {
	s  *Session
	id string
	// sending has an element while a frame of the watch is on its way to the peer, so
	// that frames keep their order.
	sending chan struct{}

	mu    sync.Mutex // guards the fields below
	w     *watch.Watch
	ended bool
}

var eventKinds = map[string]watch.EventKind{
	wire.EventModified: watch.Modified,
	wire.EventCreated:  watch.Created,
	wire.EventDeleted:  watch.Deleted,
}

func (s *Session) watch(r *request, p *wire.WatchParams) (any, error) {
	var mask watch.EventKind
	for _, e := range p.Events {
		k, ok := eventKinds[e]
		if !ok {
			return nil, badParams{text: "params: events may hold modified, created and deleted, not " + names.QuoteShort(e)}
		}
		mask |= k
	}
	q, err := s.path(r, "path", p.Path)
	if err != nil {
		return nil, err
	}
	w := &sessionWatch{s: s, id: NewID(), sending: make(chan struct{}, 1)}
	if err := s.addWatch(w, q); err != nil {
		return nil, err
	}
	opened, err := s.b.hub.Watch(r.ctx, s.caller, q, watch.Options{Recursive: p.Recursive, Events: mask}, w.emit)
	if err != nil {
		s.removeWatch(w.id)
		return nil, withWatchHint(err)
	}
	w.mu.Lock()
	w.w = opened
	ended := w.ended
	w.mu.Unlock()
	if ended {
		opened.Close()
	}
	return &wire.WatchResult{WatchID: w.id}, nil
}

// withWatchHint adds a hint to err if err refuses a watch because of too many directories.
func withWatchHint(err error) error {
	var limit *watch.LimitError
	if errors.As(err, &limit) {
		return &hinted{err: err, limit: limit.Limit, hint: "watch fewer directories, or end a watch with files/unwatch"}
	}
	return err
}

// addWatch registers w with the session. It must be called before w can send its first event,
// because the peer may answer that event with files/unwatch. After Session.Close addWatch refuses
// w, because Close ends only the watches that were registered before.
func (s *Session) addWatch(w *sessionWatch, q guard.Path) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.oneMoreLocked(q, len(s.watches), s.limits.Watches, "too many watches", "end one with files/unwatch")
	if err == nil {
		s.watches[w.id] = w
	}
	return err
}

// removeWatch removes a watch from the session and returns it, nil if there is none.
func (s *Session) removeWatch(id string) *sessionWatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[id]
	delete(s.watches, id)
	return w
}

func (s *Session) unwatch(_ *request, p *wire.UnwatchParams) (any, error) {
	w := s.removeWatch(p.WatchID)
	if w == nil {
		return nil, badParams{text: "params: there is no watch with this watchId"}
	}
	w.close()
	return wire.Empty{}, nil
}

// close ends the watch: the hub does not call emit any more. If the hub has not opened the watch
// yet, Session.watch ends it.
func (w *sessionWatch) close() {
	w.mu.Lock()
	w.ended = true
	inner := w.w
	w.mu.Unlock()
	if inner != nil {
		inner.Close()
	}
}

// maxEmitWait bounds how long the revocation or narrowing of a root waits for the event that is
// on its way to the peer. A peer that reads takes the event within microseconds.
const maxEmitWait = 50 * time.Millisecond

// emit sends the changes to the peer and waits until the peer has received them, so that further
// changes stay in the hub's bounded queue. After ctx has ended, emit returns within maxEmitWait
// and begins no further frame, except for the event that the watch has ended. That event may still
// wait for the peer when emit returns.
func (w *sessionWatch) emit(ctx context.Context, events []watch.Event) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range events {
			w.send(ctx, &events[i])
		}
	}()
	select {
	case <-sent:
		return
	case <-ctx.Done():
	}
	wait := time.NewTimer(maxEmitWait)
	defer wait.Stop()
	select {
	case <-sent:
	case <-wait.C:
	case <-w.s.ctx.Done():
	}
}

// send sends one change after the earlier ones. For each emit at most one goroutine waits here,
// with one frame, and none after the end of the connection.
func (w *sessionWatch) send(ctx context.Context, e *watch.Event) {
	if e.Ended {
		ctx = w.s.ctx // this event is sent, however long the peer takes
		if w.s.removeWatch(w.id) == nil {
			return // ended by files/unwatch: this event could come after the answer to files/unwatch
		}
	}
	select {
	case w.sending <- struct{}{}:
		defer func() { <-w.sending }()
	case <-ctx.Done():
		return
	}
	if ctx.Err() != nil {
		return
	}
	p := wire.ChangedParams{
		Path: e.Path.String(), Event: e.Kind.String(), Timestamp: formatTime(e.Time), WatchID: w.id,
		MoveID: e.MoveID, Overflow: e.Overflow, Ended: e.Ended,
	}
	if !utf8.ValidString(p.Path) {
		p.RawPath = base64.StdEncoding.EncodeToString([]byte(p.Path))
		p.Path = strings.ToValidUTF8(p.Path, "\uFFFD")
	}
	w.s.stats.notified.Add(1)
	w.s.notify(wire.Changed, &p, func() (ok bool, replacement []byte) { return ctx.Err() == nil, nil })
}
