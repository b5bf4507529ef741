package console

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// maxConns is how many connections there are at a time. A browser keeps six to a
// host, and a stream.
const maxConns = 128

// conns bounds the connections: of too many, the one that has been idle longest,
// or has said nothing yet, is closed. Whoever opens many without the secrets
// crowds out the likes of them before the owner, whose connections are in use.
type conns struct {
	mu   sync.Mutex // guards the fields below
	idle *list.List // of net.Conn: new or between requests, the longest first
	at   map[net.Conn]*list.Element
	n    int
}

func newConns() *conns { return &conns{idle: list.New(), at: map[net.Conn]*list.Element{}} }

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
	if e := c.at[conn]; e != nil {
		c.idle.Remove(e)
		delete(c.at, conn)
	}
	switch s {
	case http.StateNew:
		c.n++
		c.at[conn] = c.idle.PushBack(conn)
	case http.StateIdle:
		c.at[conn] = c.idle.PushBack(conn)
	case http.StateClosed, http.StateHijacked:
		c.n--
	}
	if c.n <= maxConns {
		return nil
	}
	if e := c.idle.Front(); e != nil {
		return e.Value.(net.Conn)
	}
	return nil
}
