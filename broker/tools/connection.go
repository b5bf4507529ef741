package tools

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// connection is an HTTP connection of a client. From before an answer is written until the
// client has received it, the connection keeps the stamps of the roots whose data is in the
// answer. If one of these roots may no longer be read before the client has received the answer,
// the connection is reset.
type connection struct {
	*net.TCPConn // nil: the connection is not known, see Attach
	http         *HTTP

	mu       sync.Mutex      // guards the fields below
	stamps   []*guard.Stamps // of the answers that the client may not have yet
	wasReset bool
	closing  bool // the server has closed the connection before the client had everything
}

// Bounds of connections that the server has closed before their clients had everything.
const (
	maxClosing     = 64               // connections of one server; further ones are reset
	closingTimeout = 30 * time.Second // how long a connection waits for its client before it is reset
)

type connectionKey struct{}

// Attach records the connections of a server. It returns the listener to serve on; a TLS listener
// must wrap the returned one. It sets srv.ConnContext to a function that also calls the earlier
// function. Without Attach, a revocation stops an answer before its next piece, but the part that
// the system has buffered may still arrive.
func (h *HTTP) Attach(srv *http.Server, l net.Listener) net.Listener {
	base := srv.ConnContext
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if base != nil {
			ctx = base(ctx, conn)
		}
		if t, ok := conn.(*tls.Conn); ok {
			conn = t.NetConn()
		}
		if c, ok := conn.(*connection); ok {
			ctx = context.WithValue(ctx, connectionKey{}, c)
		}
		return ctx
	}
	return listener{l, h}
}

// listener accepts TCP connections and records them as connections of http.
type listener struct {
	net.Listener
	http *HTTP
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	tcp, ok := conn.(*net.TCPConn)
	if err != nil || !ok {
		return conn, err
	}
	c := &connection{TCPConn: tcp, http: l.http}
	l.http.connections.Store(c, nil)
	return c, nil
}

// Close implements net.Conn. The server closes a connection when it has written the last
// answer, not when the client has received it. So Close leaves the connection open while a part
// of an answer is still on its way: a revocation can then reset the connection.
func (c *connection) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil
	}
	if c.wasReset || len(c.stamps) == 0 || c.deliveredLocked() {
		c.http.connections.Delete(c)
		return c.TCPConn.Close()
	}
	if c.http.closing.Add(1) > maxClosing {
		c.http.closing.Add(-1)
		c.http.connections.Delete(c)
		_ = c.SetLinger(0)
		return c.TCPConn.Close()
	}
	c.closing = true
	_ = c.SetDeadline(time.Unix(1, 0)) // the server does not use the connection any more
	go c.finish(time.Now().Add(closingTimeout))
	return c.CloseWrite()
}

// finish closes a connection when its client has received everything, and resets it at deadline.
func (c *connection) finish(deadline time.Time) {
	defer c.http.closing.Add(-1)
	defer c.http.connections.Delete(c)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		time.Sleep(wait)
		c.mu.Lock()
		isLate := time.Now().After(deadline)
		isOver := isLate || c.wasReset || c.deliveredLocked()
		c.mu.Unlock()
		if isLate {
			_ = c.SetLinger(0)
		}
		if isOver {
			_ = c.TCPConn.Close() // it may be closed already
			return
		}
	}
}

// withConnection returns the connection of a request, and the request with a context that holds
// the connection.
func (h *HTTP) withConnection(r *http.Request) (*connection, *http.Request) {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		c.dropDelivered()
		return c, r
	}
	c := &connection{http: h}
	return c, r.WithContext(context.WithValue(r.Context(), connectionKey{}, c))
}

// dropDelivered forgets the earlier answers, if the client has received them.
func (c *connection) dropDelivered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stamps) > 0 && c.deliveredLocked() {
		c.stamps = nil
	}
}

// addStamps records the roots with data in an answer that the caller is about to write.
func (c *connection) addStamps(s *guard.Stamps) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamps = append(c.stamps, s)
}

// errReset is the error of writing to a connection that was reset.
var errReset = errors.New("what may be read has changed, so the answer ends here")

// recheck is called before each piece of an answer is written, and when the answer is complete. It
// resets the connection if data in the answer may no longer be read. It returns an error if the
// connection was reset, now or before.
func (c *connection) recheck() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.errLocked(); err != nil {
		c.resetLocked(err)
	}
	if c.wasReset {
		return errReset
	}
	return nil
}

// invalidate resets the connection if data that may no longer be read is still on its way to
// the client.
func (c *connection) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.errLocked(); err != nil && !c.deliveredLocked() {
		c.resetLocked(err)
	}
}

func (c *connection) errLocked() error {
	for _, s := range c.stamps {
		if err := s.Err(); err != nil {
			return err
		}
	}
	return nil
}

// resetLocked resets the connection: the system drops undelivered data.
func (c *connection) resetLocked(why error) {
	if c.wasReset {
		return
	}
	c.wasReset = true
	// An error of the audit does not matter: the answer ends in any case.
	_ = c.http.o.Registry.NoteRefusal(guard.Caller{Subject: c.http.o.Subject, Via: guard.ViaTools}, names.Reason(why), "the rest of an answer over HTTP: "+why.Error())
	if c.TCPConn != nil {
		_ = c.SetLinger(0)
		_ = c.TCPConn.Close()
	}
}

// deliveredLocked reports whether the client's system has received everything written so far. It
// reports false if that is not known, and true if the connection is closed.
func (c *connection) deliveredLocked() bool {
	if c.TCPConn == nil {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true // it is closed
	}
	unsent := 0
	if err := raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil {
		return errors.Is(err, net.ErrClosed)
	}
	return err == nil && unsent == 0
}

// Invalidate implements guard.View. It resets the connections on which data that may no longer
// be read is still on its way.
func (h *HTTP) Invalidate(_ context.Context, c guard.Change) error {
	if c.Kind == guard.ChangeEnded || c.Kind == guard.ChangeNarrowed || c.Kind == guard.ChangePaused {
		for c := range h.connections.Range {
			c.(*connection).invalidate()
		}
	}
	return nil
}

var _ guard.View = (*HTTP)(nil)

// endResponse ends a response whose connection is not known: nothing more is read from the request
// or written to the response.
func (w *response) endResponse() {
	past := time.Unix(1, 0)
	rc := http.NewResponseController(w.ResponseWriter)
	_, _ = rc.SetWriteDeadline(past), rc.SetReadDeadline(past)
}
