package tools

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flow"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// clients are the Servers of those who are served over HTTP.
type clients struct {
	open      func(guard.Subject) *Server // for a session of the subject
	most      int                         // sessions at a time, and users
	mostOfOne int                         // sessions at a time of one subject
	shared    string                      // by whom consents are shared that came without a session
	wanted    wanted

	mu      sync.Mutex           // guards the fields below
	live    map[*Server]identity // of sessions
	users   map[identity]*user
	busy    map[guard.Subject]*load
	bodies  flow.Budget    // of all subjects' requests
	ending  sync.WaitGroup // Servers that are being closed
	leaving bool           // nobody is asked any more
	closed  bool
}

// identity is whose a session is.
type identity struct {
	subject guard.Subject
	user    string // auth.TokenInfo.UserID: the session is no other's
}

// user is who requests without a session are from, as far as they prove it: a subject
// of the issuer's through one OAuth client, or, with a bearer token of the server's own
// or none, every client there is. All of them are one session as far as grants go.
type user struct {
	srv  *Server
	refs int // requests under way
}

// begin makes the Server of one more session; nil: there is no room for it, and why.
func (c *clients) begin(whose identity) (s *Server, status int, why string) {
	c.mu.Lock()
	if status, why = c.fullLocked(whose.subject); why != "" {
		c.mu.Unlock()
		return nil, status, why
	}
	if c.live == nil {
		c.live = map[*Server]identity{}
	}
	room := new(Server) // holds the place meanwhile
	c.live[room] = whose
	c.ending.Add(1)
	c.mu.Unlock()
	s = c.open(whose.subject)
	s.wanted = &c.wanted
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, room)
	c.live[s] = whose
	if c.leaving {
		s.withdraw()
	}
	return s, 0, ""
}

// fullLocked says why a subject can have no session more; "" if it can.
func (c *clients) fullLocked(who guard.Subject) (status int, why string) {
	own := 0
	for _, whose := range c.live {
		if whose.subject == who {
			own++
		}
	}
	switch {
	case c.closed:
		return http.StatusServiceUnavailable, "the server is ending"
	case len(c.live) >= c.most:
		return http.StatusServiceUnavailable, fmt.Sprintf("too many sessions: there are %d, the most at a time; end one", len(c.live))
	case own >= c.mostOfOne:
		return http.StatusTooManyRequests, fmt.Sprintf("too many sessions: %s has %d, the most of one user at a time; end one", names.QuoteShort(string(who)), own)
	}
	return 0, ""
}

// load is what one subject has under way.
type load struct {
	requests int
	bodies   flow.Budget // of its requests
}

// subjectBodies bounds the bodies of one subject's requests that have no answer yet, in
// bytes. Only tests change it.
var subjectBodies int64 = 64 << 20

const (
	// allBodies bounds the bodies of all subjects' requests that have no answer yet, in bytes.
	allBodies = 256 << 20

	// smallBody is the size up to which a body is not counted, in bytes: the request may
	// be the one that ends a call.
	smallBody = 64 << 10
)

// requests is how many one subject may have under way.
func (c *clients) requests() int { return SessionRequests * c.mostOfOne }

// enter counts a request of a subject's, which exit ends; nil: there are more than most.
func (c *clients) enter(who guard.Subject, most int) *load {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy == nil {
		c.busy = map[guard.Subject]*load{}
	}
	l := c.busy[who]
	switch {
	case l == nil:
		l = &load{bodies: flow.Budget{Bytes: subjectBodies}}
		c.busy[who] = l
	case most > 0 && l.requests >= most:
		return nil
	}
	l.requests++
	return l
}

func (c *clients) exit(who guard.Subject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.busy[who]; l.requests > 1 {
		l.requests--
	} else {
		delete(c.busy, who)
	}
}

