//lint:file-ignore SA1019 roots are deprecated since revision 2026-07-28 and not replaced; this package exists for them.

package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// overHTTP serves s and connects the host to it.
func overHTTP(t *testing.T, s *mcp.Server, b *client.Broker, h *host, version string, o *client.HTTPOptions) (*mcp.ClientSession, string) {
	t.Helper()
	handler := b.HTTPHandler(func(*http.Request) *mcp.Server { return s }, o)
	ts := httptest.NewServer(handler)
	cs, err := h.client().Connect(bg, &mcp.StreamableClientTransport{Endpoint: ts.URL, HTTPClient: &http.Client{Transport: &roundTripper{h: h, endpoint: ts.URL}}},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close(); handler.Close(); ts.CloseClientConnections(); ts.Close() })
	return cs, ts.URL
}

// A tool handler works over Streamable HTTP: its requests travel on the stream of the tool call,
// its watch outlasts the call, and it can read the client's roots.
func TestHTTP(t *testing.T) {
	for _, version := range []string{legacy, ""} { // "": falls back, because revision 2026-07-28 has no sessions
		h := newHost(t, map[string]string{"p/a": "alpha", "p/big": strings.Repeat("0123456789", 300)})
		h.page = 1
		b := client.New(&client.Options{Chunk: 1000})
		roots := client.NewRootsService(&client.RootsOptions{Broker: b})
		s := newServer()
		s.AddReceivingMiddleware(roots.Middleware())
		var events <-chan client.Event
		mcp.AddTool(s, &mcp.Tool{Name: "work"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			f, err := b.Files(req.Session)
			if err != nil {
				return nil, nil, err
			}
			data, err := f.ReadFile(ctx, "p/big")
			if err != nil {
				return nil, nil, err
			}
			if _, err := f.WriteFile(ctx, "p/out", append(data, "!"...), client.WriteOptions{Create: true}); err != nil {
				return nil, nil, err
			}
			if _, err := roots.Guard(ctx, req.Session); err != nil {
				return nil, nil, err
			}
			events, err = f.Watch(context.WithoutCancel(ctx), "p", client.WatchOptions{})
			return nil, nil, err
		})
		cs, _ := overHTTP(t, s, b, h, version, nil)
		res, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "work"})
		if err != nil || res.IsError {
			t.Fatalf("%q: %+v, %v", version, res, err)
		}
		if got, err := h.dirs["p"].ReadFile("out"); err != nil || len(got) != 3001 {
			t.Errorf("%q: wrote %d bytes, %v", version, len(got), err)
		}
		h.tell(wire.Changed, changed("p/a", wire.EventModified, "w1"))
		if ev := <-events; ev.Path != "p/a" {
			t.Errorf("%q: %+v", version, ev)
		}
	}
}

// The answers to the requests of concurrent tool calls are not mixed up.
func TestHTTPConcurrent(t *testing.T) {
	h := newHost(t, map[string]string{"p/0": "0", "p/1": "1", "p/2": "2", "p/3": "3"})
	b := client.New(nil)
	s := newServer()
	mcp.AddTool(s, &mcp.Tool{Name: "read"}, func(ctx context.Context, req *mcp.CallToolRequest, in struct{ Path string }) (*mcp.CallToolResult, any, error) {
		f, err := b.Files(req.Session)
		if err != nil {
			return nil, nil, err
		}
		data, err := f.ReadFile(ctx, in.Path)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(data)}}}, nil, err
	})
	cs, _ := overHTTP(t, s, b, h, legacy, nil)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			want := string(rune('0' + i%4))
			res, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "read", Arguments: map[string]any{"Path": "p/" + want}})
			if err != nil || res.IsError || res.Content[0].(*mcp.TextContent).Text != want {
				t.Errorf("%s: %+v, %v", want, res, err)
			}
		})
	}
	wg.Wait()
}

