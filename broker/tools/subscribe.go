package tools

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// maxSubscriptions bounds the watches of all sessions together. Each notice on its way to a session
// counts as one watch.
const maxSubscriptions = 1024

// subscriptions are the watches that sessions hold.
type subscriptions struct {
	mu       sync.Mutex // guards the fields below
	m        map[subscription]*watch.Watch
	sessions map[*mcp.ServerSession]bool // for each session here, a goroutine waits for its end
	closed   bool
}

type subscription struct {
	ss  *mcp.ServerSession
	uri string
}

// add keeps a watch until its session ends, and replaces an earlier watch of the same
// subscription. If there is no room, or u is closed, add closes the watch and returns an error.
// unsent is the number of notices on their way.
func (u *subscriptions) add(k subscription, w *watch.Watch, unsent int) (err error) {
	u.mu.Lock()
	old, known := u.m[k], u.sessions[k.ss]
	switch {
	case u.closed:
		err = &guard.Error{Op: names.OpWatch, Kind: names.Revoked}
	case old == nil && len(u.m)+unsent >= maxSubscriptions:
		err = &guard.Error{Op: names.OpWatch, Kind: names.Quota, Err: errors.New("too many subscriptions; unsubscribe from one")}
	default:
		if u.m == nil {
			u.m, u.sessions = map[subscription]*watch.Watch{}, map[*mcp.ServerSession]bool{}
		}
		u.m[k], u.sessions[k.ss] = w, true
	}
	u.mu.Unlock()
	switch {
	case err != nil:
		old = w
	case !known:
		go u.endWith(k.ss)
	}
	if old != nil {
		old.Close()
	}
	return err
}

// endWith waits for the end of a session, and then ends its subscriptions.
func (u *subscriptions) endWith(ss *mcp.ServerSession) {
	_ = ss.Wait() // how it ended does not matter
	u.mu.Lock()
	delete(u.sessions, ss)
	u.mu.Unlock()
	u.drop(func(k subscription, _ *watch.Watch) bool { return k.ss == ss })
}

// drop ends the subscriptions that matches accepts.
func (u *subscriptions) drop(matches func(subscription, *watch.Watch) bool) {
	u.mu.Lock()
	var gone []*watch.Watch
	for k, w := range u.m {
		if matches(k, w) {
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
	at, err := s.resourceTarget(ctx, req.Session, req.Params.URI)
	if err != nil {
		return s.rpc(err)
	}
	k := subscription{req.Session, req.Params.URI}
	// A change of a root waits for the watch, so the watch must not wait for a client.
	w, err := s.hub.Watch(ctx, s.caller, at.Path, watch.Options{Recursive: true}, func(context.Context, []watch.Event) {
		s.notices.send(notice{k.ss, k.uri}, func() {
			_ = s.mcp.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: k.uri})
		})
	})
	if err != nil {
		return s.rpc(err)
	}
	if err := s.subs.add(k, w, s.notices.unsent()); err != nil {
		return s.rpc(err)
	}
	go func() {
		<-w.Done()
		s.subs.drop(func(_ subscription, x *watch.Watch) bool { return x == w })
	}()
	return nil
}

func (s *Server) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	s.subs.drop(func(k subscription, _ *watch.Watch) bool { return k == subscription{req.Session, req.Params.URI} })
	return nil
}

// notices sends notifications that say only that something changed. Each notice is sent by a
// goroutine of its own, so that a session that does not read delays no other session: the SDK
// writes to its sessions one after the other. Each notice is on its way at most once. If send gets
// the notice again meanwhile, it is sent once more afterwards. The zero value is ready for use.
type notices struct {
	mu sync.Mutex // guards the field below
	// next has a key for each notice on its way. The value of the key sends the notice once
	// more; nil: that is not needed.
	next map[notice]func()
}

// notice is a notification to a session.
type notice struct {
	session mcp.Session
	about   string // the method of a list's notification, or a resource's URI
}

// unsent returns the number of notices on their way.
func (n *notices) unsent() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.next)
}

// send calls f in another goroutine, because f may wait for the session.
func (n *notices) send(k notice, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, busy := n.next[k]; busy {
		n.next[k] = f
		return
	}
	if n.next == nil {
		n.next = map[notice]func(){}
	}
	n.next[k] = nil
	go n.run(k, f)
}

func (n *notices) run(k notice, f func()) {
	for f != nil {
		f()
		n.mu.Lock()
		if f = n.next[k]; f != nil {
			n.next[k] = nil
		} else {
			delete(n.next, k)
		}
		n.mu.Unlock()
	}
}

// sendNotices is middleware that sends the SDK's announcements of changed lists as notices.
// It keeps the log from filling with failed announcements: a client need not listen to events.
func (s *Server) sendNotices(next mcp.MethodHandler) mcp.MethodHandler {
	send := func(ctx context.Context, method string, req mcp.Request) {
		if _, err := next(ctx, method, req); err != nil {
			s.cfg.Log.Debug("a client did not hear of a change", "method", method, "error", err)
		}
	}
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch {
		case strings.HasSuffix(method, "/list_changed"):
			ctx = context.WithoutCancel(ctx) // the SDK's ctx ends when all sessions are notified
			s.notices.send(notice{req.GetSession(), method}, func() { send(ctx, method, req) })
		case strings.HasPrefix(method, "notifications/"):
			send(ctx, method, req)
		default:
			return next(ctx, method, req)
		}
		return nil, nil //nolint:nilnil // a notification has no result
	}
}
