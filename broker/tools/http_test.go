package tools_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

const (
	token = "0123456789abcdef0123456789abcdef"
	hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
)

// bearer is a transport that adds the constant token to each request.
type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	return bearerToken(token).RoundTrip(r)
}

// bearerToken is a transport that adds the token to each request.
type bearerToken string

func (s bearerToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(s))
	return http.DefaultTransport.RoundTrip(r)
}

// connectWith connects the client with a token.
func (b *bench) connectWith(site *httptest.Server, token, revision string) *mcp.ClientSession {
	b.t.Helper()
	cs, err := b.mcp.Connect(context.Background(), &mcp.StreamableClientTransport{
		Endpoint: site.URL, HTTPClient: &http.Client{Transport: bearerToken(token)},
	}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	testkit.Must(b.t, err)
	return cs
}

func (b *bench) site(o tools.HTTPOptions) *httptest.Server {
	b.t.Helper()
	site, _ := b.siteOf(o)
	return site
}

func (b *bench) siteOf(o tools.HTTPOptions) (*httptest.Server, *tools.HTTP) {
	return b.siteWith(o, func(int) bool { return false })
}

// siteWith is siteOf with a small send buffer for each connection for which isSmall reports true.
// Otherwise the system may take megabytes of an answer that the client does not read. The connections
// are numbered from 0 on.
func (b *bench) siteWith(o tools.HTTPOptions, isSmall func(n int) bool) (*httptest.Server, *tools.HTTP) {
	o.Token, o.Registry, o.Subject = token, b.reg, b.cfg.Subject
	h := tools.NewHTTP(func(who guard.Subject) *tools.Server {
		cfg := b.cfg
		cfg.Subject = who
		if b.ask != nil {
			cfg.Ask = b.ask.Session(who)
		}
		return tools.New(cfg)
	}, o)
	site := httptest.NewUnstartedServer(h)
	site.Listener = h.Attach(site.Config, &bufferedListener{Listener: site.Listener, isSmall: isSmall})
	site.Start()
	b.t.Cleanup(func() {
		h.Close()
		site.CloseClientConnections()
		site.Close()
	})
	return site, h
}

// bufferedListener is a listener that gives some connections a small send buffer.
type bufferedListener struct {
	net.Listener
	isSmall func(n int) bool
	n       int // connections so far
}

func (l *bufferedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if l.isSmall(l.n) {
		err = c.(*net.TCPConn).SetWriteBuffer(32 << 10)
	}
	l.n++
	return c, err
}

// post sends one request, which change may modify first. It returns the status of the answer, and
// the id of the session that the request began.
func post(t *testing.T, site *httptest.Server, body string, change func(*http.Request)) (status int, session string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, site.URL, bytes.NewBufferString(body))
	testkit.Must(t, err)
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + token} {
		r.Header.Set(k, v)
	}
	change(r)
	res, err := (&http.Client{Timeout: testTimeout}).Do(r)
	testkit.Must(t, err)
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Header.Get("Mcp-Session-Id")
}

// R072: a request that is not let in gets the status of its refusal. The server goes on, accepts 5
// sessions and refuses the others.
func TestHTTPRefuses_R072(t *testing.T) {
	b := start(t, nil, nil)
	b.root("code", guard.ReadOnly, "a=1")
	site := b.site(tools.HTTPOptions{Sessions: 5, Body: 64 << 10})
	for name, c := range map[string]struct {
		status int
		body   string
		change func(*http.Request)
	}{
		"no token":       {401, hello, func(r *http.Request) { r.Header.Del("Authorization") }},
		"wrong token":    {401, hello, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token[1:]) }},
		"foreign host":   {403, hello, func(r *http.Request) { r.Host = "evil.example" }},
		"foreign origin": {403, hello, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		"two origins": {403, hello, func(r *http.Request) {
			r.Header["Origin"] = []string{"http://localhost:" + r.URL.Port(), "https://evil.example"}
		}},
		"null origin": {403, hello, func(r *http.Request) { r.Header.Set("Origin", "null") }},
		"oversized":   {413, strings.Repeat(" ", 65<<10) + hello, func(*http.Request) {}},
		"guessed id":  {404, hello, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "AAAAAAAAAAAAAAAAAAAAAAAAAA") }},
	} {
		if got, _ := post(t, site, c.body, c.change); got != c.status {
			t.Errorf("%s: %d, want %d", name, got, c.status)
		}
	}
	full := 0
	for range 1000 {
		if got, _ := post(t, site, hello, func(*http.Request) {}); got == http.StatusServiceUnavailable {
			full++
		}
	}
	if full != 995 {
		t.Errorf("%d of 1,000 sessions were refused, want all but 5", full)
	}
}

