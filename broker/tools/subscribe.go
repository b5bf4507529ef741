package tools

import (
	"context"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// maxSubscriptions bounds the watches of all sessions together, and who tells of
// them.
const maxSubscriptions = 1024

// subscriptions are the watches that sessions hold.
type subscriptions struct {
	mu       sync.Mutex // guards the fields below
	m        map[subscription]*watch.Watch
	sessions map[*mcp.ServerSession]bool // whose end is waited for
	tellers  int
	closed   bool
}

type subscription struct {
	ss  *mcp.ServerSession
	uri string
}

// begin makes room for one, end gives it back.
func (u *subscriptions) begin() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		return &guard.Error{Op: names.OpWatch, Kind: names.Revoked}
	case u.tellers >= maxSubscriptions:
		return &guard.Error{Op: names.OpWatch, Kind: names.Quota, Err: errors.New("too many subscriptions; unsubscribe from one")}
	}
	u.tellers++
	return nil
}

func (u *subscriptions) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tellers--
}

// add keeps a watch in the place of the one that was there, until its session
// ends.
func (u *subscriptions) add(k subscription, w *watch.Watch) {
	u.mu.Lock()
	old, closed, known := u.m[k], u.closed, u.sessions[k.ss]
	if !closed {
		if u.m == nil {
			u.m, u.sessions = map[subscription]*watch.Watch{}, map[*mcp.ServerSession]bool{}
		}
		u.m[k], u.sessions[k.ss] = w, true
	}
	u.mu.Unlock()
	switch {
	case closed:
		old = w
	case !known:
		go u.endWith(k.ss)
	}
	if old != nil {
		old.Close()
	}
}

// endWith ends a session's subscriptions when it ends.
func (u *subscriptions) endWith(ss *mcp.ServerSession) {
	_ = ss.Wait() // how it ended does not matter
	u.mu.Lock()
	delete(u.sessions, ss)
	u.mu.Unlock()
	u.drop(func(k subscription, _ *watch.Watch) bool { return k.ss == ss })
}

// drop ends those that match.
func (u *subscriptions) drop(which func(subscription, *watch.Watch) bool) {
	u.mu.Lock()
	var gone []*watch.Watch
	for k, w := range u.m {
		if which(k, w) {
			gone = append(gone, w)
			delete(u.m, k)
		}
	}
	u.mu.Unlock()
	for _, w := range gone {
		w.Close()
	}
}

func (u *subscriptions) close() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.drop(func(subscription, *watch.Watch) bool { return true })
}

// subscribe watches a file, or a directory with all below it.
func (s *Server) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	at, err := s.resourcePlace(ctx, req.Session, req.Params.URI)
	if err != nil {
		return s.rpc(err)
	}
	if err := s.subs.begin(); err != nil {
		return s.rpc(err)
	}
	// Whoever changes a root waits for the watch, so the watch waits for nobody:
	// what is told is only that something changed, and that can be told later.
	changed := make(chan struct{}, 1)
	w, err := s.hub.Watch(ctx, s.caller, at.Path, watch.Options{Recursive: true}, func(context.Context, []watch.Event) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		s.subs.end()
		return s.rpc(err)
	}
	s.subs.add(subscription{req.Session, req.Params.URI}, w)
	go s.tell(req.Params.URI, w, changed)
	return nil
}

// tell announces changes until the watch has ended, and the last of them after
// that. A peer that does not read holds this goroutine and no other.
func (s *Server) tell(uri string, w *watch.Watch, changed <-chan struct{}) {
	defer s.subs.end()
	for {
		select {
		case <-changed:
		case <-w.Done():
			s.subs.drop(func(_ subscription, x *watch.Watch) bool { return x == w })
			select {
			case <-changed:
			default:
				return
			}
		}
		// Whoever hung up wants to know no more.
		_ = s.mcp.ResourceUpdated(s.ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
	}
}

func (s *Server) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	s.subs.drop(func(k subscription, _ *watch.Watch) bool { return k == subscription{req.Session, req.Params.URI} })
	return nil
}