// The capability is checked over HTTP, too: a client without it gets no files.
func TestHTTPWithoutBroker(t *testing.T) {
	h := newHost(t, nil)
	h.caps = `{"roots":{}}`
	b := client.New(nil)
	s := newServer()
	var got error
	mcp.AddTool(s, &mcp.Tool{Name: "files"}, func(_ context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		_, got = b.Files(req.Session)
		return nil, nil, nil
	})
	cs, _ := overHTTP(t, s, b, h, legacy, nil)
	if _, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "files"}); err != nil || !errors.Is(got, client.ErrNotSupported) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestHTTPRefusals(t *testing.T) {
	h := newHost(t, nil)
	b := client.New(nil)
	_, url := overHTTP(t, newServer(), b, h, legacy, &client.HTTPOptions{MaxBody: 1000})
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"x","version":"1"},"capabilities":{}}}`
	send := func(method, body string, header ...string) int {
		req, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(header); i += 2 {
			if header[i] == "Host" {
				req.Host = header[i+1]
			}
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	for _, tc := range []struct {
		name, method, body string
		header             []string
		want               int
	}{
		{"initialize", "POST", initialize, nil, 200},
		{"GET without a session", "GET", "", nil, 400},
		{"DELETE without a session", "DELETE", "", nil, 400},
		{"unknown session", "POST", initialize, []string{"Mcp-Session-Id", "x"}, 404},
		{"another host's name", "POST", initialize, []string{"Host", "evil.example"}, 403},
		{"form of a web page", "POST", initialize, []string{"Content-Type", "text/plain"}, 415},
		{"too large", "POST", `{"x":"` + strings.Repeat("x", 2000) + `"}`, nil, 413},
		{"no JSON", "POST", "{", nil, 400},
		{"notification without a session", "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil, 202},
	} {
		if got := send(tc.method, tc.body, tc.header...); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// A session belongs to the user who began it.
func TestHTTPUser(t *testing.T) {
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}
	handler := client.New(nil).HTTPHandler(func(*http.Request) *mcp.Server { return newServer() }, nil)
	ts := httptest.NewServer(auth.RequireBearerToken(verify, nil)(handler))
	defer ts.Close()
	defer handler.Close()
	send := func(user, session, body string) (int, string) {
		req, err := http.NewRequest(http.MethodPost, ts.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Authorization": "Bearer " + user, "Content-Type": "application/json", "Accept": "application/json, text/event-stream"} {
			req.Header.Set(k, v)
		}
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header.Get("Mcp-Session-Id")
	}
	status, session := send("alice", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"x","version":"1"},"capabilities":{}}}`)
	if status != 200 || session == "" {
		t.Fatalf("initialize: %d", status)
	}
	for user, want := range map[string]int{"alice": 200, "mallory": 403} {
		if got, _ := send(user, session, `{"jsonrpc":"2.0","id":2,"method":"ping"}`); got != want {
			t.Errorf("%s: %d, want %d", user, got, want)
		}
	}
}

// A session that is idle ends; one with a request open does not.
func TestHTTPIdle(t *testing.T) {
	h := newHost(t, map[string]string{"p/a": "x"})
	b := client.New(nil)
	s := newServer()
	sessions := make(chan *mcp.ServerSession, 1)
	mcp.AddTool(s, &mcp.Tool{Name: "slow"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		sessions <- req.Session
		time.Sleep(2300 * time.Millisecond)
		f, err := b.Files(req.Session)
		if err != nil {
			return nil, nil, err
		}
		_, err = f.ReadFile(ctx, "p/a")
		return nil, nil, err
	})
	cs, _ := overHTTP(t, s, b, h, legacy, &client.HTTPOptions{IdleTimeout: 2 * time.Second})
	if res, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "slow"}); err != nil || res.IsError {
		t.Fatalf("a busy session: %+v, %v", res, err)
	}
	ss := <-sessions
	_ = ss.Wait() // the session has to end by itself, or the test hangs
	if _, err := b.Files(ss); !errors.Is(err, client.ErrNotSupported) {
		t.Errorf("an ended session: %v", err)
	}
}

// R166, R170: under revision 2026-07-28 RequireWithinRoots works with the SDK's own stateless
// handler. Each request is a session of its own, and the roots come inside a request.
func TestStatelessHTTP(t *testing.T) {
	roots := client.NewRootsService(&client.RootsOptions{Platform: remote})
	runs := 0
	s := toolServer(&runs, "tool")
	s.AddReceivingMiddleware(roots.RequireWithinRoots())
	ts := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))
	defer ts.Close()
	c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	c.AddRoots(&mcp.Root{URI: "file:///a"})
	cs, err := c.Connect(bg, &mcp.StreamableClientTransport{Endpoint: ts.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	if v := cs.InitializeResult().ProtocolVersion; v != "2026-07-28" {
		t.Fatalf("revision %s", v)
	}
	for path, want := range map[string]bool{"/a/x": true, "/b": false} {
		_, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "tool", Arguments: map[string]any{"path": path}})
		if (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
	testkit.Until(t, "the end of all sessions (R210)", func() bool { return roots.Sessions() == 0 })
}
