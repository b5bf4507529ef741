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

// connection is a client's, over HTTP. What answers show is noted before they are written,
// and until the client has them; where less may be shown by then, the connection is reset.
type connection struct {
	http *HTTP
	conn net.Conn // nil: it is not known

	mu    sync.Mutex      // guards the fields below
	shown []*guard.Stamps // of the answers that the client may not have yet
	cut   bool
}

type connectionKey struct{}

// Watch has a server tell of its connections, before it serves. It keeps the hooks that the
// server has. Without it a revocation ends an answer before its next piece, and what the
// system has of it by then may still arrive.
func (h *HTTP) Watch(srv *http.Server) {
	state, base := srv.ConnState, srv.ConnContext
	srv.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if base != nil {
			ctx = base(ctx, conn)
		}
		c := &connection{http: h, conn: conn}
		h.connections.Store(conn, c)
		return context.WithValue(ctx, connectionKey{}, c)
	}
	srv.ConnState = func(conn net.Conn, s http.ConnState) {
		if s == http.StateClosed || s == http.StateHijacked {
			h.connections.Delete(conn)
		}
		if state != nil {
			state(conn, s)
		}
	}
}

// withConnection returns the connection of a request, and the request with it.
func (h *HTTP) withConnection(r *http.Request) (*connection, *http.Request) {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		c.begin()
		return c, r
	}
	c := &connection{http: h}
	return c, r.WithContext(context.WithValue(r.Context(), connectionKey{}, c))
}

// begin forgets the answers before, if the client has them.
func (c *connection) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shown) > 0 && c.deliveredLocked() {
		c.shown = nil
	}
}

// show notes what an answer shows that is about to be written.
func (c *connection) show(s *guard.Stamps) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = append(c.shown, s)
}

// errCut is the error of writing to a connection that was reset.
var errCut = errors.New("what may be read has changed, so the answer ends here")

// recheck is the second look before a piece is written.
func (c *connection) recheck() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.errLocked(); err != nil {
		c.cutLocked(err)
	}
	if c.cut {
		return errCut
	}
	return nil
}

// invalidate resets the connection if the client does not have yet what it may not have any
// more.
func (c *connection) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.errLocked(); err != nil && !c.deliveredLocked() {
		c.cutLocked(err)
	}
}

func (c *connection) errLocked() error {
	for _, s := range c.shown {
		if err := s.Err(); err != nil {
			return err
		}
	}
	return nil
}

// cutLocked resets the connection: the system drops what it has not delivered.
func (c *connection) cutLocked(why error) {
	if c.cut {
		return
	}
	c.cut = true
	// It is refused already.
	_ = c.http.o.Registry.NoteRefusal(guard.Caller{Subject: c.http.o.Subject, Via: guard.ViaTools}, names.Reason(why), "the rest of an answer over HTTP: "+why.Error())
	if tcp, ok := c.tcp(); ok {
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
	}
}

// tcp is the connection below TLS.
func (c *connection) tcp() (*net.TCPConn, bool) {
	conn := c.conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	return tcp, ok
}

// deliveredLocked reports whether the client's system has all that was written so far.
func (c *connection) deliveredLocked() bool {
	tcp, ok := c.tcp()
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true // it is closed
	}
	unsent := 0
	if err := raw.Control(func(fd uintptr) { unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil {
		return errors.Is(err, net.ErrClosed)
	}
	return err == nil && unsent == 0
}

// Invalidate implements guard.View. It resets the connections whose clients have not taken
// what they may not read any more.
func (h *HTTP) Invalidate(_ context.Context, c guard.Change) error {
	if c.Kind == guard.ChangeEnded || c.Kind == guard.ChangeNarrowed {
		for _, c := range h.connections.Range {
			c.(*connection).invalidate()
		}
	}
	return nil
}

var _ guard.View = (*HTTP)(nil)

// cutOff ends what is left of a response whose connection is not known: nothing more of it
// is read or written.
func (w *response) cutOff() {
	past := time.Unix(1, 0)
	rc := http.NewResponseController(w.ResponseWriter)
	_, _ = rc.SetWriteDeadline(past), rc.SetReadDeadline(past)
}
