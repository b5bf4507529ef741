// Package conns bounds the connections of an HTTP server whose clients have to show
// who they are.
//
// # Promises
//
// There are never more than so many. Of too many, the oldest that has shown no secret
// is closed, whatever it is at, and only where there is none, the one of those let in
// that has been idle longest: whoever opens many without the secret crowds out the
// likes of them, and nobody waits for a slow one to end. The log tells of it, some
// lines a minute at most.
//
// # Not promised
//
// One of those who are let in need not leave room for the others: that is for the
// server to bound.
package conns

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

// Bounds of what the log is told.
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
	strangers *list.List // of net.Conn: nothing is known of them, the oldest first
	idle      *list.List // of net.Conn: of those let in, between requests, the longest first
	at        map[net.Conn]place
}

// place is where a connection stands; in neither list, it was let in and is in use.
type place struct {
	in *list.List
	e  *list.Element
}

// New makes a bound of so many connections, at least 2: the newest is to have time.
func New(most int, log *slog.Logger) *Bound {
	return &Bound{
		most: max(2, most), log: log, pace: rate.NewLimiter(linesASecond, linesAtOnce),
		strangers: list.New(), idle: list.New(), at: map[net.Conn]place{},
	}
}

// Watch has a server tell of its connections, before it serves.
func (b *Bound) Watch(srv *http.Server) {
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
		victim = t.NetConn() // without a last word, which could take its time
	}
	_ = victim.Close()
}

// note keeps count and returns the connection that is to go, if one is.
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
	// The newest is given the time to show who it is, where another can go.
	oldest, idle := b.strangers.Front(), b.idle.Front()
	if idle != nil && oldest == b.strangers.Back() {
		oldest = idle
	}
	victim = oldest.Value.(net.Conn)
	// It counts no more: its end may take a moment to come.
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

// connKey is under which a request's context has its connection.
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
