package tools

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// maxFrame is the length of the longest line that is accepted, in bytes. It bounds the content
// for write_file. Only tests change maxFrame.
var maxFrame = 32 << 20

// maxHeld bounds the lines of requests that have no answer yet, in bytes. Beyond the bound the
// client's next lines wait. Only tests change maxHeld.
var maxHeld = 2 * int64(maxFrame)

// patience is how long Run waits for requests in progress after the client has hung up. Only
// tests change it.
var patience = 3 * time.Second

// Run serves one client over a pair of streams, one JSON object a line, as in MCP's transport
// stdio, until the client hangs up or ctx ends. After a line that is no message, or is too long,
// the session goes on. The memory of unanswered calls is bounded. Beyond the bound, the next line
// waits until a call has its answer. After 10 seconds Run refuses the line and reads on; it waits
// less if the server itself waits for an answer of the client. When the client has hung up, Run
// waits up to 3 seconds for the calls in progress. Questions to a person are withdrawn at once, and
// no more are asked. The end of ctx ends the calls in progress, too.
//
// Calls of tools, in the revisions that begin with a handshake, are answered here and not by
// the SDK. The SDK reads and writes each message several times, and takes several times as long
// (measured).
func (s *Server) Run(ctx context.Context, r io.ReadCloser, w io.WriteCloser) error {
	s.requests = &openRequests{}
	t := &lines{s: s, r: r, w: w}
	ss, err := s.mcp.Connect(ctx, t, nil)
	if err != nil {
		return err
	}
	t.conn.session.Store(ss)
	defer context.AfterFunc(ctx, func() {
		s.cancel() // because ss.Close waits for the calls in progress
		_ = ss.Close()
	})()
	err = ss.Wait()
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// lines is the transport of Run: a pair of streams with one JSON object a line.
type lines struct {
	s    *Server
	r    io.ReadCloser
	w    io.WriteCloser
	conn *lineConn
}

// Connect implements mcp.Transport.
func (t *lines) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConn{
		s: t.s, requests: &flowcontrol.Budget{Count: t.s.cfg.InFlight, Bytes: maxHeld}, calls: map[string]context.CancelFunc{},
	}
	c.LineConn = wire.NewLineConn(t.r, t.w, wire.Hooks{Intercept: c.intercept, Hand: c.hand, Lenient: true, HungUp: c.hungUp})
	c.Bound(c.requests,
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
	s        *Server
	session  atomic.Pointer[mcp.ServerSession] // nil until Run sets it
	ctx      context.Context                   // of the calls that are answered here
	end      context.CancelFunc
	requests *flowcontrol.Budget // of the requests that have no answer yet

	long   sync.Mutex // held while a long answer is written
	stamps sync.Map   // the *guard.Stamps of the SDK's answers that are not written yet, by the marks of their requests

	mu    sync.Mutex                    // guards the field below
	calls map[string]context.CancelFunc // calls that are answered here, by id
}

var _ mcp.Connection = (*lineConn)(nil)

// Close implements mcp.Connection.
func (c *lineConn) Close() error {
	c.end()
	return c.LineConn.Close()
}

// intercept answers a call of a tool, or cancels such a call. It reports false for any other or
// irregular message, and in revisions without a handshake: the SDK must handle the message.
func (c *lineConn) intercept(f wire.Frame, line []byte) (isHandled bool) {
	ss := c.session.Load()
	if ss == nil {
		return false
	}
	if p := ss.InitializeParams(); p == nil || p.ProtocolVersion >= sessionless {
		return false
	}
	switch f.Method {
	case "tools/call":
		return c.call(ss, f, len(line))
	case "notifications/cancelled":
		return c.cancelCall(f)
	}
	return false
}

// call begins a call, whose line has size bytes. It reports false if the SDK must answer the
// call.
func (c *lineConn) call(ss *mcp.ServerSession, f wire.Frame, size int) (ok bool) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      map[string]any  `json:"_meta"`
	}
	if hidden := jsonline.HideIn(f.Params); hidden != nil {
		f.Params = hidden
	}
	if !f.Call() || wire.Decode(f.Params, &p) != nil {
		return false
	}
	t := c.s.offered(p.Name)
	if t == nil {
		return false
	}
	room, ok := c.Reserve(f.ID, size)
	if !ok {
		return true // Reserve has refused the call
	}
	ctx, ok := c.begin(string(f.ID))
	if !ok {
		room.Release()
		return false
	}
	go func() {
		defer room.Release()
		res, err := c.s.answer(ctx, t, &mcp.CallToolRequest{Session: ss, Params: &mcp.CallToolParamsRaw{Name: p.Name, Arguments: p.Arguments, Meta: p.Meta}}, nil)
		switch {
		case !c.finish(string(f.ID)): // it was cancelled, and a cancelled call gets no answer
		case err != nil:
			_ = c.Send(jsonline.AppendError(nil, f.ID, wire.Error{Code: wire.CodeInternal, Message: errorText(err)}))
		default:
			c.send(f.ID, res)
		}
	}()
	return true
}

