package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/rootsfs/rootsfs/broker/internal/flow"
	"github.com/rootsfs/rootsfs/guard/names"
)

// LineConn is what both ends' connections over lines have in common: it hands
// messages to the SDK, writes frames, and ends. The loop that reads lines is each
// end's own, because each takes out of it what is its own.
type LineConn struct {
	r    io.ReadCloser
	w    io.WriteCloser
	out  *LineWriter
	in   chan jsonrpc.Message
	done chan struct{} // closed by Close
	once sync.Once
	err  error // why reading ended, set before in is closed

	complaints chan []byte // frames of Complain
	complain   sync.Once   // starts who sends them

	backlog *flow.Backlog    // of Bound, as the next
	refused func(why string) // is told of each message for which there was no room
}

// maxComplaints is how many complaints wait for a peer that does not read.
const maxComplaints = 64

// NewLineConn makes a connection of a pair of streams.
func NewLineConn(r io.ReadCloser, w io.WriteCloser) *LineConn {
	return &LineConn{r: r, w: w, out: NewLineWriter(w), in: make(chan jsonrpc.Message), done: make(chan struct{}),
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

// Ended says that nothing more will be read, and why. It is called once, by the
// loop that reads.
func (c *LineConn) Ended(err error) {
	c.err = err
	close(c.in)
}

// MaxBatch is how many messages one batch may have. Each may cost an answer, and
// whoever sends them need not read those.
const MaxBatch = 1000

// Frames calls frame for the message of a line, or for each of a batch (of
// revision 2025-03-26), until it reports that the connection is closed.
func (c *LineConn) Frames(line []byte, frame func([]byte) bool) bool {
	t := bytes.TrimSpace(line)
	switch {
	case len(t) == 0:
		return true
	case t[0] != '[':
		return frame(line)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(t, &list); err != nil || len(list) == 0 {
		c.Complain(nil, CodeParse, "not a JSON-RPC batch")
		return true
	}
	if len(list) > MaxBatch {
		c.Complain(nil, CodeInvalidRequest, fmt.Sprintf("a batch of more than %d messages; send fewer at a time", MaxBatch))
		return true
	}
	for _, m := range list {
		switch {
		case len(m) == 0 || m[0] != '{':
			c.Complain(nil, CodeInvalidRequest, "a member of the batch is no object")
		case !frame(m):
			return false
		}
	}
	return true
}

// Pass hands one message to the SDK; it reports false when the connection is
// closed. A request or a notification for which there is no room (Bound) is refused instead.
func (c *LineConn) Pass(frame []byte) bool {
	msg, err := jsonrpc.DecodeMessage(frame)
	if err != nil {
		c.Complain(nil, CodeInvalidRequest, "not a JSON-RPC message")
		return true
	}
	if r, ok := msg.(*jsonrpc.Request); ok && !c.admit(r, len(frame)) {
		return true
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

// Complain answers what could not be read, by the id that stands in line if it can
// be told (Asked): see complainTo.
//
// One goroutine sends the complaints; when too many wait for it,
// Complain does, so that whoever sends rubbish and does not read is not read any
// more.
func (c *LineConn) Complain(line []byte, code int, text string) {
	id, _ := Asked(line)
	c.complainTo(id, code, text)
}

// complainTo answers a request by its id; nil: it is not known.
func (c *LineConn) complainTo(id []byte, code int, text string) {
	if id == nil {
		id = []byte("null")
	}
	w := bytes.NewBuffer(append(AppendReply(nil, id), `,"error":`...))
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if enc.Encode(Error{Code: code, Message: names.Brief(text)}) != nil {
		return
	}
	frame := append(bytes.TrimSuffix(w.Bytes(), []byte("\n")), '}')
	c.complain.Do(func() { go c.sendComplaints() })
	select {
	case c.complaints <- frame:
	case <-c.done:
	}
}

func (c *LineConn) sendComplaints() {
	for {
		select {
		case frame := <-c.complaints:
			_ = c.Send(frame) // if it cannot be, whoever reads finds out
		case <-c.done:
			return
		}
	}
}

// ErrClosed is Send's after Close.
var ErrClosed = fmt.Errorf("the connection was closed: %w", io.ErrClosedPipe)

// Send writes one frame, never torn.
func (c *LineConn) Send(frame []byte) error {
	select {
	case <-c.done:
		return ErrClosed
	default:
	}
	return c.out.Write(frame)
}

// Close closes both streams, once.
func (c *LineConn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.done)
		err = c.w.Close()
		if rerr := c.r.Close(); !errors.Is(rerr, os.ErrClosed) { // waiting for a child has closed it
			err = errors.Join(err, rerr)
		}
	})
	return err
}
