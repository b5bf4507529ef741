package tools

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
)

// maxFrame is the longest line taken, bytes: what write_file can be given.
const maxFrame = 32 << 20

// patience is how long requests under way are waited for when the client has
// hung up.
const patience = 3 * time.Second

// Lines is a transport over a pair of streams, one JSON object a line, as MCP's
// stdio has it. It is several times faster than the SDK's (lab/mcp.md). A line
// that is no message, or too long, costs that line and not the session. What was
// asked before the client hung up is answered, for a moment.
func Lines(r io.ReadCloser, w io.WriteCloser) mcp.Transport { return &lines{r, w} }

type lines struct {
	r io.ReadCloser
	w io.WriteCloser
}

// Connect implements mcp.Transport.
func (t *lines) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConn{LineConn: wire.NewLineConn(t.r, t.w), idle: make(chan struct{}, 1)}
	go c.run(t.r)
	return c, nil
}

// lineConn is the connection; wire.LineConn reads and closes.
type lineConn struct {
	*wire.LineConn
	passed  atomic.Int64 // messages handed over, and those that then were taken
	taken   atomic.Int64
	pending atomic.Int64  // requests without an answer
	idle    chan struct{} // told when one of them changes
}

var _ mcp.Connection = (*lineConn)(nil)

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

// pass hands a message over.
func (c *lineConn) pass(frame []byte) bool {
	c.passed.Add(1)
	return c.Pass(frame)
}

// settle waits until what was asked is answered.
func (c *lineConn) settle() {
	enough := time.After(patience)
	for c.taken.Load() < c.passed.Load() || c.pending.Load() > 0 {
		select {
		case <-c.idle:
		case <-enough:
			return
		}
	}
}

// run reads lines until the client hangs up.
func (c *lineConn) run(from io.Reader) {
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := wire.ReadLine(r, nil, maxFrame) // a request keeps its line
		switch {
		case errors.Is(err, wire.ErrTooLong):
			c.Complain(wire.CodeInvalidRequest, fmt.Sprintf("a line is longer than %d bytes", maxFrame))
		case err != nil:
			c.settle()
			c.Ended(err) // half a line and a hang-up is a hang-up
			return
		case !c.Frames(line, c.pass):
			c.Ended(io.EOF)
			return
		}
	}
}

// Write implements mcp.Connection. A result is JSON already, and is not read
// again to be written.
func (c *lineConn) Write(_ context.Context, msg jsonrpc.Message) error {
	r, ok := msg.(*jsonrpc.Response)
	if ok {
		defer func() {
			c.pending.Add(-1)
			c.tell()
		}()
	}
	if ok && r.Error == nil && len(r.Result) > 0 {
		id, err := json.Marshal(r.ID.Raw())
		if err != nil {
			return err
		}
		b := make([]byte, 0, len(r.Result)+len(id)+64) // and the rest of the frame
		b = wire.AppendResult(wire.AppendReply(b, id))
		return c.Send(append(append(b, r.Result...), '}'))
	}
	b, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return c.Send(b)
}
