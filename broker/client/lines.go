package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/internal/flow"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// minFrame is the least default of maxFrame, bytes: what a client may sensibly
// send without having been asked for a chunk.
const minFrame = 32 << 20

// mostCalls is how many calls of a client's have no answer at a time, and mostFrames of
// how many longest lines they are; more are refused.
const (
	mostCalls  = 1024
	mostFrames = 4
)

// Stdio is Lines on this program's standard input and output, as MCP has it.
func (b *Broker) Stdio() mcp.Transport {
	return b.Lines(os.Stdin, keptOpen{os.Stdout}, 0)
}

// keptOpen does not close what the program may still print to.
type keptOpen struct{ io.Writer }

func (keptOpen) Close() error { return nil }

// Lines is a transport of the Broker's own over a pair of streams, one JSON
// object a line. It does what Transport does around mcp.IOTransport, and is
// several times faster for files/*: answers to its requests are not decoded
// before whoever asked decodes them. It outlives what a client sends by mistake:
// a line that is no JSON, or longer than maxFrame bytes, costs that line (0 means
// twice Options.Chunk, and 32 MiB at least). Batches, of revision 2025-03-26, are
// accepted and answered message by message.
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
	l := &lineConn{lines: t, LineConn: wire.NewLineConn(t.r, t.w)}
	// The SDK queues what it is handed. A call's handler may wait for an answer that
	// comes behind further calls, so none of those holds up the reading.
	l.Bound(&flow.Budget{Count: mostCalls, Bytes: mostFrames * int64(t.max)}, nil, func(string) {})
	l.conn = newConn(t.broker, l)
	t.broker.add(l.conn)
	go l.run()
	return l.conn, nil
}

// SupportsProtocolVersion says what mcp.StdioTransport does: all of them.
func (*lines) SupportsProtocolVersion(string) bool { return true }

// lineConn is the connection inside a conn; it hands the answers to requests of
// ours to it and everything else on to the SDK.
type lineConn struct {
	*lines
	*wire.LineConn
	conn *conn
}

// run reads lines until the client hangs up.
func (l *lineConn) run() {
	r := bufio.NewReaderSize(l.r, 64<<10)
	for {
		buf := takeBuffer()
		line, err := wire.ReadLine(r, *buf, l.max)
		if cap(line) > cap(*buf) {
			*buf = line[:0]
		}
		switch {
		case errors.Is(err, wire.ErrTooLong):
			l.tooLong(line)
			giveBuffer(buf)
			continue
		case err != nil:
			l.Ended(err) // half a line and a hang-up is a hang-up
			return
		}
		if id, result, ok := wire.CutResult(line); ok && bytes.HasPrefix(id, []byte(l.conn.prefix)) {
			l.conn.answered(id, reply{result: result, buf: buf})
			continue
		}
		// The SDK may keep parts of a message, so this buffer is not used again.
		if !l.Frames(line, l.frame) {
			l.Ended(io.EOF)
			return
		}
	}
}

// tooLong answers for a line of which only the beginning was kept.
func (l *lineConn) tooLong(head []byte) {
	why := fmt.Sprintf("a line is longer than %d bytes", l.max)
	// CutResult wants the end of the frame, too.
	if i := bytes.Index(head, wire.AppendResult(nil)); i > 0 {
		id, _, ok := wire.CutResult(append(wire.AppendResult(bytes.Clone(head[:i])), "{}}"...))
		if ok && bytes.HasPrefix(id, []byte(l.conn.prefix)) {
			l.conn.answered(id, reply{err: errors.New(why)})
			return
		}
	}
	l.Complain(head, wire.CodeInvalidRequest, why)
}

// frame hands one message to the SDK.
func (l *lineConn) frame(line []byte) bool {
	if _, err := wire.ReadFrame(line); err != nil {
		l.Complain(line, wire.CodeParse, "not a JSON-RPC message: "+err.Error())
		return true
	}
	return l.Pass(line)
}

// Write implements mcp.Connection.
func (l *lineConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if r, ok := msg.(*jsonrpc.Response); ok {
		defer l.Answered(r.ID)
		if l.IsProbe(r.ID) {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	return l.send(b)
}

// send writes one frame, with the SDK's word for a connection that is closed.
func (l *lineConn) send(frame []byte) error {
	err := l.Send(frame)
	if errors.Is(err, wire.ErrClosed) {
		return mcp.ErrConnectionClosed
	}
	return err
}

// post writes a request of ours, encoded once.
func (l *lineConn) post(id, method string, params any) func() error {
	buf := takeBuffer()
	w := bytes.NewBuffer(append((*buf)[:0], `{"jsonrpc":"2.0","id":"`...))
	w.WriteString(id)
	w.WriteString(`","method":"`)
	w.WriteString(method)
	w.WriteString(`","params":`)
	err := encodeTo(w, params)
	w.WriteByte('}')
	frame := w.Bytes()
	*buf = frame[:0]
	return func() error {
		defer giveBuffer(buf)
		if err != nil {
			return err
		}
		return l.send(frame)
	}
}

// buffers hold a line each, from its arrival to its decoding: a megabyte's answer
// is a megabyte and a half of garbage otherwise.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const keepBuffer = 4 << 20 // larger ones are left to the collector

func takeBuffer() *[]byte { return buffers.Get().(*[]byte) }

func giveBuffer(b *[]byte) {
	if b != nil && cap(*b) <= keepBuffer {
		buffers.Put(b)
	}
}

var (
	_ mcp.Transport                = (*lines)(nil)
	_ mcp.ProtocolVersionSupporter = (*lines)(nil)
	_ mcp.Connection               = (*lineConn)(nil)
)
