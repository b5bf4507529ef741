package broker

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
)

//lint:file-ignore SA1019 roots are deprecated since 2026-07-28 (SEP-2577), but still work; servers of older revisions know nothing else

// spy records the requests and notifications that a client writes to its transport.
type spy struct {
	mcp.Transport
	mu       sync.Mutex
	requests []*jsonrpc.Request
}

func (s *spy) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := s.Transport.Connect(ctx)
	return &spyConn{c, s}, err
}

type spyConn struct {
	mcp.Connection
	s *spy
}

func (c *spyConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Request); ok {
		c.s.mu.Lock()
		c.s.requests = append(c.s.requests, r)
		c.s.mu.Unlock()
	}
	return c.Connection.Write(ctx, m)
}

type advertised struct {
	Roots      map[string]any             `json:"roots"`
	Extensions map[string]json.RawMessage `json:"extensions"`
}

// An SDK client over a wrapped transport declares brokering in the form of the negotiated
// protocol revision (R010, R011, R012, R013, R168, R169). With the older revision the server
// still gets the roots from roots/list. With the newer one the client sends no list_changed.
func TestAdvertise(t *testing.T) {
	for revision, want := range map[string]string{
		"2025-11-25": `{"filesystemBrokering":true,"listChanged":true}`,
		"2026-07-28": `{}`,
	} {
		t.Run(revision, func(t *testing.T) {
			l := newLab(t, nil)
			l.root("r", guard.ReadOnly, map[string]string{"f": "x"})
			ct, st := mcp.NewInMemoryTransports()
			server := mcp.NewServer(&mcp.Implementation{Name: "srv", Version: "7"}, nil)
			ss, err := server.Connect(t.Context(), st, nil)
			if err != nil {
				t.Fatal(err)
			}
			client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
			s := l.b.Session("")
			s.Bind(client)
			watch := &spy{Transport: ct}
			cs, err := client.Connect(t.Context(), s.Transport(watch), &mcp.ClientSessionOptions{ProtocolVersion: revision})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cs.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			l.root("later", guard.ReadOnly, nil) // Bind adds this root to the SDK client, which then wants to announce it
			if revision < "2026" {
				got, err := ss.ListRoots(t.Context(), nil)
				if err != nil || len(got.Roots) != 2 || got.Roots[1].Name != "r" {
					t.Errorf("the server sees %+v, %v", got, err)
				}
			}
			seen := 0
			watch.mu.Lock()
			for _, r := range watch.requests {
				var caps advertised
				var p struct {
					Capabilities *advertised                `json:"capabilities"`
					Meta         map[string]json.RawMessage `json:"_meta"`
				}
				if json.Unmarshal(r.Params, &p) != nil {
					continue
				}
				switch raw := p.Meta[mcp.MetaKeyClientCapabilities]; {
				case r.Method == "initialize":
					caps = *p.Capabilities
				case raw != nil:
					if err := json.Unmarshal(raw, &caps); err != nil {
						t.Error(err)
					}
				default:
					continue
				}
				seen++
				roots, _ := json.Marshal(caps.Roots)
				if string(roots) != want || caps.Extensions[wire.Extension] == nil {
					t.Errorf("%s declares %s and %s", r.Method, roots, caps.Extensions)
				}
			}
			watch.mu.Unlock()
			if seen == 0 {
				t.Error("nothing was declared")
			}
			if err := cs.Close(); err != nil {
				t.Error(err)
			}
			s.Close()
			watch.mu.Lock()
			defer watch.mu.Unlock()
			n := 0
			for _, r := range watch.requests {
				if r.Method == wire.RootsChanged {
					n++
				}
			}
			if revision >= "2026" && n != 0 {
				t.Errorf("R173: %d list_changed in a revision without it", n)
			}
		})
	}
}

// Since revision 2026-07-28 a server asks for the roots in the result of a call. The client then
// repeats the call with the session's roots (R166, R170, R171).
func TestRootsInsideResult(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadOnly, nil)
	ct, st := mcp.NewInMemoryTransports()
	server := mcp.NewServer(&mcp.Implementation{Name: "srv", Version: "7"}, nil)
	var got []string
	mcp.AddTool(server, &mcp.Tool{Name: "roots"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		if r, ok := req.Params.InputResponses["roots"]; ok {
			for _, root := range r.(*mcp.ListRootsResult).Roots {
				got = append(got, root.URI)
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ok"}}}, nil, nil
		}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"roots": &mcp.ListRootsParams{}}, RequestState: "s"}, nil, nil
	})
	if _, err := server.Connect(t.Context(), st, nil); err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	s := l.b.Session("")
	s.Bind(client)
	cs, err := client.Connect(t.Context(), s.Transport(ct), &mcp.ClientSessionOptions{ProtocolVersion: "2026-07-28"})
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "roots"}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []string{"file://" + dir}) {
		t.Errorf("the server was told %v", got)
	}
}

