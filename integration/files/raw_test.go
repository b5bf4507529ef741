package files

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// rawServer is a server that writes its own lines, including ones that no library would write.
type rawServer struct {
	t       testing.TB
	session *broker.Session
	conn    mcp.Connection
	w       io.WriteCloser
	gone    chan struct{} // closed when the host closed its end

	mu      sync.Mutex // guards the fields below
	next    int
	replies map[string]chan reply
	stray   []string // answers that belong to no request
	notes   []note
}

type reply struct {
	Result json.RawMessage
	Error  *wire.Error
}

type note struct {
	Method string
	Params json.RawMessage
}

func connectRaw(t testing.TB, b *broker.Broker) *rawServer {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &rawServer{t: t, session: b.Session("peer"), w: inW, gone: make(chan struct{}), replies: map[string]chan reply{}}
	conn, err := p.session.Lines(inR, outW, 0).Connect(context.Background())
	testkit.Must(t, err)
	p.conn = conn
	go func() { // discard the lines that the host's SDK would read
		for {
			if _, err := conn.Read(context.Background()); err != nil {
				return
			}
		}
	}()
	go p.read(outR)
	t.Cleanup(p.hangUp)
	return p
}

func (p *rawServer) hangUp() {
	_ = p.w.Close()
	_ = p.conn.Close()
	p.session.Close()
	<-p.gone
}

func (p *rawServer) read(r io.Reader) {
	defer close(p.gone)
	br := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := br.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
			reply
		}
		if err := json.Unmarshal(line, &m); err != nil {
			p.t.Errorf("the host wrote a line that is not JSON: %q", line)
			continue
		}
		p.mu.Lock()
		ch := p.replies[string(m.ID)]
		delete(p.replies, string(m.ID))
		switch {
		case m.Method != "":
			p.notes = append(p.notes, note{m.Method, m.Params})
		case ch != nil:
			ch <- m.reply
		default:
			p.stray = append(p.stray, string(line))
		}
		p.mu.Unlock()
	}
}

// line sends text as it is.
func (p *rawServer) line(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.w, text); err != nil {
		p.t.Fatal(err)
	}
}

// send sends a request and returns the channel for its reply. If params is a string, send takes it
// as JSON.
func (p *rawServer) send(method string, params any) chan reply {
	p.t.Helper()
	text, ok := params.(string)
	if !ok {
		b, err := json.Marshal(params)
		testkit.Must(p.t, err)
		text = string(b)
	}
	ch := make(chan reply, 1)
	p.mu.Lock()
	p.next++
	id := fmt.Sprintf(`"t%d"`, p.next)
	p.replies[id] = ch
	p.mu.Unlock()
	p.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`+"\n", id, method, text))
	return ch
}

// ask sends a request, waits for the reply, and decodes the result into out.
func (p *rawServer) ask(method string, params, out any) error {
	p.t.Helper()
	select {
	case r := <-p.send(method, params):
		if r.Error != nil {
			return r.err()
		}
		if out != nil {
			testkit.Must(p.t, json.Unmarshal(r.Result, out))
		}
		return nil
	case <-p.gone:
		return io.ErrUnexpectedEOF
	}
}

// err returns the reply's error as a guard.Error of the kind that the reply names. If the reply
// names no kind, err returns a guard.Error of the kind Invalid for the code CodeInvalidParams, and
// the wire.Error for any other code.
func (r *reply) err() error {
	var d wire.ErrorData
	if len(r.Error.Data) == 0 || json.Unmarshal(r.Error.Data, &d) != nil || d.Reason == "" {
		if r.Error.Code == wire.CodeInvalidParams {
			return &guard.Error{Kind: names.Invalid, Err: r.Error}
		}
		return r.Error
	}
	for k := names.Other; ; k++ {
		if k.String() == d.Reason {
			return &guard.Error{Kind: k, Err: r.Error}
		}
		if k > names.Other && k.String() == names.Other.String() {
			return fmt.Errorf("an unknown reason: %w", r.Error)
		}
	}
}

// checkAlive checks that the session still serves the file at path, with the contents want.
func (p *rawServer) checkAlive(path, want string) {
	p.t.Helper()
	var r wire.ReadResult
	if err := p.ask(wire.Read, wire.ReadParams{Path: path}, &r); err != nil || r.Content != want {
		p.t.Fatalf("the session does not serve any more: %q, %v", r.Content, err)
	}
}

// strays returns the answers so far that belong to no request.
func (p *rawServer) strays() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.stray...)
}
