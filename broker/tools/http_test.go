package tools_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
)

const (
	token = "0123456789abcdef0123456789abcdef"
	hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
)

// bearer sends the token.
type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return http.DefaultTransport.RoundTrip(r)
}

func (b *bench) site(o tools.HTTPOptions) *httptest.Server {
	o.Token = token
	site := httptest.NewServer(b.srv.HTTP(o))
	b.t.Cleanup(func() {
		for ss := range b.srv.MCP().Sessions() {
			_ = ss.Close()
		}
		site.CloseClientConnections()
		site.Close()
	})
	return site
}

// post sends one request and returns its status and the session it began.
func post(t *testing.T, site *httptest.Server, body string, change func(*http.Request)) (status int, session string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, site.URL, bytes.NewBufferString(body))
	must(t, err)
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + token} {
		r.Header.Set(k, v)
	}
	change(r)
	res, err := http.DefaultClient.Do(r)
	must(t, err)
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Header.Get("Mcp-Session-Id")
}

// R072: who is not let in learns nothing, and the server lives.
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
		"null origin":    {403, hello, func(r *http.Request) { r.Header.Set("Origin", "null") }},
		"oversized":      {413, strings.Repeat(" ", 65<<10) + hello, func(*http.Request) {}},
		"guessed id":     {404, hello, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "AAAAAAAAAAAAAAAAAAAAAAAAAA") }},
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

// R003: the same answers over HTTP, in both kinds of protocol.
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
			must(t, err)
			defer b.host.Close()
			if got := b.ok("read_text_file", m{"path": "code/a"}); got != "1" {
				t.Errorf("%q", got)
			}
			b.refused("read_text_file", m{"path": "/etc/passwd"}, "nobody approved")
		})
	}
}