// An event ends with its blank line, whether its lines end with LF, CR LF or CR.
func TestNextEvent(t *testing.T) {
	for in, want := range map[string]string{
		"data: x\n\n": "data: x\n\n", "data: x\r\n\r\n": "data: x\r\n\r\n", "data: x\r\rdata": "data: x\r\r", "data: x\r\r": "data: x\r\r",
		"\n": "\n", "a\n\nb\n\n": "a\n\n", "a\nb\n\nrest": "a\nb\n\n", "a\r\n\r": "a\r\n\r", "a\r\r\nb": "a\r\r\n",
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "a byte at a time": iotest.OneByteReader(strings.NewReader(in))} {
			if got, _, err := newEvents(io.NopCloser(r), nil, nil).next(); string(got) != want || err != nil {
				t.Errorf("%q, %s: %q, %v, want %q", in, name, got, err, want)
			}
		}
	}
	// next returns an event as soon as its blank line has come. It does not wait for more text.
	r, w := io.Pipe()
	go func() { _, _ = io.WriteString(w, "data: x\n\n") }()
	if got, _, err := newEvents(r, nil, nil).next(); string(got) != "data: x\n\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, in := range []string{"", "data: x", "data: x\n", "a\r\n"} { // no blank line
		if got, data, err := newEvents(io.NopCloser(strings.NewReader(in)), nil, nil).next(); string(got) != in || data != nil || err != io.EOF {
			t.Errorf("%q: %q, %q, %v", in, got, data, err)
		}
	}
}

// Only the session's requests are taken out of the event stream, whatever the sizes of the pieces
// in which the stream arrives.
func TestEvents(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadOnly, map[string]string{"f": "text"})
	const before, after = ": comment\n\nid: 1\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n", "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n\r\ndata: no json\n\n"
	const ours = "id: 2\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"a\",\ndata: \"method\":\"files/read\",\"params\":{\"path\":\"r/f\"}}\n\n"
	for _, size := range []int{1, 2, 3, 7, 1000} {
		s, n := l.b.Session(""), len(l.recs.all())
		answers := make(chan string, 1)
		send := func(_ context.Context, frame []byte, _ Recheck) error { answers <- string(frame); return nil }
		r, w := io.Pipe()
		go func() {
			text := before + ours + after
			for len(text) > 0 {
				n := min(size, len(text))
				_, _ = io.WriteString(w, text[:n])
				text = text[n:]
			}
			w.Close()
		}()
		got, err := io.ReadAll(newEvents(r, s, send))
		if err != nil || string(got) != before+after {
			t.Errorf("pieces of %d: %q, %v", size, got, err)
		}
		// R084: an event whose data is not a message leaves a record.
		if refusals := l.recs.refusalsSince(n); len(refusals) != 1 || !strings.Contains(refusals[0].Detail, "an event is no message") {
			t.Errorf("pieces of %d: on record: %+v", size, refusals)
		}
		if a := <-answers; !strings.Contains(a, `"id":"a"`) || !strings.Contains(a, `"content":"text"`) {
			t.Errorf("answer %s", a)
		}
		s.Close()
	}
}

// The session answers a malformed files/* request, too: the SDK would answer that the method is
// unknown. Other malformed requests pass to the SDK.
func TestEventsUnreadable(t *testing.T) {
	l := newLab(t, nil)
	s := l.b.Session("")
	answers := make(chan string, 1)
	send := func(_ context.Context, frame []byte, _ Recheck) error { answers <- string(frame); return nil }
	const theirs = "data: {\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"ping\",\"params\":{\"a\":\"\\ud800\"}}\n\n"
	const mine = "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"files/read\",\"params\":{\"path\":\"\\ud800\"}}\n\n"
	got, err := io.ReadAll(newEvents(io.NopCloser(strings.NewReader(mine+theirs)), s, send))
	if err != nil || string(got) != theirs {
		t.Errorf("passed on: %q, %v", got, err)
	}
	if a := <-answers; !strings.Contains(a, `"id":7`) || !strings.Contains(a, "-32700") {
		t.Errorf("answer %s", a)
	}
	s.Close()
}

