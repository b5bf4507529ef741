package broker

import (
	"context"
	"io"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// Lines returns a transport over a pair of streams, with one JSON-RPC message or batch a line, as
// in MCP's stdio. It reads several times faster than the SDK's transport, whose decoder costs more
// than everything else here (measured). After a line that is no JSON, or is too long, the
// connection goes on. maxFrame is the longest accepted line, in bytes; 0 means DefaultFrame.
func (s *Session) Lines(r io.ReadCloser, w io.WriteCloser, maxFrame int) mcp.Transport {
	if maxFrame <= 0 {
		maxFrame = DefaultFrame
	}
	return &lines{s: s, r: r, w: w, max: maxFrame}
}

// pipeSize is the wanted capacity of a pipe to a child, in bytes. With the usual 64 KiB, an
// answer of a megabyte takes some twenty switches between the writer and the reader. An
// ordinary user may have 64 MiB of pipes (pipe(7)).
const pipeSize = 512 << 10

// Widen enlarges a pipe, if the system allows that. Any other file stays as it is.
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
	c := &lineConn{s: t.s}
	c.LineConn = wire.NewLineConn(t.r, t.w, wire.Hooks{Intercept: c.intercept, Unread: c.recordUnread})
	// The SDK queues messages without bound, so bound them here. The session bounds its own
	// requests itself.
	c.Bound(&flowcontrol.Budget{Count: t.s.limits.InFlight, Bytes: t.s.limits.BytesInFlight}, nil, t.s.NoteRefusal)
	t.s.SetSender(c.send)
	go func() {
		c.Run(t.max)
		c.s.Close()
	}()
	return c, nil
}

// lineConn takes the session's requests out of the lines.
type lineConn struct {
	*wire.LineConn
	s *Session

	// bad counts the lines that could not be read, and logged is the count at the last log line.
	// Only the goroutine that reads uses them.
	bad, logged int
}

func (c *lineConn) intercept(f wire.Frame, line []byte) bool {
	if f.Method == "" {
		c.s.noteServerInfo(line, "result")
	}
	return c.s.Handle(f, len(line), c.send)
}

// recordUnread records a line that cannot be read. It logs the first, the tenth, the hundredth
// and so on, so that a server that sends many such lines does not fill the log.
func (c *lineConn) recordUnread(_ *jsonline.Head, why string) bool {
	c.s.NoteRefusal(why)
	if c.bad++; c.bad >= 10*c.logged {
		c.logged = c.bad
		c.s.b.cfg.Log.Warn("a line of the server's cannot be read", "error", why, "so far", c.bad)
	}
	return false
}

// Write implements mcp.Connection.
func (c *lineConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	out, keep := c.s.rewriteMessage(msg)
	if !keep {
		return nil
	}
	return c.LineConn.Write(ctx, out)
}

// send writes a frame of the session.
func (c *lineConn) send(_ context.Context, frame []byte, recheck Recheck) error {
	return c.SendIf(frame, recheck)
}

// Close implements mcp.Connection.
func (c *lineConn) Close() error {
	err := c.LineConn.Close()
	go c.s.Close()
	return err
}
