package tools

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flow"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// maxFrame is the longest line taken, bytes: what write_file can be given.
const maxFrame = 32 << 20

// maxHeld bounds the lines of calls that have no answer yet, in bytes. A client that
// sends more is not read meanwhile. Only tests change it.
var maxHeld int64 = 2 * maxFrame

// patience is how long requests under way are waited for when the client has
// hung up.
const patience = 3 * time.Second

// Run serves one client over a pair of streams, one JSON object a line, as MCP's
// stdio has it, until it hangs up or ctx ends. A line that is no message, or too
// long, costs that line and not the session. What calls without an answer hold is
// bounded: a client that sends more is not read until one of them has its answer, and
// is refused what it sends while an answer of its own is waited for. What was asked before the client hung
// up is answered, for a moment; questions to a person are withdrawn at once, and the
// server asks no more. The end of ctx ends what is under way, too.
//
// Calls of tools, in the revisions that begin with a handshake, are taken out of
// the lines and answered here: through the SDK, which reads and writes each message
// several times, they would take several times as long (lab/mcp.md).
func (s *Server) Run(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
	t := &lines{s: s, r: r, w: w}
	ss, err := s.mcp.Connect(ctx, t, nil)
	if err != nil {
		return err
	}
	t.conn.session.Store(ss)
	defer context.AfterFunc(ctx, func() {
		s.cancel() // the SDK waits for what is under way
		_ = ss.Close()
	})()
	err = ss.Wait()
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// lines is the transport.
type lines struct {
	s    *Server
	r    io.ReadCloser
	w    io.WriteCloser
	conn *lineConn
}

// Connect implements mcp.Transport.
func (t *lines) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConn{s: t.s, idle: make(chan struct{}, 1), calls: map[string]context.CancelFunc{}}
	c.LineConn = wire.NewLineConn(t.r, t.w, wire.Hooks{Take: c.take, Lenient: true, HungUp: c.hungUp})
	c.Bound(&flow.Budget{Count: t.s.cfg.InFlight, Bytes: maxHeld},
		func() bool { return t.s.questions.Load() == 0 },
		func(why string) { t.s.recordRefusal("a request", &guard.Error{Kind: names.Rate, Err: errors.New(why)}) })
	c.ctx, c.end = context.WithCancel(context.Background())
	t.conn = c
	go c.Run(maxFrame)
	return c, nil
}

// lineConn answers calls of tools itself, and hands the SDK the rest.
type lineConn struct {
	*wire.LineConn
	s       *Server
	session atomic.Pointer[mcp.ServerSession] // nil until it is known
	ctx     context.Context                   // of the calls that are answered here
	end     context.CancelFunc
	passed  atomic.Int64 // messages handed over, and those that then were taken
	taken   atomic.Int64
	pending atomic.Int64  // requests without an answer
	idle    chan struct{} // told when one of them changes

	long sync.Mutex // held by who writes a long answer

	mu    sync.Mutex                    // guards the field below
	calls map[string]context.CancelFunc // that are answered here, by id
}

var _ mcp.Connection = (*lineConn)(nil)

// Close implements mcp.Connection.
func (c *lineConn) Close() error {
	c.end()
	return c.LineConn.Close()
}

// Read implements mcp.Connection.
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.LineConn.Read(ctx)
	if r, ok := msg.(*jsonrpc.Request); ok && r.IsCall() {
		c.pending.Add(1)
	}
	if err == nil {
		c.taken.Add(1)
		c.tell()
	}
	return msg, err
}

func (c *lineConn) tell() {
	select {
	case c.idle <- struct{}{}:
	default:
	}
}

// take answers a call. Everything that is not exactly what it should be is the SDK's.
func (c *lineConn) take(f wire.Frame, line []byte) (taken bool) {
	if ss := c.session.Load(); ss != nil {
		if p := ss.InitializeParams(); p != nil && p.ProtocolVersion < sessionless {
			switch f.Method {
			case "tools/call":
				taken = c.call(ss, f, len(line))
			case "notifications/cancelled":
				taken = c.cancelled(f)
			}
		}
	}
	if !taken {
		c.passed.Add(1)
	}
	return taken
}

// call begins a call, whose line has size bytes; ok is false where it is the SDK's.
func (c *lineConn) call(ss *mcp.ServerSession, f wire.Frame, size int) (ok bool) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      map[string]any  `json:"_meta"`
	}
	if !f.Call() || wire.Decode(f.Params, &p) != nil {
		return false
	}
	t := c.s.offered(p.Name)
	if t == nil {
		return false
	}
	ctx, cancel := context.WithCancel(c.ctx)
	id := string(f.ID)
	c.mu.Lock()
	_, taken := c.calls[id]
	if !taken {
		c.calls[id] = cancel
	}
	c.mu.Unlock()
	if taken {
		cancel()
		return false
	}
	room, ok := c.Enter(f.ID, size)
	if !ok {
		c.mu.Lock()
		delete(c.calls, id)
		c.mu.Unlock()
		cancel()
		return true
	}
	c.pending.Add(1)
	go func() {
		defer c.tell()
		defer c.pending.Add(-1)
		defer room.Release()
		defer cancel()
		res, err := c.s.answer(ctx, t, &mcp.CallToolRequest{Session: ss, Params: &mcp.CallToolParamsRaw{Name: p.Name, Arguments: p.Arguments, Meta: p.Meta}})
		c.mu.Lock()
		_, wanted := c.calls[id]
		delete(c.calls, id)
		c.mu.Unlock()
		if !wanted {
			return // it was cancelled, and who cancels wants no answer
		}
		if err != nil {
			_ = c.Send(jsonline.AppendError(nil, f.ID, wire.Error{Code: wire.CodeInternal, Message: errorText(err)}))
			return
		}
		c.send(f.ID, res)
	}()
	return true
}

// send writes the answer to a call. Whoever hung up wants none.
func (c *lineConn) send(id []byte, res *result) {
	if res.isLong() { // as JSON it is twice as long, or more
		c.long.Lock()
		defer c.long.Unlock()
	}
	b := res.frame(id)
	_ = c.Send(b)
	putBuffer(b)
}

// cancelled ends a call; ok is false where it is the SDK's.
func (c *lineConn) cancelled(f wire.Frame) (ok bool) {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
		Reason    string          `json:"reason"`
		Meta      map[string]any  `json:"_meta"`
	}
	if wire.Decode(f.Params, &p) != nil {
		return false
	}
	c.mu.Lock()
	cancel := c.calls[string(p.RequestID)]
	delete(c.calls, string(p.RequestID))
	c.mu.Unlock()
	if cancel == nil {
		return false
	}
	cancel()
	return true
}

// hungUp withdraws the questions to a person and waits until what was asked is answered.
func (c *lineConn) hungUp() {
	c.s.withdraw()
	enough := time.After(patience)
	for c.taken.Load() < c.passed.Load() || c.pending.Load() > 0 {
		select {
		case <-c.idle:
		case <-enough:
			return
		}
	}
}

// Write implements mcp.Connection.
func (c *lineConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if _, ok := msg.(*jsonrpc.Response); ok {
		defer func() {
			c.pending.Add(-1)
			c.tell()
		}()
	}
	return c.LineConn.Write(ctx, msg)
}
