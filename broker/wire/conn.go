package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/guard/names"
)

// LineConn is a connection on which each line has a message or a batch, for either end. It reads
// lines, hands messages to the SDK, and writes frames. Each end uses Hooks to take the messages
// that the SDK does not handle.
type LineConn struct {
	r     io.ReadCloser
	w     io.WriteCloser
	out   *jsonline.Writer
	hooks Hooks
	in    chan jsonrpc.Message
	done  chan struct{} // closed by Close
	once  sync.Once
	err   error // why reading ended, set before in is closed

	complaints chan []byte  // frames of complainTo
	complain   sync.Once    // starts sendComplaints
	unsent     atomic.Int64 // frames of complainTo that are not written yet

	backlog *flowcontrol.Backlog // set by Bound
	refused func(why string)     // set by Bound; called for each message for which there is no room
}

// Hooks handle the messages that one end reads; a nil hook does nothing. The goroutine that
// reads calls them before it looks at the next message. The SDK never sees a message that a
// hook takes.
type Hooks struct {
	// Intercept may take a message. f.ID and f.Params lie in line. If the hook takes the message,
	// it may keep line.
	Intercept func(f Frame, line []byte) (taken bool)
	// Reply may take the result of a request. id is the text of the request's id; nil: the id is no
	// string. The result has not been checked to be JSON. id and result may lie in line. If the
	// hook takes the result, it may keep line.
	Reply func(id, result, line []byte) (taken bool)
	// Unread is called for a line that is too long, or is no message. If it does not take
	// the line, the peer gets an error, with the id of the line's request if that can be read.
	Unread func(h *jsonline.Head, why string) (taken bool)
	// Lenient lets the SDK decode the lines that ReadFrame refuses. For such a line Intercept gets
	// an empty Frame.
	Lenient bool
	// Hand is called with each request and notification for the SDK, before the SDK has it.
	Hand func(*jsonrpc.Request)
	// HungUp is called when the stream from the peer ends or fails. The SDK gets the end of the
	// stream afterwards.
	HungUp func()
}

// maxComplaints is how many error responses of complainTo may be queued for a peer that does not
// read.
const maxComplaints = 64

// NewLineConn makes a connection of a pair of streams. Run reads from it.
func NewLineConn(r io.ReadCloser, w io.WriteCloser, hooks Hooks) *LineConn {
	return &LineConn{r: r, w: w, out: jsonline.NewWriter(w), hooks: hooks, in: make(chan jsonrpc.Message), done: make(chan struct{}),
		complaints: make(chan []byte, maxComplaints)}
}

// SessionID implements mcp.Connection; streams have none.
func (c *LineConn) SessionID() string { return "" }

// Read implements mcp.Connection.
func (c *LineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case msg, ok := <-c.in:
		if !ok {
			return nil, c.err
		}
		return msg, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, io.EOF
	}
}

// Run reads lines of at most limit bytes until the peer hangs up or the connection is
// closed. After a line that is too long, or is no message, it goes on.
func (c *LineConn) Run(limit int) {
	c.err = c.read(limit)
	close(c.in)
}

func (c *LineConn) read(limit int) error {
	r := bufio.NewReaderSize(c.r, 64<<10)
	for {
		var buf []byte // a new buffer for each line: a hook that takes a message may keep the line
		if c.hooks.Reply != nil {
			buf = jsonline.Lines.Get()
		}
		line, long, err := jsonline.ReadLine(r, buf, limit)
		switch {
		case err != nil: // a last line without an end is dropped
			if c.hooks.HungUp != nil {
				c.hooks.HungUp()
			}
			return err
		case long != nil:
			c.unread(long, CodeInvalidRequest, fmt.Sprintf("a line is longer than %d bytes", limit))
		case !c.line(line):
			return io.EOF
		}
	}
}

// MaxBatch is how many messages one batch may have. Each may cost an answer, and the
// sender need not read the answers.
const MaxBatch = 1000

// line handles the message of a line, or each message of a batch (revision 2025-03-26). It
// reports false when the connection is closed.
func (c *LineConn) line(line []byte) bool {
	i := jsonline.SkipSpace(line, 0)
	switch {
	case i == len(line):
		return true
	case line[i] != '[':
		return c.message(line)
	}
	members, ok := jsonline.Batch(line, MaxBatch)
	switch {
	case len(members) > MaxBatch:
		c.complainTo(nil, CodeInvalidRequest, fmt.Sprintf("a batch of more than %d messages; send fewer at a time", MaxBatch))
		return true
	case !ok || jsonline.Check(line) != nil: // a batch with a mistake in its JSON is refused as a whole
		c.complainTo(nil, CodeParse, "not a JSON-RPC batch")
		return true
	case len(members) == 0:
		c.complainTo(nil, CodeInvalidRequest, "not a JSON-RPC batch: it is empty")
		return true
	}
	for _, m := range members {
		switch m := m.Of(line); {
		case m[0] != '{':
			c.complainTo(nil, CodeInvalidRequest, "a member of the batch is no object")
		case !c.message(bytes.Clone(m)): // a hook that takes the member may keep it
			return false
		}
	}
	return true
}

