package tools_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

const (
	heldLine  = 112 << 10 // bytes of each call's line, about; shorter bodies than 64 KiB are not counted over HTTP
	heldCalls = 18        // number of calls: together about 2 MiB
	heldBound = 1 << 20   // the bound of the calls without an answer in these tests, in bytes
)

// gate is an auditor. While shut is locked, the gate accepts no record, so no operation ends. open
// unlocks shut.
type gate struct {
	shut sync.RWMutex
	once sync.Once
}

// Record implements guard.Auditor.
func (g *gate) Record(guard.Record) error {
	g.shut.RLock()
	defer g.shut.RUnlock()
	return nil
}

func (g *gate) open() { g.once.Do(g.shut.Unlock) }

// gated returns a bench whose operations in the root "slow" wait for the gate.
func gated(t *testing.T) (*bench, *gate) {
	t.Helper()
	t.Cleanup(tools.LowerCallBounds(heldBound))
	g := &gate{}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: g})
	b := start(t, func(c *tools.Config) { c.Registry, c.Tree, c.IgnoreRoots = reg, vfs.New(reg), true }, nil)
	_, err := reg.Grant(t.Context(), guard.Grant{Root: "slow", Dir: names.Foreign(t.TempDir()), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}})
	testkit.Must(t, err)
	g.shut.Lock()
	t.Cleanup(g.open)
	return b, g
}

// settle waits until the number n has reached least, and then until it stops changing or has
// reached most. It returns the number.
func settle(t *testing.T, n func() int64, least, most int64) int64 {
	t.Helper()
	timeout := time.After(4 * testTimeout) // such long bodies take long with the race detector
	for last, same := int64(-1), 0; ; time.Sleep(10 * time.Millisecond) {
		now := n()
		if same++; now != last {
			last, same = now, 0
		}
		if now >= most || now >= least && same == 50 {
			return now
		}
		select {
		case <-timeout:
			t.Fatalf("the number is %d, want %d at least", now, least)
		default:
		}
	}
}

// pipeliningClient sends one line after the other, as fast as the server reads the lines.
type pipeliningClient struct {
	lines  []string           // sent before the calls
	line   func(n int) []byte // the line of the call with id n
	next   int
	rest   []byte
	end    chan struct{} // closed: the stream ends
	sent   atomic.Int64
	mu     sync.Mutex     // guards the fields below
	seen   map[int]string // answers, by id
	answer *sync.Cond
}

func newPipeliningClient(line func(int) []byte, lines ...string) *pipeliningClient {
	p := &pipeliningClient{lines: lines, line: line, end: make(chan struct{}), seen: map[int]string{}}
	p.answer = sync.NewCond(&p.mu)
	return p
}

// Read implements io.Reader for the server.
func (p *pipeliningClient) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		switch i := p.next; {
		case i < len(p.lines):
			p.rest = []byte(p.lines[i] + "\n")
		case i < len(p.lines)+heldCalls:
			p.rest = append(p.line(1000+i-len(p.lines)), '\n')
		default:
			<-p.end
			return 0, io.EOF
		}
		p.next++
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	p.sent.Add(int64(n))
	return n, nil
}

func (*pipeliningClient) Close() error { return nil }

// answers is the stream from the server to the client.
type answers struct {
	p    *pipeliningClient
	rest []byte
}

func (a *answers) Write(b []byte) (int, error) {
	a.rest = append(a.rest, b...)
	for {
		line, rest, ok := bytes.Cut(a.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		var id int
		if i := bytes.Index(line, []byte(`"id":`)); i >= 0 {
			_, _ = fmt.Sscanf(string(line[i:]), `"id":%d`, &id)
		}
		a.p.mu.Lock()
		if id >= 1000 {
			a.p.seen[id] = string(line)
		}
		a.p.answer.Broadcast()
		a.p.mu.Unlock()
		a.rest = bytes.Clone(rest)
	}
}

func (*answers) Close() error { return nil }

// awaitAnswers waits until every call has an answer.
func (p *pipeliningClient) awaitAnswers(t *testing.T) {
	t.Helper()
	timedOut := false
	timeout := time.AfterFunc(testTimeout, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		timedOut = true
		p.answer.Broadcast()
	})
	defer timeout.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.seen) < heldCalls && !timedOut {
		p.answer.Wait()
	}
	if timedOut {
		t.Fatalf("%d of %d calls have an answer", len(p.seen), heldCalls)
	}
}

