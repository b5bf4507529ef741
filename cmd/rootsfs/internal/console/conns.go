package console

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// maxConns is how many connections there are at a time. A browser keeps six to a
// host, and a stream.
const maxConns = 128

// conns bounds the connections: of too many, the oldest that has shown no secret is
// closed, whatever it is at, and only where there is none, the one of the owner's
// that has been idle longest. Whoever opens many without the secrets crowds out the
// likes of them.
type conns struct {
	mu        sync.Mutex // guards the fields below
	strangers *list.List // of net.Conn: nothing is known of them, the oldest first
	idle      *list.List // of net.Conn: the owner's, between requests, the longest first
	at        map[net.Conn]place
}

// place is where a connection stands; in neither list, it is the owner's and in use.
type place struct {
	in *list.List
	e  *list.Element
}

func newConns() *conns {
	return &conns{strangers: list.New(), idle: list.New(), at: map[net.Conn]place{}}
}

// state is http.Server.ConnState.
func (c *conns) state(conn net.Conn, s http.ConnState) {
	if victim := c.note(conn, s); victim != nil {
		_ = victim.Close()
	}
}

// note keeps count and returns the connection that is to go, if one is.
func (c *conns) note(conn net.Conn, s http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.at[conn]
	switch s {
	case http.StateNew:
		c.moveLocked(conn, c.strangers)
	case http.StateActive:
		if known.in != c.strangers {
			c.moveLocked(conn, nil)
		}
	case http.StateIdle:
		if known.in != c.strangers {
			c.moveLocked(conn, c.idle)
		}
	case http.StateClosed, http.StateHijacked:
		c.moveLocked(conn, nil)
		delete(c.at, conn)
	}
	if len(c.at) <= maxConns {
		return nil
	}
	// The newest is given the time to show who it is, where another can go.
	oldest, idle := c.strangers.Front(), c.idle.Front()
	if idle != nil && (oldest == nil || oldest == c.strangers.Back()) {
		oldest = idle
	}
	if oldest == nil {
		return nil
	}
	return oldest.Value.(net.Conn)
}

func (c *conns) moveLocked(conn net.Conn, to *list.List) {
	if was := c.at[conn]; was.in != nil {
		was.in.Remove(was.e)
	}
	var now place
	if to != nil {
		now = place{to, to.PushBack(conn)}
	}
	c.at[conn] = now
}

// trust notes that a connection has shown the secrets.
func (c *conns) trust(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at[conn].in == c.strangers {
		c.moveLocked(conn, nil)
	}
}

// connKey is under which a request's context has its connection.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// trustOf notes that a request has shown the secrets.
func (c *conns) trustOf(r *http.Request) {
	if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		c.trust(conn)
	}
}
