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

// minFrame is the least default of maxFrame, bytes: enough for any sensible message that
// does not answer a request for a chunk.
const minFrame = 32 << 20

// Bounds of the unanswered calls of a client. Further calls are refused.
const (
	mostCalls  = 1024
	mostFrames = 4 // the calls may hold as many bytes as this number of lines of the greatest length
)

// Stdio is Lines on this program's standard input and output, as MCP has it.
func (b *Broker) Stdio() mcp.Transport {
	return b.Lines(os.Stdin, nopCloser{os.Stdout}, 0)
}

// nopCloser does not close its writer, because the program may still print to it.
type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// Lines is a transport of the Broker's own over a pair of streams, one JSON object a line. It
// does what Transport does around mcp.IOTransport, and is several times faster for files/*:
// only the caller decodes the answer to its request. It survives a client's mistakes: it skips
// a line that is not JSON, or is longer than maxFrame bytes. If maxFrame is 0, the bound is
// twice Options.Chunk, and at least 32 MiB. Batches, of revision 2025-03-26, are accepted and
// answered message by message.
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
	// The SDK queues messages without bound. A call's handler may wait for an answer that comes
	// after further calls. So calls beyond the bound are refused, and reading goes on.
	l.Bound(&flowcontrol.Budget{Count: mostCalls, Bytes: mostFrames * int64(t.max)}, nil, func(string) {})
	l.conn = newConn(t.broker, l)
	t.broker.add(l.conn)
	go l.Run(t.max)
	return l.conn, nil
}

// SupportsProtocolVersion reports true for all versions, as mcp.StdioTransport does.
func (*lines) SupportsProtocolVersion(string) bool { return true }

// lineConn is the connection inside a conn. It passes answers to the conn's requests to the
// conn, and everything else to the SDK.
type lineConn struct {
	*wire.LineConn
	conn *conn
}

// reply passes the result of one of the conn's requests to the caller of the request, in the
// buffer of its line. It reports false for the answer to any other request.
func (l *lineConn) reply(id, result, line []byte) bool {
	if !bytes.HasPrefix(id, []byte(l.conn.prefix)) {
		return false
	}
	l.conn.deliver(id, reply{result: result, buf: line})
	return true
}

// unread fails the conn's request whose answer cannot be read. It reports false if the line is
// anything else.
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
