package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/internal/flow"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Lines is a transport of the session's own over a pair of streams, one JSON
// object a line, as MCP's stdio has it. It reads several times faster than the
// SDK's, whose decoder costs more than everything else here (lab/mcp.md), and
// outlives what a server writes by mistake: a line that is no JSON, or too long,
// costs that line. maxFrame is the longest line taken, in bytes; 0 means
// DefaultFrame.
func (s *Session) Lines(r io.ReadCloser, w io.WriteCloser, maxFrame int) mcp.Transport {
	if maxFrame <= 0 {
		maxFrame = DefaultFrame
	}
	return &lines{s: s, r: r, w: w, max: maxFrame}
}

// pipeSize is what a pipe to a child is to hold, bytes. With the usual 64 KiB a
// megabyte's answer takes twenty turns of writing and reading, each of them a
// switch. An ordinary user may have 64 MiB of pipes (pipe(7)).
const pipeSize = 512 << 10

// Widen enlarges a pipe, where it is one and the system allows it; otherwise it
// works as it is.
func Widen(pipe any) {
	withFD(pipe, func(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize) })
}

type lines struct {
	s   *Session
	r   io.ReadCloser
	w   io.WriteCloser
	max int
}

// Connect implements mcp.Transport.
func (t *lines) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConn{lines: t, LineConn: wire.NewLineConn(t.r, t.w)}
	// The SDK queues what it is handed. What is ours the session bounds.
	c.Bound(&flow.Budget{Count: t.s.limits.InFlight, Bytes: t.s.limits.BytesInFlight}, nil, t.s.NoteRefusal)
	t.s.attach(c.send)
	go c.run()
	return c, nil
}

type lineConn struct {
	*lines
	*wire.LineConn
	once sync.Once

	bad, logged int // lines that were no messages; of the loop that reads
}

// run reads lines until the peer hangs up.
func (c *lineConn) run() {
	defer func() { go c.s.Close() }()
	r := bufio.NewReaderSize(c.r, 64<<10)
	for {
		line, err := wire.ReadLine(r, nil, c.max) // a request keeps its line
		switch {
		case errors.Is(err, wire.ErrTooLong):
			why := fmt.Sprintf("a line is longer than %d bytes", c.max)
			c.s.NoteRefusal(why)
			c.Complain(line, wire.CodeInvalidRequest, why)
			continue
		case err != nil:
			c.Ended(err) // half a line and a hang-up is a hang-up
			return
		}
		if !c.Frames(line, c.frame) {
			c.Ended(io.EOF)
			return
		}
	}
}

// frame deals with one message; it reports false when the connection is closed.
func (c *lineConn) frame(line []byte) bool {
	f, err := wire.ReadFrame(line)
	if err != nil {
		why := names.Brief(err.Error())
		c.logBad(why)
		c.s.NoteRefusal("a line is no message: " + why)
		c.Complain(line, wire.CodeParse, "not a JSON-RPC message: "+why)
		return true
	}
	if f.Method == "" {
		c.s.incomingFrame(line)
	}
	if c.s.take(f, len(line), c.send) {
		return true
	}
	return c.Pass(line)
}

// logBad logs the first bad message, the tenth, the hundredth: a server that sends
// nothing else does not fill the log.
func (c *lineConn) logBad(why string) {
	if c.bad++; c.bad < 10*c.logged {
		return
	}
	c.logged = c.bad
	c.s.b.cfg.Log.Warn("a line of the server's is no message", "error", why, "so far", c.bad)
}

// Write implements mcp.Connection.
func (c *lineConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if r, ok := msg.(*jsonrpc.Response); ok {
		defer c.Answered(r.ID)
		if c.IsProbe(r.ID) {
			return nil
		}
	}
	out, keep := c.s.rewritten(msg)
	if !keep {
		return nil
	}
	b, err := jsonrpc.EncodeMessage(out)
	if err != nil {
		return err
	}
	return c.send(ctx, b)
}

// send writes a frame of the session's.
func (c *lineConn) send(_ context.Context, frame []byte) error { return c.Send(frame) }

// Close implements mcp.Connection.
func (c *lineConn) Close() error {
	err := c.LineConn.Close()
	c.once.Do(func() { go c.s.Close() })
	return err
}
