package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// notifyTimeout bounds the sending of a cancellation, which is a courtesy.
const notifyTimeout = 5 * time.Second

// conn is a connection of the SDK's from which responses to our requests and
// notifications/files/changed are taken before the SDK sees them.
type conn struct {
	mcp.Connection
	broker *Broker
	id     string // the session's
	prefix string // of our request ids
	done   chan struct{}

	mu     sync.Mutex // guards the fields below
	next   uint64
	calls  map[string]*call
	open   map[jsonrpc.ID]struct{} // requests of the client not answered yet
	caps   Capability
	mrtr   bool  // revision 2026-07-28 or later
	ended  error // why there will be no more answers
	watch  map[string]*watch
	early  []wire.ChangedParams // came before the reply that names their watch
	asking int                  // files/watch requests in flight
}

// call is one request in flight. accept runs in the reading goroutine before
// the next message is looked at.
type call struct {
	accept func(result json.RawMessage)
	reply  chan *jsonrpc.Response // one element
}

func newConn(b *Broker, inner mcp.Connection) *conn {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails since Go 1.24
	c := &conn{
		Connection: inner, broker: b, id: inner.SessionID(), done: make(chan struct{}),
		prefix: "rootsfs:" + hex.EncodeToString(seed[:16]) + ":",
		calls:  map[string]*call{}, open: map[jsonrpc.ID]struct{}{}, watch: map[string]*watch{},
	}
	if c.id == "" {
		c.id = "rootsfs-" + hex.EncodeToString(seed[16:])
	}
	return c
}

// SessionID implements mcp.Connection.
func (c *conn) SessionID() string { return c.id }

// Read implements mcp.Connection.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		msg, err := c.Connection.Read(ctx)
		if err != nil {
			c.end(err)
			return nil, err
		}
		if !c.take(msg) {
			return msg, nil
		}
	}
}

// Write implements mcp.Connection.
func (c *conn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if r, ok := msg.(*jsonrpc.Response); ok {
		c.mu.Lock()
		delete(c.open, r.ID)
		c.mu.Unlock()
	}
	return c.Connection.Write(ctx, msg)
}

// Close implements mcp.Connection.
func (c *conn) Close() error {
	c.end(mcp.ErrConnectionClosed)
	return c.Connection.Close()
}

// end fails what is in flight, once.
func (c *conn) end(err error) {
	c.broker.remove(c)
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return
	}
	c.ended = err
	close(c.done)
	watches := c.watch
	c.watch = map[string]*watch{}
	c.mu.Unlock()
	for _, w := range watches {
		w.end()
	}
}

// take consumes a message that is ours and notes what others tell.
func (c *conn) take(msg jsonrpc.Message) bool {
	switch m := msg.(type) {
	case *jsonrpc.Response:
		id, ok := m.ID.Raw().(string)
		if !ok || !strings.HasPrefix(id, c.prefix) {
			return false
		}
		c.answered(id, m)
		return true // an answer to a call given up is dropped
	case *jsonrpc.Request:
		if m.Method == wire.Changed && !m.IsCall() {
			c.changed(m.Params)
			return true
		}
		c.note(m)
	}
	return false
}

// note remembers open requests, the revision and the capabilities.
func (c *conn) note(m *jsonrpc.Request) {
	version, caps, ok := "", Capability{}, false
	if m.IsCall() {
		version, caps, ok = declared(m.Method, m.Params)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.IsCall() {
		c.open[m.ID] = struct{}{}
	}
	if ok {
		// initialize negotiates at most the last revision with a handshake.
		c.caps, c.mrtr = caps, m.Method != methodInitialize && version >= revisionMRTR
	}
}

func (c *conn) capability() Capability {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.caps
}

func (c *conn) answered(id string, m *jsonrpc.Response) {
	c.mu.Lock()
	p := c.calls[id]
	delete(c.calls, id)
	c.mu.Unlock()
	if p == nil {
		return
	}
	if p.accept != nil && m.Error == nil {
		p.accept(m.Result)
	}
	p.reply <- m
}

// call sends one request and waits for its result. It returns *jsonrpc.Error for
// an error reply, ctx.Err() when ctx ended (the client is told), or why the
// connection ended. ctx should be the handler's: over HTTP it says on which
// stream the request travels.
func (c *conn) call(ctx context.Context, method string, params any, accept func(json.RawMessage)) (json.RawMessage, error) {
	raw, err := encode(params)
	if err != nil {
		return nil, err
	}
	req, p, err := c.begin(method, raw, accept)
	if err != nil {
		return nil, err
	}
	sent := make(chan error, 1)
	go func() { sent <- c.Connection.Write(ctx, req) }() // apart, because a full pipe holds no deadline
	wrote := sent
	for {
		select {
		case err := <-wrote:
			if err != nil && ctx.Err() == nil {
				c.forget(req.ID)
				return nil, err
			}
			wrote = nil
		case m := <-p.reply:
			return m.Result, m.Error
		case <-c.done:
			c.forget(req.ID)
			return nil, c.why()
		case <-ctx.Done():
			c.forget(req.ID)
			go c.cancel(context.WithoutCancel(ctx), req.ID, sent, wrote == nil, ctx.Err())
			return nil, ctx.Err()
		}
	}
}

func (c *conn) begin(method string, params json.RawMessage, accept func(json.RawMessage)) (*jsonrpc.Request, *call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return nil, nil, c.ended
	}
	if c.mrtr && len(c.open) == 0 {
		return nil, nil, ErrNoOpenRequest
	}
	c.next++
	id := c.prefix + strconv.FormatUint(c.next, 10)
	rid, err := jsonrpc.MakeID(id)
	if err != nil {
		return nil, nil, err
	}
	p := &call{accept: accept, reply: make(chan *jsonrpc.Response, 1)}
	c.calls[id] = p
	return &jsonrpc.Request{ID: rid, Method: method, Params: params}, p, nil
}

func (c *conn) forget(id jsonrpc.ID) {
	s, _ := id.Raw().(string)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, s)
}

func (c *conn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// cancel tells the client that nobody waits any more, after the request itself
// has been written.
func (c *conn) cancel(ctx context.Context, id jsonrpc.ID, sent <-chan error, written bool, why error) {
	ctx, stop := context.WithTimeout(ctx, notifyTimeout)
	defer stop()
	if !written {
		select {
		case err := <-sent:
			if err != nil {
				return
			}
		case <-c.done:
			return
		case <-ctx.Done():
			return
		}
	}
	params, err := encode(map[string]any{"requestId": id.Raw(), "reason": why.Error()})
	if err != nil {
		return
	}
	_ = c.Connection.Write(ctx, &jsonrpc.Request{Method: wire.Cancelled, Params: params})
}

// encode is json.Marshal without the escapes meant for HTML, which make text
// six times as long.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// ErrNoOpenRequest answers a call outside a request of the client's under
// revision 2026-07-28, which has no standalone server requests.
var ErrNoOpenRequest = errors.New("the protocol revision allows asking the client only while one of its requests is being answered")