const noHandshakeMeta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// While no call ends, the server reads only as many calls as it can hold, whether this package or
// the SDK answers them. Later every call gets an answer, and calls of existing tools succeed.
func TestStdioHoldsBoundedCalls(t *testing.T) {
	text := strings.Repeat("x", heldLine-400)
	for name, c := range map[string]struct {
		lines []string
		call  string
	}{
		"2025-11-25":               {[]string{hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"slow/f%[1]d","content":"%s"}}}`},
		"2025-11-25, method last":  {[]string{hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, `{"jsonrpc":"2.0","id":%d,"params":{"name":"write_file","arguments":{"path":"slow/f%[1]d","content":"%s"}},"method":"tools/call"}`},
		"2026-07-28":               {nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"slow/f%[1]d","content":"%s"}` + noHandshakeMeta + `}}`},
		"2025-11-25, unknown tool": {[]string{hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"none","arguments":{"path":"slow/f%[1]d","content":"%s"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			b, g := gated(t)
			p := newPipeliningClient(func(n int) []byte { return fmt.Appendf(nil, c.call, n, text) }, c.lines...)
			done := make(chan error, 1)
			go func() { done <- b.srv.Run(t.Context(), p, &answers{p: p}) }()
			if !strings.Contains(name, "unknown") { // calls of unknown tools have an answer at once
				if n := settle(t, p.sent.Load, heldBound-heldLine, heldCalls*(heldLine-1000)); n > heldBound+2*heldLine {
					t.Errorf("the server has read %d KiB of calls without an answer; it may hold %d KiB", n>>10, int64(heldBound)>>10)
				}
			}
			g.open()
			p.awaitAnswers(t)
			for id, line := range p.seen {
				if !strings.Contains(line, `"result"`) && !strings.Contains(name, "unknown") || strings.Contains(line, `"isError":true`) {
					t.Errorf("%d: %.200s", id, line)
				}
			}
			close(p.end)
			testkit.Must(t, <-done)
		})
	}
}

// From a client that reads no answers the server reads a bounded number of small calls.
func TestStdioHoldsBoundedUnread(t *testing.T) {
	b := start(t, func(c *tools.Config) { c.InFlight = 2 }, nil)
	b.root("r", guard.ReadOnly, "f=1")
	unread, theirs := io.Pipe()
	defer unread.Close()
	ours, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.srv.Run(ctx, ours, theirs) }()
	_, err := io.WriteString(w, hello+"\n")
	testkit.Must(t, err)
	_, err = unread.Read(make([]byte, 64<<10))
	testkit.Must(t, err)
	var taken atomic.Int64
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for n := range 100_000 {
			if _, err := fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"r/f"}}}`+"\n", n); err != nil {
				return
			}
			taken.Add(1)
		}
	}()
	// The server reads the calls that it can hold, and some calls that it refuses.
	for last, same := int64(-1), 0; same < 200; time.Sleep(10 * time.Millisecond) {
		if n := taken.Load(); n == last {
			same++
		} else {
			last, same = n, 0
		}
		if taken.Load() == 100_000 {
			t.Fatal("the server has read all of the calls")
		}
	}
	_ = w.Close()
	<-stop
	cancel()
	_ = unread.Close()
	testkit.Must(t, <-done)
}

// For a client that reads no answers the server holds at most as many answers as calls may run
// at a time. When the client reads, each call is answered.
func TestStdioHoldsBoundedAnswers(t *testing.T) {
	const size, calls, running = 128 << 10, 32, 8 // from size bytes on, an answer is a long one
	t.Cleanup(tools.LowerCallBounds(64 << 20))
	const tool = `"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"r/f"}`
	begun := []string{hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`}
	for name, c := range map[string]struct {
		lines  []string
		params string
	}{
		"2025-11-25": {begun, tool + `}`},
		"2026-07-28": {nil, tool + noHandshakeMeta + `}`},
		"resource":   {begun, `"method":"resources/read","params":{"uri":"%s"}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, func(c *tools.Config) { c.InFlight = running }, nil)
			dir := b.root("r", guard.ReadOnly, "f="+strings.Repeat("x", size))
			params := strings.Replace(c.params, "%s", "file://"+dir+"/f", 1)
			ours, w := io.Pipe()
			r, theirs := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- b.srv.Run(t.Context(), ours, theirs) }()
			in := bufio.NewReaderSize(r, 64<<10)
			for i, line := range c.lines {
				_, err := io.WriteString(w, line+"\n")
				testkit.Must(t, err)
				if i == 0 { // reads the answer to hello first: a call's answer could overtake it
					_, err := in.ReadString('\n')
					testkit.Must(t, err)
				}
			}
			go func() {
				for n := range calls {
					_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", 1000+n, params)
				}
			}()
			reads := func() (n int64) {
				for _, rec := range b.recs.All() {
					if rec.Op == names.OpOpen && rec.Verdict == guard.Allowed {
						n++
					}
				}
				return n
			}
			if n := settle(t, reads, running, calls); n > running {
				t.Errorf("%d files were read for a client that reads no answer, want %d at most", n, running)
			}
			for range calls {
				line, err := in.ReadString('\n')
				testkit.Must(t, err)
				if !strings.Contains(line, `"result"`) || len(line) < size {
					t.Fatalf("%.200s", line)
				}
			}
			_ = w.Close()
			testkit.Must(t, <-done)
			_ = r.Close()
		})
	}
}

