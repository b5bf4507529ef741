package tools_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker/internal/jsonline"
	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

const secretLine = "SECRETLINE"

// endings are ways to end the root "data", or to narrow the rights to it.
var endings = map[string]func(b *bench) error{
	"revoke": func(b *bench) error { _, err := b.reg.Revoke(b.t.Context(), "data"); return err },
	"hide": func(b *bench) error {
		return b.reg.SetPatterns(b.t.Context(), "data", guard.Patterns{Hide: guard.Texts("f*")})
	},
	"rights": func(b *bench) error { return b.reg.Set(b.t.Context(), "data", guard.Write) },
	"nested": func(b *bench) error { // grants a nested root for the file f, without the right to read
		_, err := b.reg.Grant(b.t.Context(), guard.Grant{Root: "file", Dir: names.Foreign(b.dir("data") + "/f"), Origin: "test", Policy: guard.Policy{Rights: guard.Write}})
		return err
	},
}

func (b *bench) dir(root guard.RootName) string {
	dir, _ := b.reg.Dir(root)
	return dir
}

// awaitOpened waits until there are audit records of n opened files and directories.
func (b *bench) awaitOpened(n int) {
	b.t.Helper()
	have := 0
	if !testkit.Eventually(func() bool {
		have = 0
		for _, rec := range b.recs.All() {
			if (rec.Op == names.OpOpen || rec.Op == names.OpOpendir) && rec.Verdict == guard.Allowed {
				have++
			}
		}
		return have >= n
	}) {
		b.t.Fatalf("%d files and directories have been opened, not %d", have, n)
	}
}

// A client that reads nothing sends requests for data of a root. Then the root ends or is narrowed.
// Afterwards at most one piece of the data (jsonline.Piece) reaches the client, whether the SDK or
// this package writes the answers. Each request still gets an answer.
func TestNothingLateOverStdio(t *testing.T) {
	const calls = 4
	read := `"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"data/f"}`
	handshake := []string{hello, `{"jsonrpc":"2.0","method":"notifications/initialized"}`}
	for how, end := range endings {
		for name, c := range map[string]struct {
			lines  []string
			params string
			opens  int // files and directories that are opened before the root ends
		}{
			"2025-11-25": {handshake, read + `}`, calls},
			"2026-07-28": {nil, read + noHandshakeMeta + `}`, calls},
			"resource":   {handshake, `"method":"resources/read","params":{"uri":"file://%s/f"}`, calls},
			"edit":       {handshake, `"method":"tools/call","params":{"name":"edit_file","arguments":{"path":"data/f","edits":[{"oldText":"` + secretLine + `","newText":"` + secretLine + `!"}]}}`, 1},
			"completion": {handshake, `"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"file:///{+path}"},"argument":{"name":"path","value":"%s/n"}}`, calls},
		} {
			t.Run(how+" "+name, func(t *testing.T) {
				b := start(t, nil, nil)
				tree := []string{"f=" + strings.Repeat(secretLine+" 0123456789abcdef\n", 5_000)} // 140 kB, twice in an answer, which is a long one
				for i := range 90 {
					if name == "completion" {
						tree = append(tree, fmt.Sprintf("n%s%d=1", strings.Repeat(secretLine, 20), i))
					}
				}
				dir := b.root("data", guard.ReadWrite, tree...)
				ours, w := io.Pipe()
				r, theirs := io.Pipe()
				ended := make(chan error, 1)
				go func() { ended <- b.srv.Run(t.Context(), ours, theirs) }()
				in := bufio.NewReader(r)
				for _, line := range c.lines {
					_, err := io.WriteString(w, line+"\n")
					testkit.Must(t, err)
				}
				if len(c.lines) > 0 {
					_, err := in.ReadString('\n') // the answer to hello
					testkit.Must(t, err)
				}
				go func() {
					for n := range calls {
						_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", 1000+n, strings.ReplaceAll(c.params, "%s", dir))
					}
				}()
				b.awaitOpened(c.opens)
				time.Sleep(50 * time.Millisecond) // most answers are encoded by then; the others will have no contents
				testkit.Must(t, end(b))
				late, answered := 0, 0
				for answered < calls {
					line, err := in.ReadString('\n')
					testkit.Must(t, err)
					if strings.Contains(line, secretLine) {
						late += len(line) - 1
					}
					if strings.HasSuffix(line, "}\n") && !strings.Contains(line, `"method"`) {
						answered++
					}
				}
				if late > jsonline.Piece {
					t.Errorf("%d bytes with contents came late", late)
				}
				go func() { _, _ = io.Copy(io.Discard, in) }() // notifications
				_ = w.Close()
				testkit.Must(t, <-ended)
				_ = r.Close()
			})
		}
	}
}

