package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// site is a running `rootsfs serve --http`.
type site struct {
	t     testing.TB
	home  *home
	cmd   *exec.Cmd
	log   *log
	ended sync.Once
	url   string
	token string
	file  string // the path of the token's file
}

// log is the standard error of a program.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// end signals the program once, because a second signal would kill it while it ends.
func (s *site) end(sig os.Signal) {
	s.ended.Do(func() { _ = s.cmd.Process.Signal(sig) }) // it may have ended
}

// http starts the program and reads its URL and token.
func (h *home) http(args ...string) *site {
	h.t.Helper()
	return h.httpEnding(0, args...)
}

// httpEnding does the same as http, except that the program must end with the exit code code.
func (h *home) httpEnding(code int, args ...string) *site {
	h.t.Helper()
	s := &site{t: h.t, home: h, log: &log{}}
	s.cmd = h.command(append([]string{"serve", "--http", "127.0.0.1:0", "--json"}, args...)...)
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	testkit.Must(h.t, err)
	testkit.Must(h.t, s.cmd.Start())
	h.t.Cleanup(func() {
		s.end(os.Interrupt)
		killTimer := time.AfterFunc(giveUp, func() { _ = s.cmd.Process.Kill() })
		defer killTimer.Stop()
		if err := s.cmd.Wait(); s.cmd.ProcessState.ExitCode() != code {
			h.t.Errorf("the server did not end well: %v\n%s", err, s.log)
		}
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var info struct {
		URL       string
		TokenFile string `json:"token_file"`
	}
	if err != nil || json.Unmarshal(line, &info) != nil || info.URL == "" {
		h.t.Fatalf("the server said %q, %v\n%s", line, err, s.log)
	}
	s.url = info.URL
	if info.TokenFile != "" {
		b, err := os.ReadFile(info.TokenFile)
		testkit.Must(h.t, err)
		s.token, s.file = strings.TrimSpace(string(b)), info.TokenFile
		if st, err := os.Stat(info.TokenFile); err != nil || st.Mode().Perm() != 0o600 {
			h.t.Errorf("the token's file: %v, %v", st.Mode(), err)
		}
	}
	return s
}

// post sends one request as a client does, modified by change.
func (s *site) post(body io.Reader, change func(*http.Request)) (status int, session string) {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.url, body)
	testkit.Must(s.t, err)
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + s.token} {
		r.Header.Set(k, v)
	}
	if change != nil {
		change(r)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Errorf("no answer: %v", err)
		return 0, ""
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Header.Get("Mcp-Session-Id")
}

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// client connects a client of the Go SDK, and disconnects it when the test ends.
func (s *site) client(revision string) *mcp.ClientSession {
	s.t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := c.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: &http.Client{Transport: bearer(s.token)}},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	testkit.Must(s.t, err)
	s.t.Cleanup(func() { _ = cs.Close() })
	return cs
}

// checkLog waits until a text is in the log, because the server may write the log after the
// answer.
func (s *site) checkLog(text string) {
	s.t.Helper()
	if !testkit.Eventually(func() bool { return strings.Contains(s.log.String(), text) }) {
		s.t.Errorf("%q is not in the log:\n%s", text, s.log)
	}
}

// checkAlive checks that the server still serves the root r.
func (s *site) checkAlive() {
	s.t.Helper()
	cs := s.client("2025-11-25")
	res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "read_text_file", Arguments: m{"path": "r/a.txt"}})
	if err != nil || res.IsError || res.Content[0].(*mcp.TextContent).Text != "text" {
		s.t.Errorf("the server does not serve the root r: %+v, %v", res, err)
	}
}

