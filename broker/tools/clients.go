package tools

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// clients holds the Servers of clients over HTTP: one for each session, and one for each user
// that sends requests without a session.
type clients struct {
	open           func(guard.Subject) *Server // for a session of the subject
	most           int                         // bounds the sessions at a time, and also the users
	mostPerSubject int                         // bounds the sessions at a time of one subject
	patience       time.Duration               // how long a request waits for room for its body, or for an answer
	shared         string                      // which clients share the consents given to requests without a session
	requests       openRequests
	bodies         flowcontrol.Budget // the bodies of all subjects' requests
	answers        flowcontrol.Budget // the answers to all subjects' requests

	mu          sync.Mutex           // guards the fields below
	sessions    map[*Server]identity // the Servers of sessions that have begun and not ended
	users       map[identity]*user
	busy        map[guard.Subject]*load
	ending      sync.WaitGroup // Servers of sessions that are not closed yet, and Servers of users that are being closed
	noQuestions bool           // no person is asked any more
	closed      atomic.Bool    // set under mu
}

// identity identifies the sender of a request. A session belongs to the sender that began it.
type identity struct {
	subject guard.Subject
	user    string // auth.TokenInfo.UserID: no other user may use the session
}

// user is the sender of requests without a session, as far as the requests prove who sends them:
// one subject of the OAuth issuer through one OAuth client. With the server's own bearer token, or
// without a token, one user stands for all clients. For grants, a user is one session.
type user struct {
	srv  *Server
	refs int // requests under way
}

// begin makes the Server of a new session, which endWith closes. If there are too many
// sessions, or c is closed, begin returns nil, an HTTP status and the reason.
func (c *clients) begin(whose identity) (s *Server, status int, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := 0
	for _, other := range c.sessions {
		if other.subject == whose.subject {
			own++
		}
	}
	switch {
	case c.closed.Load():
		return nil, http.StatusServiceUnavailable, "the server is ending"
	case len(c.sessions) >= c.most:
		return nil, http.StatusServiceUnavailable, fmt.Sprintf("too many sessions: there are %d, the most at a time; end one", len(c.sessions))
	case own >= c.mostPerSubject:
		return nil, http.StatusTooManyRequests, fmt.Sprintf("too many sessions: %s has %d, the most of one user at a time; end one", names.QuoteShort(string(whose.subject)), own)
	}
	s = c.openLocked(whose.subject)
	s.requests = &c.requests
	c.sessions[s] = whose
	c.ending.Add(1)
	return s, 0, ""
}

func (c *clients) openLocked(who guard.Subject) *Server {
	s := c.open(who)
	s.cfg.ClientAnswers = false // a caller over the network does not grant himself anything
	if c.noQuestions {
		s.withdraw()
	}
	return s
}

// load counts one subject's requests in progress.
type load struct {
	requests int
	bodies   flowcontrol.Budget // the bodies of the subject's requests
	answers  flowcontrol.Budget // the answers to the subject's requests
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

// admit counts a request of a subject until leave is called. The body of the request is still to be
// read, and admit waits for room for the n bytes of the body. If the request is refused, leave is
// nil, and status and why are for the client. A subject may have up to most requests at a time; 0:
// any number.
func (c *clients) admit(r *http.Request, who guard.Subject, most int, n int64) (leave func(), status int, why string) {
	c.mu.Lock()
	l := c.busy[who]
	if l == nil {
		l = &load{bodies: flowcontrol.Budget{Bytes: subjectBodies}, answers: flowcontrol.Budget{Bytes: c.answers.Bytes}}
		if most > 0 {
			l.answers.Bytes = min(userAnswers, allAnswers)
		}
		c.busy[who] = l
	}
	if most > 0 && l.requests >= most {
		c.mu.Unlock()
		return nil, http.StatusTooManyRequests, fmt.Sprintf("%s has %d requests under way, the most of one user: wait for one", names.QuoteShort(string(who)), most)
	}
	l.requests++
	c.mu.Unlock()
	leave = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if l.requests--; l.requests == 0 {
			delete(c.busy, who)
		}
	}
	if n <= smallBody {
		return leave, 0, ""
	}
	for _, room := range []*flowcontrol.Budget{&l.bodies, &c.bodies} {
		held, err := room.Acquire(n, r.Context().Done(), flowcontrol.WaitFor(c.patience))
		if err != nil {
			leave()
			return nil, http.StatusServiceUnavailable, fmt.Sprintf("requests of more than %d bytes have no answer yet, the most at a time: repeat this one when there is one less", room.Bytes)
		}
		before := leave
		leave = func() {
			held.Release()
			before()
		}
	}
	return leave, 0, ""
}