// Refusals are logged with the reason, and recorded in the audit log. Of very many refusals only
// some have a log line and an audit record. The log lines count the other refusals.
func TestHTTPLogsRefusals_R072(t *testing.T) {
	b := start(t, nil, nil)
	var log lockedBuffer
	site := b.site(tools.HTTPOptions{Log: slog.New(slog.NewJSONHandler(&log, nil))})
	post(t, site, hello, func(r *http.Request) { r.Header.Del("Authorization") })
	post(t, site, hello, func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") })
	post(t, site, hello, func(r *http.Request) { r.Host = "evil.example\u202e" + strings.Repeat("x", 1000) })
	testkit.Eventually(func() bool { return strings.Count(log.String(), "\n") >= 3 }) // logged after the answer
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i, why := range []string{"no bearer token", "invalid token: it is not", "the Host is not one"} {
		if i >= len(lines) || !strings.Contains(lines[i], why) || !strings.Contains(lines[i], `"from":"127.0.0.1:`) || len(lines[i]) > 700 {
			t.Errorf("line %d lacks %s: %s", i, why, lines)
		}
	}
	const storm = 400
	for range storm {
		post(t, site, hello, func(r *http.Request) { r.Header.Del("Authorization") })
	}
	records, refusals := 0, 0
	testkit.Eventually(func() bool {
		records, refusals = 0, 0
		for _, r := range b.recs.All() {
			if r.Verdict == guard.Refused && strings.HasPrefix(r.Detail, "HTTP request from 127.0.0.1:") {
				records++
			}
		}
		lines = strings.Split(strings.TrimSpace(log.String()), "\n")
		for _, line := range lines {
			var entry struct{ Others int }
			_ = json.Unmarshal([]byte(line), &entry) // the last line may not be whole yet
			refusals += 1 + entry.Others
		}
		return refusals == storm+3 && records == len(lines) // the last refusal, too, is logged after its answer
	})
	if len(lines) < 20 || len(lines) > storm/2 || records != len(lines) || refusals != storm+3 {
		t.Errorf("%d log lines and %d audit records for %d refusals; the log lines count %d refusals", len(lines), records, storm+3, refusals)
	}
}

// lockedBuffer is a buffer that many goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The server does not wait long for the rest of a body that does not come.
func TestHTTPSlowBody(t *testing.T) {
	b := start(t, nil, nil)
	site := b.site(tools.HTTPOptions{BodyTimeout: 100 * time.Millisecond})
	c, err := net.Dial("tcp", site.Listener.Addr().String())
	testkit.Must(t, err)
	defer c.Close()
	_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nContent-Length: 1000\r\n\r\n{", token)
	testkit.Must(t, err)
	testkit.Must(t, c.SetReadDeadline(time.Now().Add(20*time.Second))) // only ends a failed test
	answer, err := io.ReadAll(c)
	if err != nil || bytes.Contains(answer, []byte(" 200 ")) {
		t.Errorf("%q, %v", answer, err)
	}
}

// BodyTimeout limits neither how long a stream of events stays open nor how long an answer takes.
func TestHTTPStreamOutlivesTheBody(t *testing.T) {
	changed := make(chan struct{}, 16)
	b := start(t, nil, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} }})
	b.root("code", guard.ReadOnly, "a=1")
	const bodyTimeout = 100 * time.Millisecond
	site := b.site(tools.HTTPOptions{BodyTimeout: bodyTimeout})
	var opened atomic.Int64 // streams that the client has opened
	var err error
	b.host, err = b.mcp.Connect(context.Background(), &mcp.StreamableClientTransport{
		Endpoint: site.URL, HTTPClient: &http.Client{Transport: streams{&opened}},
	}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	testkit.Must(t, err)
	defer b.host.Close()
	slow := b.t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(slow, "f"), []byte("1"), 0o600))
	_, err = b.reg.Grant(context.Background(), guard.Grant{Root: "slow", Dir: names.Foreign(slow), Origin: "test",
		Policy: guard.Policy{Rights: guard.ReadOnly, Limits: guard.Limits{OpsPerSecond: 4, Burst: 1}}})
	testkit.Must(t, err)
	many := b.ok("read_multiple_files", m{"paths": slices.Repeat([]string{"slow/f"}, 4)})
	if strings.Count(many, "slow/f:\n1\n") != 4 {
		t.Errorf("%q", many)
	}
	b.root("out", guard.ReadWrite)
	select {
	case <-changed:
	case <-time.After(20 * time.Second):
		t.Error("no notification")
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("%d streams were opened, want 1", n)
	}
}

// streams is a transport like bearer. It also counts the event streams that the client opens (GET).
type streams struct{ n *atomic.Int64 }

func (s streams) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		s.n.Add(1)
	}
	return bearer{}.RoundTrip(r)
}

// R003: over HTTP a tool gives the same answer, and the same refusal, in a revision with a
// handshake and in one without.
func TestHTTPServes_R003(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			b := start(t, nil, nil)
			b.root("code", guard.ReadOnly, "a=1")
			site := b.site(tools.HTTPOptions{})
			var err error
			b.host, err = b.mcp.Connect(context.Background(), &mcp.StreamableClientTransport{
				Endpoint: site.URL, HTTPClient: &http.Client{Transport: bearer{}},
			}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
			testkit.Must(t, err)
			defer b.host.Close()
			if got := b.ok("read_text_file", m{"path": "code/a"}); got != "1" {
				t.Errorf("%q", got)
			}
			b.refused("read_text_file", m{"path": "/etc/passwd"}, "nobody approved")
		})
	}
}