// R072: under attack over HTTP the server refuses the requests, stays within its bounds, writes
// its refusals to the log and the audit records, and still serves others.
func TestHTTPAttacked_R072(t *testing.T) {
	h := newHome(t)
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(dir+"/a.txt", []byte("text"), 0o644))
	s := h.http("--root", "r="+dir)
	at, err := url.Parse(s.url)
	testkit.Must(t, err)
	if host, _, _ := net.SplitHostPort(at.Host); host != "127.0.0.1" {
		t.Fatalf("it listens on %s", at.Host)
	}
	large := strings.Repeat(" ", 9<<20)
	for name, c := range map[string]struct {
		status int
		body   io.Reader
		change func(*http.Request)
		logged string
	}{
		"no token":             {401, strings.NewReader(hello), func(r *http.Request) { r.Header.Del("Authorization") }, "no bearer token"},
		"wrong token":          {401, strings.NewReader(hello), func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.token[1:]) }, "invalid token"},
		"longer token":         {401, strings.NewReader(hello), func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.token+"A") }, ""},
		"token as password":    {401, strings.NewReader(hello), func(r *http.Request) { r.SetBasicAuth("rootsfs", s.token) }, ""},
		"token in the query":   {401, strings.NewReader(hello), func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "access_token=" + s.token }, ""},
		"foreign Origin":       {403, strings.NewReader(hello), func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, "the Origin"},
		"null Origin":          {403, strings.NewReader(hello), func(r *http.Request) { r.Header.Set("Origin", "null") }, ""},
		"file Origin":          {403, strings.NewReader(hello), func(r *http.Request) { r.Header.Set("Origin", "file://localhost") }, ""},
		"lookalike Origin":     {403, strings.NewReader(hello), func(r *http.Request) { r.Header.Set("Origin", "http://localhost.evil.example") }, ""},
		"foreign Host":         {403, strings.NewReader(hello), func(r *http.Request) { r.Host = "evil.example:" + at.Port() }, "the Host"},
		"rebound Host":         {403, strings.NewReader(hello), func(r *http.Request) { r.Host = "localhost.evil.example" }, ""},
		"another port's Host":  {403, strings.NewReader(hello), func(r *http.Request) { r.Host = "localhost:1" }, ""},
		"another port's page":  {403, strings.NewReader(hello), func(r *http.Request) { r.Header.Set("Origin", "http://localhost:1") }, ""},
		"null":                 {400, strings.NewReader("null"), nil, "a message is a JSON object"},
		"token, foreign Host":  {403, strings.NewReader(hello), func(r *http.Request) { r.Host = "127.0.0.1.evil.example" }, ""},
		"oversized":            {413, strings.NewReader(large), nil, "large"},
		"oversized, in chunks": {413, io.MultiReader(strings.NewReader(large)), nil, ""},
		"no message":           {400, strings.NewReader("{"), nil, ""},
		"another path":         {404, strings.NewReader(hello), func(r *http.Request) { r.URL.Path = "/etc/passwd" }, ""},
	} {
		if got, _ := s.post(c.body, c.change); got != c.status {
			t.Errorf("%s: %d, want %d", name, got, c.status)
		}
		s.checkLog(c.logged)
	}
	s.checkAlive()

	// Half a request on many connections delays no other client.
	var slow []net.Conn
	for i := range 200 {
		c, err := net.Dial("tcp", at.Host)
		testkit.Must(t, err)
		slow = append(slow, c)
		text := "POST /mcp HTTP/1.1\r\nHost: " + at.Host + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" +
			"Authorization: Bearer " + s.token + "\r\nContent-Length: 100\r\n\r\n{"
		_, err = io.WriteString(c, text[:len(text)-i%2*20])
		testkit.Must(t, err)
	}
	s.checkAlive()
	for _, c := range slow {
		_ = c.Close()
	}

	// A session id cannot be guessed, and a thousand sessions are not kept.
	_, mine := s.post(strings.NewReader(hello), nil)
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	for i := range 300 {
		id := rand.Text()
		if i%3 == 0 {
			id = mine[:len(mine)-1] + string("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[i%32])
		}
		if got, _ := s.post(strings.NewReader(list), func(r *http.Request) { r.Header.Set("Mcp-Session-Id", id) }); got != 404 && id != mine {
			t.Fatalf("a guess of %s for %s: %d", id, mine, got)
		}
	}
	full := 0
	for range 1000 {
		if got, _ := s.post(strings.NewReader(hello), nil); got == http.StatusServiceUnavailable {
			full++
		}
	}
	if full < 890 || full > 910 {
		t.Errorf("%d of 1,000 sessions were refused, want all but about 100", full)
	}
	s.checkLog("too many sessions")
	r, err := http.NewRequest(http.MethodDelete, s.url, nil)
	testkit.Must(t, err)
	r.Header.Set("Mcp-Session-Id", mine)
	r.Header.Set("Authorization", "Bearer "+s.token)
	res, err := http.DefaultClient.Do(r)
	testkit.Must(t, err)
	testkit.Must(t, res.Body.Close())
	s.checkAlive()
	if n := strings.Count(s.log.String(), "\n"); n > 400 { // there were more than 1,200 refusals
		t.Errorf("the log has %d lines", n)
	}
	if strings.Contains(s.log.String(), s.token[:10]) {
		t.Error("the token is in the log")
	}
	if shown := h.mustRun("audit", "show", "--json"); strings.Count(shown, "HTTP request from 127.0.0.1:") < 30 {
		t.Errorf("the audit records lack refused requests: %.2000s", shown)
	}
}

