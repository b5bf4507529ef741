package tools

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// lister tells clients that resources/list would now be another one: a root came
// or went, or a name did, directly in one. It tells of the first change at once,
// and of those of the next broker.DefaultDebounce together. Each client has one
// announcement on its way at most: one that does not read holds nobody, and is told
// once more when it reads.
//
// It looks at the directories that the list is made of, and tells of nothing else:
// a client whose own roots leave a directory out hears nothing of it. Roots without
// the right to watch are told of when they come and go.
type lister struct {
	s       *Server
	wake    chan struct{} // has an element when there is something to do
	changed atomic.Bool   // since the last announcement
	once    sync.Once
	begun   chan struct{} // closed when it looks, or never will
	over    chan struct{} // closed when it has ended

	mu      sync.Mutex                  // guards the fields below
	session *mcp.ServerSession          // whose list it is; nil: of any of several
	known   bool                        // session is set
	ended   bool                        // before it began
	sent    map[*mcp.ServerSession]bool // on its way; true: and out of date again
}

// atFirst bounds how long the first list waits for the looking to begin.
const atFirst = 2 * time.Second

// listChanged is what is announced.
const listChanged = "notifications/resources/list_changed"

func newLister(s *Server) *lister {
	return &lister{s: s, wake: make(chan struct{}, 1), begun: make(chan struct{}), over: make(chan struct{}), sent: map[*mcp.ServerSession]bool{}}
}

// begin begins to look, for a session.
func (l *lister) begin(ss *mcp.ServerSession) {
	l.mu.Lock()
	if l.known && l.session != ss {
		ss = nil
	}
	l.session, l.known = ss, true
	ended := l.ended
	l.mu.Unlock()
	if !ended {
		l.once.Do(func() { go l.run() })
	}
	l.look()
}

// ready waits until it looks, if it is to: what changes after a list is told of.
func (l *lister) ready(ctx context.Context) {
	l.mu.Lock()
	known := l.known
	l.mu.Unlock()
	if !known {
		return
	}
	late := time.NewTimer(atFirst)
	defer late.Stop()
	select {
	case <-l.begun:
	case <-late.C:
	case <-ctx.Done():
	}
}

// end ends it, when the server's context has ended.
func (l *lister) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.once.Do(func() { close(l.over) })
	<-l.over
}

// note notes a change; it does not wait.
func (l *lister) note() {
	l.changed.Store(true)
	l.look()
}

// look asks for a look at what there is.
func (l *lister) look() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lister) run() {
	defer close(l.over)
	watches := map[guard.Path]*watch.Watch{}
	defer func() {
		for _, w := range watches {
			w.Close()
		}
	}()
	pace := time.NewTimer(0)
	defer pace.Stop()
	for first := true; ; first = false {
		select {
		case <-l.s.ctx.Done():
			return
		case <-l.wake:
		}
		if l.follow(watches) && !first {
			l.changed.Store(true)
		}
		if first {
			l.changed.Store(false) // nobody has a list yet
			close(l.begun)
			continue
		}
		if !l.changed.Load() {
			continue
		}
		select {
		case <-l.s.ctx.Done():
			return
		case <-pace.C:
		}
		l.changed.Store(false) // what changes from here on is told of anew
		// The SDK announces a change of resources to every session when one is put
		// in its place again.
		l.s.mcp.AddResourceTemplate(fileTemplate, l.s.readResource)
		pace.Reset(broker.DefaultDebounce)
	}
}

// follow watches the directories that the list is now made of, and no others. It
// reports whether they are others than before.
func (l *lister) follow(watches map[guard.Path]*watch.Watch) (moved bool) {
	l.mu.Lock()
	ss := l.session
	l.mu.Unlock()
	tops, err := l.s.tops(l.s.ctx, ss)
	if err != nil {
		tops = nil // then there is no list
	}
	want := map[guard.Path]bool{}
	for _, t := range tops {
		want[t.Path] = !t.file && t.rights&(guard.List|guard.Watch) == guard.List|guard.Watch
	}
	for p, w := range watches {
		select {
		case <-w.Done(): // what it was on is gone; another may be in its place
		default:
			if want[p] {
				delete(want, p)
				continue
			}
		}
		w.Close()
		delete(watches, p)
		moved = true
	}
	for p, can := range want {
		if !can {
			continue
		}
		ctx, cancel := context.WithTimeout(l.s.ctx, guard.DefaultTimeout)
		w, err := l.s.hub.Watch(ctx, l.s.caller, p, watch.Options{Events: watch.Created | watch.Deleted}, l.seen)
		cancel()
		if err != nil {
			l.s.cfg.Log.Debug("changes in a directory will not be announced", "path", p.String(), "error", err)
			continue
		}
		watches[p] = w
		moved = true
		go func() {
			<-w.Done()
			l.look() // it may have ended by itself
		}()
	}
	return moved
}

// seen is told of changes in a directory. Names that begin with a dot are not listed.
func (l *lister) seen(_ context.Context, events []watch.Event) {
	for i := range events {
		if _, name := events[i].Path.Split(); events[i].Overflow || events[i].Ended || !strings.HasPrefix(name, ".") {
			l.note()
			return
		}
	}
}

// sending sees to it that a session has one announcement on its way at most, and that
// the log does not fill with what nobody heard: a client need not listen to events.
func (l *lister) sending(next mcp.MethodHandler) mcp.MethodHandler {
	told := func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if err != nil && strings.HasPrefix(method, "notifications/") {
			l.s.cfg.Log.Debug("a client did not hear of a change", "method", method, "error", err)
			return nil, nil //nolint:nilnil // a notification has no result
		}
		return res, err
	}
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		ss, ok := req.GetSession().(*mcp.ServerSession)
		if method != listChanged || !ok {
			return told(ctx, method, req)
		}
		l.mu.Lock()
		_, busy := l.sent[ss]
		l.sent[ss] = busy
		l.mu.Unlock()
		if busy {
			return nil, nil //nolint:nilnil // as above
		}
		defer func() {
			l.mu.Lock()
			again := l.sent[ss]
			delete(l.sent, ss)
			l.mu.Unlock()
			if again {
				l.note()
			}
		}()
		return told(ctx, method, req)
	}
}