// answersOf returns an unreadAnswers, which bounds the memory of the answers to a subject's
// admitted request. refuse is called when there is no room for the answer to a call of the request.
func (c *clients) answersOf(who guard.Subject, refuse func()) *unreadAnswers {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &unreadAnswers{budgets: []*flowcontrol.Budget{&c.busy[who].answers, &c.answers}, patience: c.patience, refuse: refuse}
}

// endWith closes the Server of a session. If the session has begun, endWith first waits for its
// end.
func (c *clients) endWith(s *Server) {
	defer c.ending.Done()
	for ss := range s.mcp.Sessions() {
		if c.closed.Load() {
			s.cancel()
			_ = ss.Close()
		}
		_ = ss.Wait() // how it ended does not matter
	}
	s.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s)
}

// cancel ends the calls of a session that are in progress: the SDK waits for them when it
// closes the session. cancel ends nothing if the session belongs to another user.
func (c *clients) cancel(session, user string) {
	c.mu.Lock()
	sessions := maps.Clone(c.sessions)
	c.mu.Unlock()
	for s, whose := range sessions {
		for ss := range s.mcp.Sessions() {
			if whose.user == user && ss.ID() == session {
				s.cancel()
			}
		}
	}
}

// user returns the user with the Server for an identity's requests without a session, or nil if
// there is no room or c is closed. The caller must call leave when its request has ended.
func (c *clients) user(who identity) *user {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.users[who]
	if u == nil {
		if c.closed.Load() || len(c.users) >= c.most && !c.forgetLocked() {
			return nil
		}
		u = &user{srv: c.openLocked(who.subject)}
		u.srv.requests = &c.requests
		u.srv.shareConsents(c.shared)
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

// forgetLocked makes room for one more user: it forgets a user without requests in progress. It
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

// allLocked returns the Servers of sessions and of users.
func (c *clients) allLocked() (list []*Server) {
	for s := range c.sessions {
		list = append(list, s)
	}
	for _, u := range c.users {
		list = append(list, u.srv)
	}
	return list
}

// withdraw withdraws every question to a person. From then on no question is asked.
func (c *clients) withdraw() {
	c.mu.Lock()
	c.noQuestions = true
	all := c.allLocked()
	c.mu.Unlock()
	for _, s := range all {
		s.withdraw()
	}
}

// close ends all calls and all sessions, and waits until the Servers are closed.
func (c *clients) close() {
	c.mu.Lock()
	c.closed.Store(true)
	c.noQuestions = true
	all := c.allLocked()
	for _, u := range c.users {
		c.ending.Go(u.srv.Close)
	}
	clear(c.users)
	c.mu.Unlock()
	for _, s := range all {
		s.cancel() // cancel all before waiting for one
	}
	for _, s := range all {
		for ss := range s.mcp.Sessions() {
			_ = ss.Close()
		}
	}
	c.ending.Wait()
}

type serverKey struct{}

// withServer returns the request with a context that holds the Server for it.
func withServer(r *http.Request, s *Server) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), serverKey{}, s))
}

// serverOf returns the SDK's server for a request, or nil if the server of the request's
// session serves it.
func serverOf(r *http.Request) *mcp.Server {
	if s, ok := r.Context().Value(serverKey{}).(*Server); ok {
		return s.mcp
	}
	return nil
}
