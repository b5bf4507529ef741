package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/proxy"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// lab is a registry with its broker, and runs proxies. The test plays the host and the server at
// the other ends of a proxy's streams.
type lab struct {
	t   testing.TB
	reg *guard.Registry
	b   *broker.Broker

	mu   sync.Mutex // guards the field below
	recs []guard.Record
}

// Record implements guard.Auditor.
func (l *lab) Record(r guard.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recs = append(l.recs, r)
	return nil
}

// countRecords counts the records that mention text.
func (l *lab) countRecords(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.recs {
		if strings.Contains(r.Detail, text) {
			n++
		}
	}
	return n
}

func newLab(t testing.TB, change func(*broker.Config)) *lab {
	t.Helper()
	before := runtime.NumGoroutine()
	l := &lab{t: t}
	l.reg = guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: l})
	cfg := broker.Config{Registry: l.reg, Tree: vfs.New(l.reg), Debounce: 20 * time.Millisecond, Asker: broker.AskHost}
	if change != nil {
		change(&cfg)
	}
	l.b = broker.New(cfg)
	t.Cleanup(func() {
		l.b.Close()
		if _, err := l.reg.RevokeAll(context.Background()); err != nil {
			t.Error(err)
		}
		settle(t, before)
	})
	return l
}

// settle waits until at most as many goroutines run as before.
func settle(t testing.TB, before int) {
	if testkit.Eventually(func() bool { return runtime.NumGoroutine() <= before }) {
		return
	}
	buf := make([]byte, 1<<20)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
}

// root grants a new directory with the given files (name: contents), and returns the directory's
// path.
func (l *lab) root(name string, rights guard.Rights, files map[string]string) string {
	l.t.Helper()
	dir := l.t.TempDir()
	for f, text := range files {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o644); err != nil {
			l.t.Fatal(err)
		}
	}
	_, err := l.reg.Grant(context.Background(), guard.Grant{
		Root: guard.RootName(name), Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: rights},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return dir
}

// link is a proxy between two ends that the test plays.
type link struct {
	t       testing.TB
	p       *proxy.Proxy
	session *broker.Session
	host    *end // the host's side of the proxy
	server  *end // the server's side of the proxy
	cancel  context.CancelCauseFunc
	done    chan error // gets Run's error
}

// end is one peer, played by the test.
type end struct {
	t    testing.TB
	name string
	in   io.WriteCloser // to the proxy
	out  io.ReadCloser  // from the proxy
	r    *bufio.Reader
}

// streams makes the four pipes of a proxy.
func (l *lab) streams() (proxy.Options, *link) {
	l.t.Helper()
	pipe := func() (*os.File, *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			l.t.Fatal(err)
		}
		return r, w
	}
	hostR, hostW := pipe()
	outR, outW := pipe()
	inR, inW := pipe()
	serverR, serverW := pipe()
	n := &link{t: l.t, session: l.b.Session("server"), done: make(chan error, 1)}
	n.host = &end{l.t, "host", hostW, outR, bufio.NewReader(outR)}
	n.server = &end{l.t, "server", serverW, inR, bufio.NewReader(inR)}
	return proxy.Options{
		Host: hostR, HostOut: outW, Server: inW, ServerOut: serverR, Session: n.session, Mode: proxy.On,
	}, n
}

// connect runs a proxy.
func (l *lab) connect(change func(*proxy.Options)) *link {
	l.t.Helper()
	opt, n := l.streams()
	if change != nil {
		change(&opt)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	n.cancel = cancel
	n.p = proxy.New(opt)
	go func() { n.done <- n.p.Run(ctx) }()
	l.t.Cleanup(n.end)
	return n
}

// end hangs up on both sides and waits for Run.
func (n *link) end() {
	for _, c := range []io.Closer{n.host.in, n.server.in, n.host.out, n.server.out} {
		_ = c.Close()
	}
	n.cancel(context.Canceled)
	if err := <-n.done; err != nil && err != context.Canceled {
		n.t.Errorf("Run: %v", err)
	}
	n.done <- nil // for the next receiver
}

// say writes bytes.
func (e *end) say(s string) {
	e.t.Helper()
	if _, err := io.WriteString(e.in, s); err != nil {
		e.t.Fatalf("the %s writes: %v", e.name, err)
	}
}

// hear reads one line, with its end.
func (e *end) hear() string {
	e.t.Helper()
	s, err := e.r.ReadString('\n')
	if err != nil {
		e.t.Fatalf("the %s reads %q: %v", e.name, s, err)
	}
	return s
}

// expect reads one line and compares it with want.
func (e *end) expect(want string) {
	e.t.Helper()
	if got := e.hear(); got != want {
		e.t.Fatalf("the %s got\n%.2000s\nwant\n%.2000s", e.name, got, want)
	}
}

// message is any message of JSON-RPC.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int
		Message string
	} `json:"error"`
}

// message reads one line as a message.
func (e *end) message() message {
	e.t.Helper()
	line := e.hear()
	var m message
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		e.t.Fatalf("the %s got %q: %v", e.name, line, err)
	}
	return m
}

// ping passes a line from one peer to the other. All earlier lines of the first peer have then been
// handled.
func (n *link) ping(from, to *end) {
	n.t.Helper()
	mark := fmt.Sprintf(`{"jsonrpc":"2.0","method":"mark","params":{"at":%d}}`+"\n", time.Now().UnixNano())
	from.say(mark)
	to.expect(mark)
}

// handshake performs the handshake of revision 2025-11-25, with these capabilities of the host.
func (n *link) handshake(capabilities string) message {
	n.t.Helper()
	n.host.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` +
		capabilities + `,"clientInfo":{"name":"h","version":"1"}}}` + "\n")
	m := n.server.message()
	answer := `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"2"}}}` + "\n"
	n.server.say(answer)
	n.host.expect(answer)
	const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	n.host.say(initialized)
	n.server.expect(initialized)
	return m
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
