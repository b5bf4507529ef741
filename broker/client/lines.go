package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flowcontrol"
	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// minFrame is the smallest default of maxFrame (see Lines), in bytes. It is enough for any
// sensible message that carries no chunk of a file.
const minFrame = 32 << 20

// Bounds of the unanswered calls of a client. Further calls are refused.
const (
	mostCalls  = 1024
	mostFrames = 4 // the calls may hold as many bytes as this number of lines of maxFrame bytes
)

// Stdio is Lines on this program's standard input and output: the stdio transport of MCP.
func (b *Broker) Stdio() mcp.Transport {
	return b.Lines(os.Stdin, nopCloser{os.Stdout}, 0)
}

// nopCloser does not close its writer, because the program may still print to it.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// Lines returns a transport over a pair of streams, with one JSON message a line. The Broker
// implements this transport itself. It does what Transport does around mcp.IOTransport, and is
// several times faster for files/*, because only the caller decodes the answer to its request. A
// line that is not JSON, or is longer than maxFrame bytes, does not end the connection. If
// maxFrame is 0, the bound is twice Options.Chunk, and at least 32 MiB. Batches, of revision
// 2025-03-26, are accepted and answered message by message.
func (b *Broker) Lines(r io.ReadCloser, w io.WriteCloser, maxFrame int) mcp.Transport {
	if maxFrame <= 0 {
		maxFrame = max(minFrame, 2*b.opts.Chunk)
	}
	return &lines{broker: b, r: r, w: w, max: maxFrame}
}

type lines struct {
	broker *Broker
	r      io.ReadCloser
	w      io.WriteCloser
	max    int
}

// Connect implements mcp.Transport.
func (t *lines) Connect(context.Context) (mcp.Connection, error) {
	l := &lineConn{}
	l.LineConn = wire.NewLineConn(t.r, t.w, wire.Hooks{Reply: l.reply, Unread: l.unread})
	// The SDK queues messages without bound, so the unanswered calls are bounded here. Calls beyond
	// the bound are refused, and reading goes on: the handler of an earlier call may wait for an
	// answer that comes after the refused calls.
	l.Bound(&flowcontrol.Budget{Count: mostCalls, Bytes: mostFrames * int64(t.max)}, nil, func(string) {})
	l.conn = newConn(t.broker, l)
	t.broker.add(l.conn)
	go l.Run(t.max)
	return l.conn, nil
}

// SupportsProtocolVersion reports true for all versions, as mcp.StdioTransport does.
func (*lines) SupportsProtocolVersion(string) bool { return true }

// lineConn is the line connection inside a conn. It delivers the result of each request of the
// conn directly to the caller. Read returns the other messages.
type lineConn struct {
	*wire.LineConn
	conn *conn
}

// reply passes the result of one of the conn's requests to the caller of the request, together
// with line, the buffer that the result lies in. It reports false for any other request.
func (l *lineConn) reply(id, result, line []byte) bool {
	if !bytes.HasPrefix(id, []byte(l.conn.prefix)) {
		return false
	}
	l.conn.deliver(id, reply{result: result, buf: line})
	return true
}

// unread handles a line that cannot be read. If the line is the answer to one of the conn's
// requests, unread fails the request. Otherwise it reports false.
func (l *lineConn) unread(h *jsonline.Head, why string) bool {
	id := jsonline.Unquote(h.ID())
	if h.IsCall() || !bytes.HasPrefix(id, []byte(l.conn.prefix)) {
		return false
	}
	l.conn.deliver(id, reply{err: errors.New("the client's result is malformed: " + why)})
	return true
}

var (
	_ mcp.Transport                = (*lines)(nil)
	_ mcp.ProtocolVersionSupporter = (*lines)(nil)
	_ mcp.Connection               = (*lineConn)(nil)
)