// message handles one message. It reports false when the connection is closed.
func (c *LineConn) message(line []byte) bool {
	p, ok := jsonline.Parse(line)
	if ok && c.hooks.Reply != nil && p.Method.Absent() && p.Error.Absent() && !p.Result.Absent() && p.Clash.Absent() &&
		c.hooks.Reply(jsonline.Unquote(p.ID.Of(line)), p.Result.Of(line), line) {
		return true
	}
	f, err := frameOf(line, &p, ok)
	if err != nil && !c.hooks.Lenient {
		c.unread(jsonline.HeadOf(line), CodeParse, "a line is no JSON-RPC message: "+names.Brief(err.Error()))
		return true
	}
	if c.hooks.Intercept != nil && c.hooks.Intercept(f, line) {
		return true
	}
	return c.pass(line)
}

// unread handles a line that is too long, or is no message.
func (c *LineConn) unread(h *jsonline.Head, code int, why string) {
	if c.hooks.Unread != nil && c.hooks.Unread(h, why) {
		return
	}
	id, _ := h.Request()
	c.complainTo(id, code, why)
}

// pass hands one message to the SDK; it reports false when the connection is
// closed. If there is no room (Bound), the request or notification is refused instead.
func (c *LineConn) pass(frame []byte) bool {
	msg, err := jsonrpc.DecodeMessage(jsonline.HideNumbers(frame))
	if err != nil {
		code := CodeInvalidRequest
		if jsonline.Check(frame) != nil {
			code = CodeParse
		}
		c.complainTo(nil, code, "not a JSON-RPC message")
		return true
	}
	if r, ok := msg.(*jsonrpc.Request); ok {
		if !c.admit(r, len(frame)) {
			return true
		}
		if c.hooks.Hand != nil {
			c.hooks.Hand(r)
		}
	}
	return c.hand(msg) && c.backlog.Probe()
}

// hand hands a message to the SDK; it reports false when the connection is closed.
func (c *LineConn) hand(msg jsonrpc.Message) bool {
	select {
	case c.in <- msg:
		return true
	case <-c.done:
		return false
	}
}

// complainTo sends an error response for a message that was not accepted. id is the id of the
// request; nil: the id is not known.
//
// One goroutine sends these error responses. If too many of them are queued, complainTo waits. So
// the connection reads no more lines from a peer that sends rubbish and does not read.
func (c *LineConn) complainTo(id []byte, code int, text string) {
	if id == nil {
		id = []byte("null")
	}
	frame := jsonline.AppendError(nil, id, Error{Code: code, Message: names.Brief(text)})
	c.complain.Do(func() { go c.sendComplaints() })
	c.unsent.Add(1)
	select {
	case c.complaints <- frame:
	case <-c.done:
	}
}

// IsComplaining reports whether there are error responses of complainTo that are not written yet.
func (c *LineConn) IsComplaining() bool { return c.unsent.Load() > 0 }

func (c *LineConn) sendComplaints() {
	for {
		select {
		case frame := <-c.complaints:
			_ = c.Send(frame) // if that fails, the reader finds out
			c.unsent.Add(-1)
		case <-c.done:
			return
		}
	}
}

// Write implements mcp.Connection.
func (c *LineConn) Write(_ context.Context, msg jsonrpc.Message) error { return c.WriteIf(msg, nil) }

// WriteIf writes a message as SendIf writes a frame. A result is JSON already, and is copied
// without being parsed. The SDK's answer to a probe (flowcontrol.Backlog) is not written.
func (c *LineConn) WriteIf(msg jsonrpc.Message, recheck jsonline.Recheck) error {
	r, ok := msg.(*jsonrpc.Response)
	if ok {
		defer c.backlog.ReleaseAnswered(r.ID)
		if c.backlog.IsProbe(r.ID) {
			return nil
		}
	}
	if ok && r.Error == nil && len(r.Result) > 0 {
		b := make([]byte, 0, len(r.Result)+64) // and the rest of the frame
		b = jsonline.AppendResult(jsonline.AppendReply(b, RawID(r.ID)))
		return c.SendIf(append(append(b, r.Result...), '}'), recheck)
	}
	b, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return c.SendIf(jsonline.ShowNumbers(b), recheck)
}

// RawID returns the id of a message of the SDK's as the peer sent it, as JSON.
func RawID(id jsonrpc.ID) []byte { return jsonline.ShowNumbers(jsonline.AppendValue(nil, id.Raw())) }

// Send writes one frame on a line of its own. After Close it fails with
// mcp.ErrConnectionClosed.
func (c *LineConn) Send(frame []byte) error { return c.SendIf(frame, nil) }

// SendIf is Send for a frame that recheck may refuse until the frame is written (jsonline.Recheck).
func (c *LineConn) SendIf(frame []byte, recheck jsonline.Recheck) error {
	select {
	case <-c.done:
		return mcp.ErrConnectionClosed
	default:
	}
	return c.out.SendIf(frame, recheck)
}

// Close closes both streams, once.
func (c *LineConn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.done)
		err = c.w.Close()
		// The reader may be closed already: the pipe of a child that was waited for, or a
		// socket, which is both streams.
		if rerr := c.r.Close(); !errors.Is(rerr, os.ErrClosed) && !errors.Is(rerr, net.ErrClosed) {
			err = errors.Join(err, rerr)
		}
	})
	return err
}