// Two servers of one session have their own tokens. When one server ends, only its own token's file
// is removed, and the other server still works.
func TestHTTPTokensOfOneName(t *testing.T) {
	h := newHome(t)
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(dir+"/a.txt", []byte("text"), 0o644))
	s := h.http("--root", "r="+dir, "--name", "t4")
	shared := h.httpEnding(0, "--session", "t4")
	checkToken := func(s *site) {
		t.Helper()
		b, err := os.ReadFile(s.file)
		if err != nil || strings.TrimSpace(string(b)) != s.token {
			t.Errorf("%q, %v; want the token", b, err)
		}
	}
	checkToken(s)
	checkToken(shared)
	shared.end(os.Interrupt)
	testkit.Until(t, "the token's file of the ended server is removed", func() bool { _, err := os.Stat(shared.file); return os.IsNotExist(err) })
	checkToken(s)
	s.checkAlive()
}

// A server does not start if its flags are wrong, or if it would serve a network without TLS or
// without a token.
func TestHTTPDoesNotStart(t *testing.T) {
	h := newHome(t)
	dir := t.TempDir()
	for args, want := range map[string]string{
		"--http 0.0.0.0:0":                     "give --tls-cert and --tls-key",
		"--http :0 --no-token --token-file x":  "cannot be combined",
		"--http 192.0.2.1:0 --no-token":        "leave --no-token out",
		"--http [::]:0 --no-token":             "leave --no-token out",
		"--http nonsense":                      "write [HOST]:PORT",
		"--no-token":                           "go with --http",
		"--http :0 --token-file /etc/hostname": "can be read by others",
		"--http :0 --max-sessions 0":           "above 0",
		"--http :0 --max-user-sessions 0":      "above 0",
		"--http :0 --max-user-sessions 3":      "goes with --oauth-issuer",
		"--http :99999":                        "write [HOST]:PORT",
		"--http :-1":                           "write [HOST]:PORT",
		"--http :0 --host https://a.example":   "write NAME or NAME:PORT",
		"--http :0 --host a.example:99999":     "write NAME or NAME:PORT",
		"--http :0 --origin https://a/b":       "write SCHEME://HOST[:PORT]",
		"--http :0 --origin localhost:6274":    "write SCHEME://HOST[:PORT]",
	} {
		out, err := h.command(append([]string{"serve", "--root", dir}, strings.Fields(args)...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s; want %q", args, err, out, want)
		}
	}
}

// Many connections that send no token, or only the beginning of a request, delay no other client. A
// server with its own session logs that there are too many connections.
func TestHTTPSilentConnections(t *testing.T) {
	for name, shared := range map[string]bool{"own session": false, "shared session": true} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			dir := t.TempDir()
			testkit.Must(t, os.WriteFile(dir+"/a.txt", []byte("text"), 0o644))
			var s *site
			var ownLog *log
			if shared {
				base := start(t, h.command("serve", "--root", "r="+dir, "--name", "base"))
				t.Cleanup(func() {
					_ = base.in.Close()
					_ = base.cmd.Wait()
				})
				s = h.http("--session", "base", "--max-sessions", "8")
			} else {
				s = h.http("--root", "r="+dir, "--max-sessions", "8")
				ownLog = s.log
			}
			u, err := url.Parse(s.url)
			testkit.Must(t, err)
			stop, flood := make(chan struct{}), sync.WaitGroup{}
			defer flood.Wait()
			defer close(stop)
			flood.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					if c, err := net.Dial("tcp", u.Host); err == nil {
						defer c.Close()
						if i%2 == 0 {
							_, _ = io.WriteString(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
						}
					}
					time.Sleep(200 * time.Millisecond)
				}
			})
			slow := make([]net.Conn, 60)
			for i := range slow {
				slow[i], err = net.Dial("tcp", u.Host)
				testkit.Must(t, err)
				defer slow[i].Close()
			}
			// The oldest connection is closed before its timeout.
			testkit.Must(t, slow[0].SetReadDeadline(time.Now().Add(giveUp)))
			if _, err := slow[0].Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
				t.Errorf("the oldest connection is open: %v", err)
			}
			for range 5 {
				s.checkAlive()
			}
			if ownLog != nil {
				s.checkLog("too many connections")
			}
		})
	}
}