// Messages that let a call in flight end are read even if no further call has room: answers to
// the server's own questions, and cancellations. While somebody is asked, calls beyond the
// bound are refused.
func TestStdioAnswersPassBoundedCalls(t *testing.T) {
	for _, how := range []string{"answer", "cancel"} {
		t.Run(how, func(t *testing.T) {
			b := start(t, func(c *tools.Config) { c.InFlight, c.Subject = 1, guard.Subject("test").InSession(1) }, nil)
			b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.AskHost, AskFor: time.Hour})
			t.Cleanup(b.ask.Close)
			b.letClientAnswer()
			ours, w := io.Pipe()
			r, theirs := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- b.srv.Run(t.Context(), ours, theirs) }()
			x := newTalker(t, w, r)
			x.say(strings.Replace(hello, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1))
			x.next(`"id":1,`)
			x.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			path := b.root("elsewhere", guard.ReadOnly, "f=1")
			_, err := b.reg.Revoke(t.Context(), "elsewhere")
			testkit.Must(t, err)
			const call = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"%s/f"}}}`
			x.say(fmt.Sprintf(call, 1000, path))
			asked := x.next(`"elicitation/create"`)
			var id string
			for _, part := range strings.Split(asked, ",") {
				if v, ok := strings.CutPrefix(strings.Trim(part, "{}"), `"id":`); ok {
					id = v
				}
			}
			for n := range 50 {
				x.say(fmt.Sprintf(call, 1001+n, path))
			}
			x.next("too many calls")
			if how == "cancel" {
				x.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1000}}`)
				x.next(`"notifications/cancelled"`) // the question is withdrawn
				for n := range 50 {
					x.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, 1001+n))
				}
				x.say(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
				x.next(`"id":7,`)
			} else {
				x.say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept","content":{"path1":"allow","minutes":0}}}`)
				if got := x.next(`"id":1000,`); strings.Contains(got, "isError") {
					t.Error(got)
				}
			}
			testkit.Must(t, w.Close())
			testkit.Must(t, <-done) // the server still writes the answers that it owes, and x reads them
			_ = r.Close()
		})
	}
}

// talker is a client that works without the SDK, and always reads.
type talker struct {
	t     *testing.T
	w     io.Writer
	lines chan string
}

func newTalker(t *testing.T, w io.Writer, r io.Reader) *talker {
	x := &talker{t: t, w: w, lines: make(chan string, 10_000)}
	go func() {
		defer close(x.lines)
		var rest []byte
		buf := make([]byte, 64<<10)
		for {
			n, err := r.Read(buf)
			rest = append(rest, buf[:n]...)
			for {
				line, more, ok := bytes.Cut(rest, []byte("\n"))
				if !ok {
					break
				}
				x.lines <- string(line)
				rest = bytes.Clone(more)
			}
			if err != nil {
				return
			}
		}
	}()
	return x
}

func (x *talker) say(line string) {
	x.t.Helper()
	_, err := io.WriteString(x.w, line+"\n")
	testkit.Must(x.t, err)
}

// next returns the next line that contains a text.
func (x *talker) next(text string) string {
	x.t.Helper()
	timeout := time.After(4 * testTimeout) // such long bodies take long with the race detector
	for {
		select {
		case line, ok := <-x.lines:
			if !ok {
				x.t.Fatalf("no line with %s, and the server has hung up", text)
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-timeout:
			x.t.Fatalf("no line with %s", text)
		}
	}
}

// countingListener is a listener that counts the bytes that are read from its connections.
type countingListener struct {
	net.Listener
	n *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countingConn{c, l.n}, nil
}

type countingConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// Over HTTP, the bodies of unanswered requests have a common bound, too. A small request is
// answered while the bound is reached. Later all requests succeed.
func TestHTTPHoldsBoundedBodies(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			b, g := gated(t)
			h := tools.NewHTTP(func(who guard.Subject) *tools.Server {
				cfg := b.cfg
				cfg.Subject = who
				return tools.New(cfg)
			}, tools.HTTPOptions{Token: token, Registry: b.cfg.Registry, Subject: b.cfg.Subject})
			var read atomic.Int64
			site := httptest.NewUnstartedServer(h)
			site.Listener = countingListener{site.Listener, &read}
			site.Start()
			t.Cleanup(func() {
				g.open()
				h.Close()
				site.CloseClientConnections()
				site.Close()
			})
			cs := b.connectWith(site, token, revision)
			defer cs.Close()
			defer g.open() // runs before cs.Close, which waits for the session's calls
			text := strings.Repeat("x", heldLine-1000)
			var wg sync.WaitGroup
			for n := range heldCalls {
				wg.Go(func() {
					res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "write_file", Arguments: m{"path": fmt.Sprintf("slow/f%d", n), "content": text}})
					if err != nil || res.IsError {
						t.Errorf("%v, %+v", err, res)
					}
				})
			}
			if n := settle(t, read.Load, heldBound-heldLine, heldCalls*(heldLine-1000)); n > heldBound+heldLine {
				t.Errorf("the server has read %d KiB of requests without an answer; it may hold %d KiB", n>>10, int64(heldBound)>>10)
			}
			if _, err := cs.ListTools(t.Context(), nil); err != nil {
				t.Errorf("a small request meanwhile: %v", err)
			}
			g.open()
			wg.Wait()
		})
	}
}