// begin makes the context of a call. It reports false if another call has this id.
func (c *lineConn) begin(id string) (ctx context.Context, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[id] != nil {
		return nil, false
	}
	ctx, c.calls[id] = context.WithCancel(c.ctx)
	return ctx, true
}

// finish ends the context of a call. It reports false if the call has ended already.
func (c *lineConn) finish(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cancel := c.calls[id]
	delete(c.calls, id)
	if cancel != nil {
		cancel()
	}
	return cancel != nil
}

// send writes the answer to a call. An error means that the client has hung up, and is ignored.
func (c *lineConn) send(id []byte, res *result) {
	if res.isLong() { // its frame may be twice as long, or longer: only one such frame is made at a time
		c.long.Lock()
		defer c.long.Unlock()
		if res.unlessRevoked != nil {
			res = res.unlessRevoked()
		}
	}
	b := res.frame(id)
	var recheck jsonline.Recheck
	if res.stamps != nil {
		recheck = func() (ok bool, replacement []byte) {
			if now := res.unlessRevoked(); now != res {
				return false, now.frame(id)
			}
			return true, nil
		}
	}
	_ = c.SendIf(b, recheck)
	putBuffer(b)
}

// hand marks a request that goes to the SDK. The mark is the id of the request. By this mark, Write
// finds the stamps of the roots whose data the answer has.
func (c *lineConn) hand(r *jsonrpc.Request) {
	if !r.IsCall() {
		return
	}
	mark := markOf(r.ID)
	r.Extra = &mcp.RequestExtra{Header: http.Header{markHeader: {mark}}}
	c.s.requests.byMark.Store(mark, &openRequest{ctx: c.ctx, addStamps: func(s *guard.Stamps) { c.stamps.Store(mark, s) }})
}

// markOf returns the mark of a request: its id as it is in JSON.
func markOf(id jsonrpc.ID) string { return string(wire.RawID(id)) }

// Write implements mcp.Connection.
func (c *lineConn) Write(_ context.Context, msg jsonrpc.Message) error {
	var recheck jsonline.Recheck
	if r, ok := msg.(*jsonrpc.Response); ok {
		mark := markOf(r.ID)
		c.s.requests.byMark.Delete(mark)
		if stamps, ok := c.stamps.LoadAndDelete(mark); ok && r.Error == nil {
			recheck = c.s.recheck([]byte(mark), stamps.(*guard.Stamps))
		}
	}
	return c.WriteIf(msg, recheck)
}

// cancelCall handles notifications/cancelled. It ends the call that the notification names, and
// reports false if no such call is answered here.
func (c *lineConn) cancelCall(f wire.Frame) (ok bool) {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
		Reason    string          `json:"reason"`
		Meta      map[string]any  `json:"_meta"`
	}
	return wire.Decode(f.Params, &p) == nil && c.finish(string(p.RequestID))
}

// hungUp is called when the client has hung up. It withdraws the questions to a person, and waits
// until every request has its answer or refusal, but not longer than patience.
func (c *lineConn) hungUp() {
	c.s.withdraw()
	for end := time.Now().Add(patience); c.ctx.Err() == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if n, _ := c.requests.Used(); n == 0 && !c.IsComplaining() {
			return
		}
	}
}
