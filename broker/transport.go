package broker

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
)

//lint:file-ignore SA1019 roots are deprecated since 2026-07-28 (SEP-2577), but still work; servers of older revisions know nothing else

// Transport wraps a client's transport so that the session answers files/* and
// roots/list on it. It is not for Streamable HTTP, where the SDK needs its own connection (see
// HTTP). A session has one connection; when that ends, so does the session.
func (s *Session) Transport(inner mcp.Transport) mcp.Transport { return &transport{inner, s} }

type transport struct {
	inner mcp.Transport
	s     *Session
}

// Connect implements mcp.Transport.
func (t *transport) Connect(ctx context.Context) (mcp.Connection, error) {
	inner, err := t.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{Connection: inner, s: t.s}
	t.s.SetSender(c.send)
	return c, nil
}

// conn takes the session's requests out of the messages of an SDK connection.
type conn struct {
	mcp.Connection
	s       *Session
	sending sync.Mutex // held from the recheck of a frame until it is written
}

// Read implements mcp.Connection. It returns the messages that the session does not take.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		msg, err := c.Connection.Read(ctx)
		if err != nil {
			go c.s.Close() // the peer hung up; Close waits for handlers, which may be sending
			return nil, err
		}
		switch m := msg.(type) {
		case *jsonrpc.Request:
			f := wire.Frame{Method: m.Method, Params: m.Params}
			if m.ID.IsValid() {
				f.ID, _ = json.Marshal(m.ID.Raw())
			}
			if c.s.Handle(f, len(m.Params), c.send) {
				continue
			}
		case *jsonrpc.Response:
			c.s.noteServerInfo(m.Result)
		}
		return msg, nil
	}
}

// Write implements mcp.Connection.
func (c *conn) Write(ctx context.Context, msg jsonrpc.Message) error {
	out, keep := c.s.rewriteMessage(msg)
	if !keep {
		return nil
	}
	return c.Connection.Write(ctx, out)
}

// rewriteMessage adds the broker's capabilities to a message of the SDK. keep is false for a
// message that must not be sent.
func (s *Session) rewriteMessage(msg jsonrpc.Message) (out jsonrpc.Message, keep bool) {
	req, ok := msg.(*jsonrpc.Request)
	if !ok {
		return msg, true
	}
	params, keep := s.rewriteParams(req.Method, req.Params)
	if !keep {
		return nil, false
	}
	copied := *req
	copied.Params = params
	return &copied, true
}

// Close implements mcp.Connection.
func (c *conn) Close() error {
	err := c.Connection.Close()
	go c.s.Close()
	return err
}

// send writes a frame of the session. It checks the frame once, as a whole, because only the SDK's
// connection knows how much of the frame the peer has taken when a root ends.
func (c *conn) send(ctx context.Context, frame []byte, recheck Recheck) error {
	if recheck != nil {
		c.sending.Lock()
		defer c.sending.Unlock()
		if ok, replacement := recheck(); !ok {
			frame = replacement
		}
		if frame == nil {
			return nil
		}
	}
	msg, err := jsonrpc.DecodeMessage(frame)
	if err != nil {
		return err
	}
	return c.Connection.Write(ctx, msg)
}

// Bind keeps the roots of an SDK client in step with the session's: since
// 2026-07-28 a server asks for roots inside a result (SEP-2322), and the SDK
// answers such a request from its own list.
func (s *Session) Bind(client *mcp.Client) {
	if s.b.cfg.NoRoots {
		return
	}
	b := &binding{s: s, client: client}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.clients = append(s.clients, b)
	}
	s.mu.Unlock()
	if !closed {
		b.sync()
	}
}

// binding has an SDK client and the roots that the client was given.
type binding struct {
	s      *Session
	client *mcp.Client

	mu    sync.Mutex        // held while the two lists are brought in step
	given map[string]string // names of the roots that the client has, by URI
}

// sync gives the client the session's roots. An ended session has none.
func (b *binding) sync() {
	b.mu.Lock()
	defer b.mu.Unlock()
	roots := map[string]string{}
	if b.s.ctx.Err() == nil {
		for _, st := range b.s.visible() {
			r := b.s.b.rootOf(&st)
			roots[r.URI] = r.Name
		}
	}
	var removed []string
	for uri := range b.given {
		if _, ok := roots[uri]; !ok {
			removed = append(removed, uri)
		}
	}
	b.client.RemoveRoots(removed...)
	var added []*mcp.Root
	for uri, name := range roots {
		if b.given[uri] != name {
			added = append(added, &mcp.Root{URI: uri, Name: name})
		}
	}
	b.client.AddRoots(added...)
	b.given = roots
}

// syncClients calls sync for each SDK client in a goroutine: the SDK writes to every session of
// the client, and a revocation must not wait for that.
func (s *Session) syncClients() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, b := range s.clients {
		s.wg.Go(b.sync)
	}
}
