// Package connlimit limits the connections of an HTTP server whose clients must authenticate.
//
// # Promises
//
// There are never more connections than the limit. When one more comes, the oldest
// connection without the secret is closed, even in the middle of a request. If all have
// shown the secret, the one that has been idle longest is closed. So a client that opens
// many connections without the secret crowds out only others without it, and no slow
// connection is waited for. Each is logged, a few lines a minute at most.
//
// # Not promised
//
// A client with the secret may take all connections: the server has to limit these.
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
	idle      *list.List // of net.Conn: with the secret, between requests, the longest first
	at        map[net.Conn]place
}

// place is the list that a connection is in. A connection in use, with the secret, is in
// neither list.
type place struct {
	in *list.List
	e  *list.Element
}

// New makes a Bound of most connections, and at least 2: the newest needs time to show
// the secret.
func New(most int, log *slog.Logger) *Bound {
	return &Bound{
		most: max(2, most), log: log, pace: rate.NewLimiter(linesASecond, linesAtOnce),
		strangers: list.New(), idle: list.New(), at: map[net.Conn]place{},
	}
}

// Attach makes a server report its connections. Call it before the server serves.
func (b *Bound) Attach(srv *http.Server) {
	srv.ConnState = b.state
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, conn)
	}
}

// state is http.Server.ConnState.
func (b *Bound) state(conn net.Conn, s http.ConnState) {
	victim := b.note(conn, s)
	if victim == nil {
		return
	}
	if b.pace.Allow() {
		b.log.Warn("too many connections: closed one that had shown nothing, or was idle", "most", b.most, "from", victim.RemoteAddr().String())
	}
	if t, ok := victim.(*tls.Conn); ok {
		victim = t.NetConn() // without a farewell of TLS, which could block
	}
	_ = victim.Close()
}

// note keeps count and returns the connection to close, if there is one.
func (b *Bound) note(conn net.Conn, s http.ConnState) (victim net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, counted := b.at[conn]
	if !counted && s != http.StateNew {
		return nil // it was closed
	}
	switch s {
	case http.StateNew:
		b.moveLocked(conn, b.strangers)
	case http.StateActive:
		if known.in != b.strangers {
			b.moveLocked(conn, nil)
		}
	case http.StateIdle:
		if known.in != b.strangers {
			b.moveLocked(conn, b.idle)
		}
	case http.StateClosed, http.StateHijacked:
		b.moveLocked(conn, nil)
		delete(b.at, conn)
	}
	if s != http.StateNew || len(b.at) <= b.most {
		return nil
	}
	// The newest gets time to show the secret, if another can be closed.
	oldest, idle := b.strangers.Front(), b.idle.Front()
	if idle != nil && oldest == b.strangers.Back() {
		oldest = idle
	}
	victim = oldest.Value.(net.Conn)
	// It no longer counts, although closing it may take a moment.
	b.moveLocked(victim, nil)
	delete(b.at, victim)
	return victim
}

func (b *Bound) moveLocked(conn net.Conn, to *list.List) {
	if was := b.at[conn]; was.in != nil {
		was.in.Remove(was.e)
	}
	var now place
	if to != nil {
		now = place{to, to.PushBack(conn)}
	}
	b.at[conn] = now
}

// connKey is the key of the connection in a request's context.
type connKey struct{}

// Trust notes that a request has shown the secret, for its connection.
func (b *Bound) Trust(r *http.Request) {
	conn, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at[conn].in == b.strangers {
		b.moveLocked(conn, nil)
	}
}
