package connlimit

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

const (
	most        = 8
	readTimeout = 20 * time.Second // of a client's reads
)

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) lines() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.b.String(), "too many connections")
}

// lab is a server that trusts every client that does not ask for /stranger. It sends only the head
// of the answer to /stream, and then waits until the connection ends.
type lab struct {
	t    *testing.T
	b    *Bound
	addr string
	log  *buffer
}

func newLab(t *testing.T) *lab {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &buffer{}
	b := New(most, slog.New(slog.NewTextHandler(log, nil)))
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stranger" {
			return
		}
		b.Trust(r)
		if r.URL.Path == "/stream" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})}
	b.Attach(srv)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return &lab{t, b, l.Addr().String(), log}
}

func (l *lab) dial() net.Conn {
	l.t.Helper()
	c, err := net.Dial("tcp", l.addr)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(readTimeout))
	return c
}

// ask sends a request, and reads the head of its answer.
func (l *lab) ask(c net.Conn, path string) error {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil && path != "/stream" {
		_ = res.Body.Close()
	}
	return err
}

func (l *lab) must(c net.Conn, path string) {
	l.t.Helper()
	if err := l.ask(c, path); err != nil {
		l.t.Errorf("%s: %v", path, err)
	}
}

// waitIdle waits until n connections are between requests. The server notes this only after the
// answer.
func (l *lab) waitIdle(n int) {
	l.t.Helper()
	have := 0
	if !testkit.Eventually(func() bool {
		l.b.mu.Lock()
		defer l.b.mu.Unlock()
		have = l.b.idle.Len()
		return have == n
	}) {
		l.t.Fatalf("%d are idle, want %d", have, n)
	}
}

// waitClosed waits until the server has closed a connection.
func waitClosed(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := c.Read(make([]byte, 1))
	if ne, ok := err.(net.Error); err == nil || ok && ne.Timeout() {
		t.Errorf("the connection is open: %v", err)
	}
}

// Strangers are clients that are not trusted. For new connections of strangers, the server closes
// the oldest connections of strangers, even in the middle of a request, but no connection of a
// trusted client. The log reports this, but not for each closed connection.
func TestStrangers(t *testing.T) {
	l := newLab(t)
	stream, member := l.dial(), l.dial()
	l.must(stream, "/stream")
	l.must(member, "/member")
	answered := l.dial()
	l.must(answered, "/stranger") // the server takes this client for a stranger
	half := l.dial()
	if _, err := fmt.Fprint(half, "GET / HTTP/1.1\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	for range 30 * most {
		l.dial()
	}
	waitClosed(t, answered)
	waitClosed(t, half)
	l.must(member, "/member")
	fresh := l.dial()
	l.must(fresh, "/member")
	_ = stream.SetReadDeadline(time.Now())
	if _, err := stream.Read(make([]byte, 1)); err == nil || !err.(net.Error).Timeout() {
		t.Errorf("the stream has ended: %v", err)
	}
	if n := l.log.lines(); n < 1 || n > 10 {
		t.Errorf("%d lines in the log", n)
	}
}

// If all clients are trusted, the server closes the connection that has been idle longest to make
// room for a new one. If all connections are in use, the server closes the new connection.
func TestMembers(t *testing.T) {
	l := newLab(t)
	var all []net.Conn
	for range most {
		c := l.dial()
		l.must(c, "/member")
		all = append(all, c)
		l.waitIdle(len(all))
	}
	for _, c := range all {
		l.must(l.dial(), "/stream")
		waitClosed(t, c)
	}
	for range 3 {
		waitClosed(t, l.dial())
	}
}