// Over Streamable HTTP the broker's answer is a POST with the MCP session's id and with the
// client's Authorization header (R071, R072).
func TestHTTP(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadOnly, map[string]string{"f": "text"})
	server := mcp.NewServer(&mcp.Implementation{Name: "srv", Version: "7"}, nil)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	type post struct{ auth, session, body string }
	posts := make(chan post, 10)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			b, _ := io.ReadAll(r.Body)
			if strings.Contains(string(b), `"id":"ours"`) {
				posts <- post{r.Header.Get("Authorization"), r.Header.Get("Mcp-Session-Id"), string(b)}
				w.WriteHeader(http.StatusAccepted)
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(b)))
		}
		if r.Method == http.MethodGet { // the standing stream, on which the server sends its files/read
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"ours\",\"method\":\"files/read\",\"params\":{\"path\":\"r/f\"}}\n\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer srv.Close()
	s := l.b.Session("remote")
	inner := srv.Client().Transport
	authorized := roundTripper(func(r *http.Request) (*http.Response, error) {
		r.Header.Set("Authorization", "Bearer token")
		return s.HTTP(inner).RoundTrip(r)
	})
	client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
	cs, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: srv.URL, HTTPClient: &http.Client{Transport: authorized}},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case p := <-posts:
		if p.auth != "Bearer token" || p.session == "" || p.session != cs.ID() || !strings.Contains(p.body, `"content":"text"`) {
			t.Errorf("%+v, session %q", p, cs.ID())
		}
	case <-time.After(time.Minute):
		t.Fatal("no answer was posted")
	}
	if st := s.Stats(); st.Server != "srv 7" || st.Revision != "2025-11-25" {
		t.Errorf("%+v", st)
	}
	_ = cs.Close()
	s.Close()
}

// The answer that names the server may be plain JSON instead of an event stream. The SDK gets its
// whole body, even if the body is longer than maxGreeting.
func TestHTTPGreeting(t *testing.T) {
	for _, c := range []struct{ method, params, result, revision string }{
		{"initialize", `{}`, `{"protocolVersion":"2025-11-25","serverInfo":{"name":"srv","version":"7"}}`, "2025-11-25"},
		{
			"server/discover", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`,
			`{"supportedVersions":["2026-07-28"],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"srv","version":"7"}}}`, "2026-07-28",
		},
	} {
		for _, padding := range []int{0, 2 * maxGreeting} {
			answer := `{"jsonrpc":"2.0","id":1,"result":` + c.result + `}` + strings.Repeat(" ", padding)
			s := newLab(t, nil).b.Session("")
			inner := roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}},
					Body: io.NopCloser(iotest.HalfReader(strings.NewReader(answer))),
				}, nil
			})
			request := `{"jsonrpc":"2.0","id":1,"method":"` + c.method + `","params":` + c.params + `}`
			res, err := s.HTTP(inner).RoundTrip(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(request)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			if err != nil || string(got) != answer {
				t.Errorf("%s: %d bytes of %d, %v", c.method, len(got), len(answer), err)
			}
			if st := s.Stats(); padding == 0 && (st.Server != "srv 7" || st.Revision != c.revision) {
				t.Errorf("%s: %+v", c.method, st)
			}
			s.Close()
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Changes by the host and by the broker are reported, with times in UTC. A watch reports only the
// events that files/watch asked for, and files/unwatch accepts its id only once (R044, R045, R046).
func TestWatch(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, map[string]string{"sub/f": "x"})
	p := l.connect("")
	var w, filtered wire.WatchResult
	p.must("files/watch", `{"path":"r","recursive":true}`, &w)
	p.must("files/watch", `{"path":"r/sub","events":["deleted"]}`, &filtered)
	expect := func(what, path, event string) {
		t.Helper()
		p.until(wire.Changed, func(raw json.RawMessage) bool {
			var c wire.ChangedParams
			if err := json.Unmarshal(raw, &c); err != nil {
				t.Fatal(err)
			}
			ts, err := time.Parse(time.RFC3339, c.Timestamp)
			if err != nil || ts.Location() != time.UTC {
				t.Errorf("timestamp %q: %v", c.Timestamp, err)
			}
			if c.WatchID == filtered.WatchID && c.Event != "deleted" {
				t.Errorf("the watch of deletions got %+v", c)
			}
			if strings.Contains(c.Path, dir) {
				t.Errorf("a host path: %+v", c)
			}
			return c.Path == path && c.Event == event
		})
	}
	if err := os.WriteFile(dir+"/sub/new", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	expect("the host", "r/sub/new", "created")
	p.must("files/write", `{"path":"r/sub/f","content":"changed"}`, nil)
	expect("the broker", "r/sub/f", "modified")
	p.must("files/delete", `{"path":"r/sub/new"}`, nil)
	expect("the broker", "r/sub/new", "deleted")
	p.must("files/unwatch", obj{"watchId": w.WatchID}, nil)
	p.must("files/unwatch", obj{"watchId": filtered.WatchID}, nil)
	if e, _ := p.fails("files/unwatch", obj{"watchId": w.WatchID}); e.Code != wire.CodeInvalidParams {
		t.Errorf("second unwatch: %+v", e)
	}
	for _, bad := range []string{`{"path":"r","events":["renamed"]}`, `{"events":[]}`, `{"path":"r","recursive":1}`} {
		if e, _ := p.fails("files/watch", bad); e.Code != wire.CodeInvalidParams {
			t.Errorf("%s: %+v", bad, e)
		}
	}
}