// hold waits, for so long at most, until there is room for a body of n bytes, before
// anything of it is read; release gives the room back. It reports false if there is none.
func (c *clients) hold(l *load, n int64, done <-chan struct{}, long time.Duration) (release func(), ok bool) {
	if n <= smallBody {
		return func() {}, true
	}
	own, err := l.bodies.Acquire(n, done, flow.For(long))
	if err != nil {
		return nil, false
	}
	all, err := c.bodies.Acquire(n, done, flow.For(long))
	if err != nil {
		own.Release()
		return nil, false
	}
	return func() {
		all.Release()
		own.Release()
	}, true
}

// endWith closes the Server of a session when that has ended, or did not begin.
func (c *clients) endWith(s *Server) {
	defer c.ending.Done()
	for ss := range s.mcp.Sessions() {
		if c.isClosed() {
			s.cancel()
			_ = ss.Close()
		}
		_ = ss.Wait() // how it ended does not matter
	}
	s.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, s)
}

func (c *clients) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// cancel ends what a session has under way: the SDK, told to close it, waits for
// that. Of another user's session it ends nothing.
func (c *clients) cancel(session, user string) {
	c.mu.Lock()
	live := maps.Clone(c.live)
	c.mu.Unlock()
	for s, whose := range live {
		if s.mcp != nil && whose.user == user && s.is(session) {
			s.cancel()
		}
	}
}

// is reports whether the server has a session of this id.
func (s *Server) is(session string) bool {
	for ss := range s.mcp.Sessions() {
		if ss.ID() == session {
			return true
		}
	}
	return false
}

// user returns the Server for a subject's requests without a session, to be left;
// nil: there is no room for it.
func (c *clients) user(who identity) *user {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.users[who]
	if u == nil {
		if c.closed || len(c.users) >= c.most && !c.forgetLocked() {
			return nil
		}
		if c.users == nil {
			c.users = map[identity]*user{}
		}
		u = &user{srv: c.open(who.subject)}
		u.srv.shareConsents(c.shared)
		c.users[who] = u
		if c.leaving {
			u.srv.withdraw()
		}
	}
	u.refs++
	return u
}

func (c *clients) leave(u *user) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u.refs--
}

// forgetLocked makes room for one more user, by one who asks for nothing now. It
// reports false if there is none.
func (c *clients) forgetLocked() bool {
	for who, u := range c.users {
		if u.refs > 0 {
			continue
		}
		delete(c.users, who)
		c.ending.Go(u.srv.Close)
		return true
	}
	return false
}

// allLocked are the Servers of the sessions that have begun, and of users.
func (c *clients) allLocked() (list []*Server) {
	for s := range c.live {
		if s.mcp != nil {
			list = append(list, s)
		}
	}
	for _, u := range c.users {
		list = append(list, u.srv)
	}
	return list
}

// withdraw takes back every question to a person, and has none put any more.
func (c *clients) withdraw() {
	c.mu.Lock()
	c.leaving = true
	all := c.allLocked()
	c.mu.Unlock()
	for _, s := range all {
		s.withdraw()
	}
}

// close ends all sessions and waits for that.
func (c *clients) close() {
	c.mu.Lock()
	c.closed, c.leaving = true, true
	all := c.allLocked()
	for _, u := range c.users {
		c.ending.Go(u.srv.Close)
	}
	c.users = nil
	c.mu.Unlock()
	for _, s := range all {
		s.cancel() // all of them, before one is waited for
	}
	for _, s := range all {
		for ss := range s.mcp.Sessions() {
			_ = ss.Close()
		}
	}
	c.ending.Wait()
}

type serverKey struct{}

// with puts the Server by which a request is served into it.
func with(r *http.Request, s *Server) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), serverKey{}, s))
}

// server is the SDK's server of a request; nil where it is the session's.
func server(r *http.Request) *mcp.Server {
	if s, ok := r.Context().Value(serverKey{}).(*Server); ok {
		return s.mcp
	}
	return nil
}
