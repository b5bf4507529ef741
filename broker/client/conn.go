package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// notifyTimeout bounds the sending of a cancellation, which is a courtesy.
const notifyTimeout = 5 * time.Second

// conn is a connection of the SDK. It takes the responses to its own requests, and
// notifications/files/changed, before the SDK sees them.
type conn struct {
	mcp.Connection
	broker    *Broker
	id        string        // the session's
	prefix    string        // of the ids of requests
	done      chan struct{} // closed when endErr is set
	transfers transfers

	mu     sync.Mutex              // guards the fields below
	next   uint64                  // number of the last request sent
	calls  map[string]chan<- reply // requests in flight, by id; each channel has room for its reply
	open   map[jsonrpc.ID]struct{} // requests of the client not answered yet
	caps   Capability
	endErr error // why there will be no more answers; nil while the connection lives

	watches   map[string]*watch    // by id
	expected  int                  // files/watch requests in flight
	early     []wire.ChangedParams // changes of unknown watches while expected > 0, perhaps of an expected watch
	earlyLost bool                 // there were more changes than early has room for
}

// reply is the outcome of a request. Its result may lie in a buffer that is used
// again after release.
type reply struct {
	result json.RawMessage
	err    error
	buf    []byte
}

func (r *reply) release() {
	jsonline.Lines.Put(r.buf)
	r.result, r.buf = nil, nil
}

func newConn(b *Broker, inner mcp.Connection) *conn {
	c := &conn{
		Connection: inner, broker: b, id: inner.SessionID(), done: make(chan struct{}), transfers: newTransfers(),
		prefix: "rootsfs:" + rand.Text() + ":",
		calls:  map[string]chan<- reply{}, open: map[jsonrpc.ID]struct{}{}, watches: map[string]*watch{},
	}
	if c.id == "" {
		c.id = "rootsfs-" + rand.Text()
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
		if !c.intercept(msg) {
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

// end fails the calls in flight and ends the watches, once.
func (c *conn) end(err error) {
	c.broker.remove(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil {
		return
	}
	c.endErr = err
	close(c.done)
	for _, w := range c.watches {
		c.endLocked(w)
	}
}

// intercept handles a message that is not for the SDK. It reports whether it handled the
// message.
func (c *conn) intercept(msg jsonrpc.Message) bool {
	switch m := msg.(type) {
	case *jsonrpc.Response:
		id, ok := m.ID.Raw().(string)
		if !ok || !strings.HasPrefix(id, c.prefix) {
			return false
		}
		r := reply{result: m.Result, err: m.Error}
		if m.Error != nil && len(m.Result) > 0 {
			r.err = errors.New("the client's result is malformed: it has an error, too")
		}
		c.deliver([]byte(id), r)
		return true // deliver drops the reply to a call that was given up
	case *jsonrpc.Request:
		if m.Method == wire.Changed && !m.IsCall() {
			c.handleChanged(m.Params)
			return true
		}
		c.note(m)
	}
	return false
}

// note records a request of the client as open, and the capabilities that it declares.
func (c *conn) note(m *jsonrpc.Request) {
	if !m.IsCall() {
		return
	}
	caps, ok := readDeclaration(m.Method, m.Params)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[m.ID] = struct{}{}
	if ok {
		c.caps = caps
	}
}

func (c *conn) capability() Capability {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.caps
}

// deliver passes a reply to the caller that waits for it, or drops the reply if no caller waits.
func (c *conn) deliver(id []byte, r reply) {
	c.mu.Lock()
	to := c.calls[string(id)]
	delete(c.calls, string(id))
	c.mu.Unlock()
	if to == nil {
		r.release()
		return
	}
	to <- r
}

// call sends one request and waits for its result. The error is a *jsonrpc.Error for an error
// reply, or the reason why the request could not be sent or the connection ended. If ctx ends first,
// the error is ctx.Err(), and the client is told to cancel the request. ctx should be the handler's:
// over HTTP it selects the stream for the request. The caller must release the reply.
func (c *conn) call(ctx context.Context, method string, params any) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	answer := make(chan reply, 1)
	id, err := c.begin(answer)
	if err != nil {
		return reply{}, err
	}
	defer c.forget(id)
	write := c.encodeRequest(ctx, id, method, params)
	sent := make(chan struct{})
	go func() { // in a goroutine, because a write to a full pipe ignores the deadline of ctx
		defer close(sent)
		if err := write(); err != nil {
			c.deliver([]byte(id), reply{err: cmp.Or(ctx.Err(), err)})
		}
	}()
	select {
	case r := <-answer:
		return r, r.err
	case <-c.done:
		return reply{}, c.endErr // without the lock: it does not change after done was closed
	case <-ctx.Done():
		go c.cancel(context.WithoutCancel(ctx), id, sent, ctx.Err())
		return reply{}, ctx.Err()
	}
}

// begin makes the id of a request and registers answer for its reply.
func (c *conn) begin(answer chan<- reply) (id string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil {
		return "", c.endErr
	}
	if c.caps.insideOnly && len(c.open) == 0 {
		return "", ErrNoOpenRequest
	}
	c.next++
	id = c.prefix + strconv.FormatUint(c.next, 10)
	c.calls[id] = answer
	return id, nil
}

// encodeRequest encodes a request and returns a function that writes it.
func (c *conn) encodeRequest(ctx context.Context, id, method string, params any) (write func() error) {
	frame := jsonline.AppendCall(jsonline.Frames.Get(), []byte(`"`+id+`"`), method, params)
	if l, ok := c.Connection.(*lineConn); ok {
		return func() error {
			defer jsonline.Frames.Put(frame)
			return l.Send(frame)
		}
	}
	return func() error {
		msg, err := jsonrpc.DecodeMessage(frame)
		if err != nil {
			return err
		}
		return c.Connection.Write(ctx, msg)
	}
}

func (c *conn) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

// cancel tells the client that the reply is no longer wanted, once the request itself has
// been written.
func (c *conn) cancel(ctx context.Context, id string, sent <-chan struct{}, why error) {
	ctx, stop := context.WithTimeout(ctx, notifyTimeout)
	defer stop()
	select {
	case <-sent:
	case <-ctx.Done():
		return
	}
	params := jsonline.AppendValue(nil, map[string]any{"requestId": id, "reason": why.Error()})
	_ = c.Connection.Write(ctx, &jsonrpc.Request{Method: wire.Cancelled, Params: params})
}

// ErrNoOpenRequest is the error of a call that is made outside a request of the client under
// revision 2026-07-28, which has no standalone server requests.
var ErrNoOpenRequest = errors.New("the protocol revision allows asking the client only while one of its requests is being answered")
