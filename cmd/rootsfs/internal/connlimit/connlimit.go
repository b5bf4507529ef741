// Package connlimit limits the connections of an HTTP server whose clients must authenticate with
// a secret. The server calls Bound.Trust when a client has shown the secret.
//
// # Promises
//
// There are never more connections than the limit. When one more comes, the oldest
// connection without the secret is closed, even in the middle of a request. If all others have
// shown the secret, the connection that has been idle longest is closed. If none is idle, the new
// connection is closed. Connections without the secret, however many, take the place of at most
// one connection with the secret, and only of an idle one. The server waits for no slow connection.
// The log has a few lines a minute at most about closed connections.
//
// # Not promised
//
// A client with the secret may take all connections: the server has to limit such clients.
package connlimit

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"golang.org/x/time/rate"
)

// Bounds of the lines in the log.
const (
	linesASecond = 0.1
	linesAtOnce  = 3
)

// Bound bounds the connections of one server. Make it with New. Its methods may be
// called concurrently.
type Bound struct {
	most int
	log  *slog.Logger
	pace *rate.Limiter // of lines in the log

	mu        sync.Mutex // guards the fields below
	strangers *list.List // of net.Conn: without the secret, the oldest first
	idle      *list.List // of net.Conn: with the secret, between requests, the longest idle first
	entries   map[net.Conn]entry
}

// entry is the list that a connection is in, and the element of the connection in this list. A
// connection with the secret that is in use is in neither list: its entry is zero.
type entry struct {
	list *list.List
	e    *list.Element
}

// New makes a Bound whose limit is the number most, but at least 2, because the newest connection
// needs time to show the secret.
func New(most int, log *slog.Logger) *Bound {
	return &Bound{
		most: max(2, most), log: log, pace: rate.NewLimiter(linesASecond, linesAtOnce),
		strangers: list.New(), idle: list.New(), entries: map[net.Conn]entry{},
	}
}

// Attach makes a server report its connections. Call it before the server serves.
func (b *Bound) Attach(srv *http.Server) {
	srv.ConnState = b.state
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
}

// state serves as http.Server.ConnState. It closes the connection that note returns.
func (b *Bound) state(conn net.Conn, s http.ConnState) {
	victim := b.note(conn, s)
	if victim == nil {
		return
	}
	if b.pace.Allow() {
		b.log.Warn("too many connections: closed one that had shown nothing, or was idle", "most", b.most, "from", victim.RemoteAddr().String())
	}
	if t, ok := victim.(*tls.Conn); ok {
		victim = t.NetConn() // without the closing alert of TLS: sending it could block
	}
	_ = victim.Close()
}

// note records the new state of conn. It returns the connection to close, or nil.
func (b *Bound) note(conn net.Conn, s http.ConnState) (victim net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, counted := b.entries[conn]
	if !counted && s != http.StateNew {
		return nil // note has returned conn as a victim before
	}
	switch s {
	case http.StateNew:
		b.moveLocked(conn, b.strangers)
	case http.StateActive:
		if known.list != b.strangers {
			b.moveLocked(conn, nil)
		}
	case http.StateIdle:
		if known.list != b.strangers {
			b.moveLocked(conn, b.idle)
		}
	case http.StateClosed, http.StateHijacked:
		b.moveLocked(conn, nil)
		delete(b.entries, conn)
	}
	if s != http.StateNew || len(b.entries) <= b.most {
		return nil
	}
	// The newest gets time to show the secret, if another can be closed.
	oldest, idle := b.strangers.Front(), b.idle.Front()
	if idle != nil && oldest == b.strangers.Back() {
		oldest = idle
	}
	victim = oldest.Value.(net.Conn)
	// The victim does not count from here on, although closing it may take a moment.
	b.moveLocked(victim, nil)
	delete(b.entries, victim)
	return victim
}

// moveLocked moves conn from its list to another list. If to is nil, conn is in neither list then.
func (b *Bound) moveLocked(conn net.Conn, to *list.List) {
	if was := b.entries[conn]; was.list != nil {
		was.list.Remove(was.e)
	}
	var now entry
	if to != nil {
		now = entry{to, to.PushBack(conn)}
	}
	b.entries[conn] = now
}

// connKey is the key of the connection in a request's context.
type connKey struct{}

// Trust notes that the connection of r has shown the secret.
func (b *Bound) Trust(r *http.Request) {
	conn, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries[conn].list == b.strangers {
		b.moveLocked(conn, nil)
	}
}