// Clients over HTTP that read nothing request data of a root. Then the root ends or is narrowed.
// Afterwards at most 64 KiB of the data reach a client on average, from the system's buffers. The
// system buffers the whole answer of some connections, and only its beginning of the others.
func TestNothingLateOverHTTP(t *testing.T) {
	const calls = 3
	for how, end := range endings {
		for revision, body := range map[string]string{
			"2026-07-28 tool":     `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"data/f"}` + noHandshakeMeta + `}}`,
			"2026-07-28 resource": `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file://%s/f"` + noHandshakeMeta + `}}`,
			"2025-06-18 tool":     `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"data/f"}}}`,
		} {
			t.Run(how+" "+revision, func(t *testing.T) {
				b := start(t, func(c *tools.Config) { c.IgnoreRoots = true }, nil)
				dir := b.root("data", guard.ReadWrite, "f="+strings.Repeat(secretLine+" 0123456789abcdef\n", 6_000)) // 170 kB, twice in an answer of a tool
				site, _ := b.siteWith(tools.HTTPOptions{}, func(n int) bool { return n%2 == 0 })
				var conns []net.Conn
				for range calls {
					conns = append(conns, slowPost(t, site, revision, strings.ReplaceAll(body, "%s", dir)))
				}
				b.awaitOpened(calls)
				for _, c := range conns { // waits until the answer has begun
					_ = c.SetReadDeadline(time.Now().Add(4 * testTimeout))
					_, err := c.Read(make([]byte, 1))
					testkit.Must(t, err)
				}
				time.Sleep(100 * time.Millisecond) // the system has most of the answers by then, or as much as it takes
				testkit.Must(t, end(b))
				late := 0
				for _, c := range conns {
					_ = c.SetReadDeadline(time.Now().Add(testTimeout))
					got, _ := io.ReadAll(c) // an error means that the connection was reset
					late += bytes.Count(got, []byte(secretLine)) * len(secretLine+" 0123456789abcdef\n")
				}
				if late > calls*64<<10 {
					t.Errorf("%d bytes with contents came late", late)
				}
			})
		}
	}
}

// slowPost sends a request over a new connection, and does not read the answer. The connection has
// a small receive buffer, so the server cannot write much before the test reads. revision begins
// with the protocol revision; a space and further words may follow.
func slowPost(t *testing.T, site *httptest.Server, revision, body string) net.Conn {
	t.Helper()
	version, _, _ := strings.Cut(revision, " ")
	head := "Mcp-Protocol-Version: " + version + "\r\n"
	if version == "2026-07-28" {
		_, tool, _ := strings.Cut(body, `"name":"`)
		tool, _, _ = strings.Cut(tool, `"`)
		head += "Mcp-Method: tools/call\r\nMcp-Name: " + tool + "\r\n"
		if strings.Contains(body, "resources/read") {
			_, uri, _ := strings.Cut(body, `"uri":"`)
			uri, _, _ = strings.Cut(uri, `"`)
			head = "Mcp-Protocol-Version: " + version + "\r\nMcp-Method: resources/read\r\nMcp-Name: " + uri + "\r\n"
		}
	} else {
		status, session := post(t, site, hello, func(*http.Request) {})
		if status != 200 {
			t.Fatal(status)
		}
		head += "Mcp-Session-Id: " + session + "\r\n"
	}
	// The buffer is set before the connection offers the server a window.
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
		return errors.Join(err, set)
	}}
	c, err := small.Dial("tcp", site.Listener.Addr().String())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n%s", site.Listener.Addr(), token, head, len(body), body)
	testkit.Must(t, err)
	return c
}
