package tools

import (
	"context"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/guard"
)

// clients are the Servers of those who are served over HTTP.
type clients struct {
	open func(guard.Subject) *Server // for a session of the subject
	most int                         // sessions at a time, and users

	mu     sync.Mutex       // guards the fields below
	live   map[*Server]bool // of sessions
	users  map[guard.Subject]*user
	ending sync.WaitGroup // Servers that are being closed
	closed bool
}

// user is a subject whose requests stand by themselves. All of them are one
// session as far as grants go: there is nothing by which to tell them apart.
type user struct {
	srv  *Server
	refs int // requests under way
}

// begin makes the Server of one more session; nil: there is no room for it.
func (c *clients) begin(who guard.Subject) *Server {
	c.mu.Lock()
	if c.closed || len(c.live) >= c.most {
		c.mu.Unlock()
		return nil
	}
	if c.live == nil {
		c.live = map[*Server]bool{}
	}
	room := new(Server) // holds the place meanwhile
	c.live[room] = true
	c.ending.Add(1)
	c.mu.Unlock()
	s := c.open(who)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, room)
	c.live[s] = true
	return s
}

// endWith closes the Server of a session when that has ended, or did not begin.
func (c *clients) endWith(s *Server) {
	defer c.ending.Done()
	for ss := range s.mcp.Sessions() {
		if c.isClosed() {
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

// user returns the Server for a subject's requests without a session, to be left;
// nil: there is no room for it.
func (c *clients) user(who guard.Subject) *user {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.users[who]
	if u == nil {
		if c.closed || len(c.users) >= c.most && !c.forgetLocked() {
			return nil
		}
		if c.users == nil {
			c.users = map[guard.Subject]*user{}
		}
		u = &user{srv: c.open(who)}
		c.users[who] = u
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

// close ends all sessions and waits for that.
func (c *clients) close() {
	c.mu.Lock()
	c.closed = true
	live, users := c.live, c.users
	c.users = nil
	all := make([]*Server, 0, len(live)+len(users))
	for s := range live {
		if s.mcp != nil {
			all = append(all, s)
		}
	}
	for _, u := range users {
		all = append(all, u.srv)
		c.ending.Go(u.srv.Close)
	}
	c.mu.Unlock()
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
