package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// lab is a registry with its broker.
type lab struct {
	t    testing.TB
	reg  *guard.Registry
	b    *Broker
	recs *records
}

// records is an Auditor that keeps the records.
type records struct {
	mu   sync.Mutex
	list []guard.Record
}

func (r *records) Record(rec guard.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, rec)
	return nil
}

func (r *records) all() []guard.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]guard.Record(nil), r.list...)
}

// last returns the latest record with the operation op and the verdict Allowed; zero: none.
func (r *records) last(op guard.Op) (found guard.Record) {
	for _, rec := range r.all() {
		if rec.Op == op && rec.Verdict == guard.Allowed {
			found = rec
		}
	}
	return found
}

func newLab(t testing.TB, change func(*Config)) *lab {
	t.Helper()
	return newLabOn(t, vfs.Opener(), change)
}

func newLabOn(t testing.TB, opener guard.Opener, change func(*Config)) *lab {
	t.Helper()
	recs := &records{}
	reg := guard.NewRegistry(guard.Config{Opener: opener, Auditor: recs})
	cfg := Config{Registry: reg, Tree: vfs.New(reg), Debounce: 20 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	l := &lab{t: t, reg: reg, b: New(cfg), recs: recs}
	t.Cleanup(func() {
		l.b.Close()
		if _, err := reg.RevokeAll(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// root grants a new directory holding files (name: contents; a name ending in a
// slash is a directory) and returns it.
func (l *lab) root(name string, rights guard.Rights, files map[string]string) string {
	l.t.Helper()
	dir := l.t.TempDir()
	for f, text := range files {
		p := filepath.Join(dir, f)
		if strings.HasSuffix(f, "/") {
			if err := os.MkdirAll(p, 0o755); err != nil {
				l.t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			l.t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			l.t.Fatal(err)
		}
	}
	l.grant(guard.Grant{Root: guard.RootName(name), Dir: names.Foreign(dir), Policy: guard.Policy{Rights: rights}})
	return dir
}

func (l *lab) grant(g guard.Grant) guard.Grant {
	l.t.Helper()
	g.Origin = "test"
	got, err := l.reg.Grant(l.t.Context(), g)
	if err != nil {
		l.t.Fatal(err)
	}
	return got
}

// peer is a server at the other end of a line connection. It sends and reads raw JSON.
type peer struct {
	t    testing.TB
	s    *Session
	conn mcp.Connection
	w    io.WriteCloser

	mu      sync.Mutex
	next    int
	replies map[string]chan reply
	notes   chan note
	stray   chan string // answers to no open request
	toSDK   chan string // Go types of the messages that the session passed on to the SDK
	gone    chan struct{}
}

type reply struct {
	Result json.RawMessage
	Error  *wire.Error
}

type note struct {
	Method string
	Params json.RawMessage
}

func (l *lab) connect(subject guard.Subject) *peer {
	return l.connectFrames(subject, 0)
}

func (l *lab) connectFrames(subject guard.Subject, maxFrame int) *peer {
	l.t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &peer{
		t: l.t, s: l.b.Session(subject), w: inW, replies: map[string]chan reply{},
		notes: make(chan note, 10_000), stray: make(chan string, 100), toSDK: make(chan string, 100), gone: make(chan struct{}),
	}
	conn, err := p.s.Lines(inR, outW, maxFrame).Connect(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	p.conn = conn
	go func() { // what an SDK client would read
		for {
			msg, err := conn.Read(context.Background())
			if err != nil {
				return
			}
			if r, ok := msg.(*jsonrpc.Request); ok && r.Method == "ping" {
				continue // the connection itself sends a ping after each notification
			}
			p.toSDK <- fmt.Sprintf("%T", msg)
		}
	}()
	go p.read(outR)
	l.t.Cleanup(p.hangUp)
	return p
}

func (p *peer) hangUp() {
	_ = p.w.Close()
	_ = p.conn.Close()
	p.s.Close()
	<-p.gone
}

func (p *peer) read(r io.Reader) {
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
			p.t.Errorf("a frame that is no JSON: %q", line)
			continue
		}
		p.mu.Lock()
		ch := p.replies[string(m.ID)]
		delete(p.replies, string(m.ID))
		p.mu.Unlock()
		switch {
		case m.Method != "":
			p.notes <- note{m.Method, m.Params}
		case ch != nil:
			ch <- m.reply
		default:
			p.stray <- string(line)
		}
	}
}

func (p *peer) raw(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.w, s); err != nil {
		p.t.Fatal(err)
	}
}

// send sends a request, and returns its id and the channel that will receive its reply.
func (p *peer) send(method string, params any) (id string, _ chan reply) {
	p.t.Helper()
	raw, ok := params.(string)
	if !ok {
		b, err := json.Marshal(params)
		if err != nil {
			p.t.Fatal(err)
		}
		raw = string(b)
	}
	p.mu.Lock()
	p.next++
	id = fmt.Sprintf(`"t%d"`, p.next)
	ch := make(chan reply, 1)
	p.replies[id] = ch
	p.mu.Unlock()
	p.raw(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`+"\n", id, method, raw))
	return id, ch
}

// call sends a request and waits for the reply. params is a value, or a string with raw JSON.
func (p *peer) call(method string, params any) reply {
	p.t.Helper()
	_, ch := p.send(method, params)
	select {
	case r := <-ch:
		return r
	case <-p.gone:
		p.t.Fatalf("%s: the connection ended", method)
	case <-time.After(time.Minute):
		p.t.Fatalf("%s: no answer", method)
	}
	return reply{}
}

// must sends a request that has to succeed, and decodes its result into out, unless out is nil.
func (p *peer) must(method string, params, out any) {
	p.t.Helper()
	r := p.call(method, params)
	if r.Error != nil {
		p.t.Fatalf("%s %v: %+v %s", method, params, r.Error, r.Error.Data)
	}
	if out != nil {
		if err := json.Unmarshal(r.Result, out); err != nil {
			p.t.Fatalf("%s: %v in %s", method, err, r.Result)
		}
	}
}

// fails sends a request that has to fail, and returns the error and the error's data.
func (p *peer) fails(method string, params any) (wire.Error, wire.ErrorData) {
	p.t.Helper()
	r := p.call(method, params)
	if r.Error == nil {
		p.t.Fatalf("%s %v succeeded: %s", method, params, r.Result)
	}
	var d wire.ErrorData
	if len(r.Error.Data) > 0 {
		if err := json.Unmarshal(r.Error.Data, &d); err != nil {
			p.t.Fatalf("%s: data %s: %v", method, r.Error.Data, err)
		}
	}
	return *r.Error, d
}

// until waits for a notification of the method whose params f accepts.
func (p *peer) until(method string, f func(json.RawMessage) bool) {
	p.t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case n := <-p.notes:
			if n.Method == method && f(n.Params) {
				return
			}
		case <-timeout:
			p.t.Fatalf("no %s came", method)
		}
	}
}
