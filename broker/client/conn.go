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
	broker    *Broker
	id        string // the session's
	prefix    string // of our request ids
	done      chan struct{}
	transfers transfers

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
	reply  chan reply // one element
}

// reply is what came of a request. Its result may lie in a buffer that is used
// again after release.
type reply struct {
	result json.RawMessage
	err    error
	buf    *[]byte
}

func (r *reply) release() {
	giveBuffer(r.buf)
	r.result, r.buf = nil, nil
}

// poster is a connection that encodes requests of ours itself. The function it
// returns writes the request, and is called once.
type poster interface {
	post(id, method string, params any) (write func() error)
}

func newConn(b *Broker, inner mcp.Connection) *conn {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails since Go 1.24
	c := &conn{
		Connection: inner, broker: b, id: inner.SessionID(), done: make(chan struct{}), transfers: newTransfers(),
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
		c.answered([]byte(id), reply{result: m.Result, err: m.Error})
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

func (c *conn) answered(id []byte, r reply) {
	c.mu.Lock()
	p := c.calls[string(id)]
	delete(c.calls, string(id))
	c.mu.Unlock()
	if p == nil {
		r.release()
		return
	}
	if p.accept != nil && r.err == nil {
		p.accept(r.result)
	}
	p.reply <- r
}

// call sends one request and waits for its result. It returns *jsonrpc.Error for
// an error reply, ctx.Err() when ctx ended (the client is told), or why the
// connection ended. ctx should be the handler's: over HTTP it says on which
// stream the request travels. The reply is to be released.
func (c *conn) call(ctx context.Context, method string, params any, accept func(json.RawMessage)) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	id, p, err := c.begin(accept)
	if err != nil {
		return reply{}, err
	}
	write := c.request(ctx, id, method, params)
	sent := make(chan error, 1)
	go func() { sent <- write() }() // apart, because a full pipe holds no deadline
	wrote := sent
	for {
		select {
		case err := <-wrote:
			if err != nil && ctx.Err() == nil {
				c.forget(id)
				return reply{}, err
			}
			wrote = nil
		case r := <-p.reply:
			return r, r.err
		case <-c.done:
			c.forget(id)
			return reply{}, c.why()
		case <-ctx.Done():
			c.forget(id)
			go c.cancel(context.WithoutCancel(ctx), id, sent, wrote == nil, ctx.Err())
			return reply{}, ctx.Err()
		}
	}
}

func (c *conn) begin(accept func(json.RawMessage)) (string, *call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return "", nil, c.ended
	}
	if c.mrtr && len(c.open) == 0 {
		return "", nil, ErrNoOpenRequest
	}
	c.next++
	id := c.prefix + strconv.FormatUint(c.next, 10)
	p := &call{accept: accept, reply: make(chan reply, 1)}
	c.calls[id] = p
	return id, p, nil
}

// request encodes a request and returns what writes it.
func (c *conn) request(ctx context.Context, id, method string, params any) (write func() error) {
	if l, ok := c.Connection.(poster); ok {
		return l.post(id, method, params)
	}
	raw, err1 := encode(params)
	rid, err2 := jsonrpc.MakeID(id)
	return func() error {
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		return c.Connection.Write(ctx, &jsonrpc.Request{ID: rid, Method: method, Params: raw})
	}
}

func (c *conn) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

func (c *conn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// cancel tells the client that nobody waits any more, after the request itself
// has been written.
func (c *conn) cancel(ctx context.Context, id string, sent <-chan error, written bool, why error) {
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
	params, err := encode(map[string]any{"requestId": id, "reason": why.Error()})
	if err != nil {
		return
	}
	_ = c.Connection.Write(ctx, &jsonrpc.Request{Method: wire.Cancelled, Params: params})
}

// encode is json.Marshal without the escapes meant for HTML, which make text
// six times as long.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	err := encodeTo(&b, v)
	return b.Bytes(), err
}

func encodeTo(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	if err == nil {
		b.Truncate(b.Len() - 1) // the end of line
	}
	return err
}

// ErrNoOpenRequest answers a call outside a request of the client's under
// revision 2026-07-28, which has no standalone server requests.
var ErrNoOpenRequest = errors.New("the protocol revision allows asking the client only while one of its requests is being answered")
