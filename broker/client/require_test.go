//lint:file-ignore SA1019 roots are deprecated since revision 2026-07-28 and not replaced; this package exists for them.

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/broker/wire"
)

// toolServer returns a server with the named tools. Each tool counts its runs in runs and returns
// its arguments.
func toolServer(runs *int, tools ...string) *mcp.Server {
	s := newServer()
	for _, name := range tools {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			*runs++
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(req.Params.Arguments)}}}, nil
		})
	}
	return s
}

// R114, R131, R215, R216, R217, R218, R219: the middleware refuses a call before the handler runs.
func TestRequireWithinRoots(t *testing.T) {
	for _, tc := range []struct {
		name    string
		args    []string // of RequireWithinRoots
		call    string   // the tool's arguments
		refusal string   // part of the message; "" for none
	}{
		{"R215 default name, inside", nil, `{"path":"/a/x"}`, ""},
		{"R215 default name, URI", nil, `{"path":"file:///a/x","n":1}`, ""},
		{"R218 outside", nil, `{"path":"/etc/passwd"}`, `"/etc/passwd" is outside`},
		{"R218 climbing", nil, `{"path":"/a/../etc/passwd"}`, `"/a/../etc/passwd"`},
		{"R216 file_path", []string{"file_path"}, `{"file_path":"/a/x","path":"/etc"}`, ""},
		{"R216 file_path outside", []string{"file_path"}, `{"file_path":"/etc","path":"/a"}`, `"/etc"`},
		{"R216 directory", []string{"directory"}, `{"directory":"/b"}`, `"/b"`},
		{"R216 source", []string{"source"}, `{"source":"/a/1","destination":"/b"}`, ""},
		{"R217 both inside", []string{"source", "destination"}, `{"source":"/a/1","destination":"/a/2"}`, ""},
		{"R217 source outside", []string{"source", "destination"}, `{"source":"/b/1","destination":"/a/2"}`, `"/b/1"`},
		{"R217 destination outside", []string{"source", "destination"}, `{"source":"/a/1","destination":"/b/2"}`, `"/b/2"`},
		{"R217 destination missing", []string{"source", "destination"}, `{"source":"/a/1"}`, `"destination" is missing`},
		{"R219 missing", nil, `{}`, `"path" is missing`},
		{"R219 null", nil, `{"path":null}`, "must be text"},
		{"R219 number", nil, `{"path":1}`, "must be text"},
		{"R219 list", nil, `{"path":["/a"]}`, "must be text"},
		{"R219 object", nil, `{"path":{"path":"/a"}}`, "must be text"},
		{"R219 empty", nil, `{"path":""}`, "cannot be resolved"},
		{"twice", nil, `{"path":"/a","path":"/etc"}`, "stands twice"},
		{"another spelling beside it", nil, `{"path":"/a","Path":"/etc"}`, `"Path" must be spelt`},
		{"another spelling only", nil, `{"PATH":"/a"}`, `"PATH" must be spelt`},
		{"control characters are escaped", nil, `{"path":"/x\n\u001b[2J"}`, `/x\n\u{1b}[2J`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHost(t, nil)
			h.setRoots("/a")
			b := client.New(nil)
			roots := client.NewRootsService(&client.RootsOptions{Broker: b, Platform: remote})
			runs := 0
			s := toolServer(&runs, "tool")
			s.AddReceivingMiddleware(roots.RequireWithinRoots(tc.args...))
			_, cs := connect(t, s, b, h, legacy)
			res, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "tool", Arguments: json.RawMessage(tc.call)})
			if tc.refusal == "" {
				if err != nil || runs != 1 || res.Content[0].(*mcp.TextContent).Text != tc.call {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			var reply *jsonrpc.Error
			if !errors.As(err, &reply) || reply.Code != -32602 || !strings.Contains(reply.Message, tc.refusal) {
				t.Fatalf("got %+v, %v; want -32602 that says %s", res, err, tc.refusal)
			}
			if runs != 0 {
				t.Fatal("the handler ran")
			}
		})
	}
}

// R113: without roots, or if they cannot be read, everything is refused.
func TestRequireWithoutRoots(t *testing.T) {
	for name, prepare := range map[string]func(*host){
		"no capability":    func(h *host) { h.caps = `{}` },
		"no roots":         func(h *host) { h.setRoots() },
		"method not found": func(h *host) { h.on(wire.RootsList, refuse(-32601, "Roots not supported")) },
		"broken":           func(h *host) { h.on(wire.RootsList, refuse(-32603, "broken")) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil)
			prepare(h)
			b := client.New(nil)
			runs := 0
			s := toolServer(&runs, "tool")
			s.AddReceivingMiddleware(client.NewRootsService(&client.RootsOptions{Broker: b, Platform: remote}).RequireWithinRoots())
			_, cs := connect(t, s, b, h, legacy)
			_, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "tool", Arguments: map[string]any{"path": "/a"}})
			var reply *jsonrpc.Error
			if !errors.As(err, &reply) || reply.Code != -32602 || !strings.Contains(reply.Message, `"/a"`) || runs != 0 {
				t.Fatalf("%v, %d runs", err, runs)
			}
		})
	}
}

func refuse(code int64, message string) func(context.Context, json.RawMessage) (any, error) {
	return func(context.Context, json.RawMessage) (any, error) {
		return nil, &jsonrpc.Error{Code: code, Message: message}
	}
}

func TestForTools(t *testing.T) {
	h := newHost(t, nil)
	h.setRoots("/a")
	b := client.New(nil)
	runs := 0
	s := toolServer(&runs, "read", "time")
	roots := client.NewRootsService(&client.RootsOptions{Broker: b, Platform: remote})
	s.AddReceivingMiddleware(client.ForTools(roots.RequireWithinRoots(), "read"))
	_, cs := connect(t, s, b, h, legacy)
	if _, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "time"}); err != nil || runs != 1 {
		t.Errorf("another tool: %v", err)
	}
	if _, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "read"}); err == nil || runs != 1 {
		t.Error("the named tool runs without a path")
	}
	// notifications pass through the restricted middleware, too
	h.setRoots("/b")
	h.tell(wire.RootsChanged, nil)
	if _, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "read", Arguments: map[string]any{"path": "/b"}}); err != nil || runs != 2 {
		t.Errorf("after a change: %v", err)
	}
}

// recorder keeps the frames of a connection, as they are on the wire. mcp.LoggingTransport
// records a frame only after it was written, when the peer may have answered already.
type recorder struct {
	mcp.Transport
	mu     sync.Mutex
	frames strings.Builder
}

func (r *recorder) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := r.Transport.Connect(ctx)
	return recordingConn{c, r}, err
}

type recordingConn struct {
	mcp.Connection
	*recorder
}

func (c recordingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err == nil {
		c.add("read", m)
	}
	return m, err
}

func (c recordingConn) Write(ctx context.Context, m jsonrpc.Message) error {
	c.add("write", m)
	return c.Connection.Write(ctx, m)
}

func (r *recorder) add(what string, m jsonrpc.Message) {
	frame, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		frame = []byte(err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.frames, "%s: %s\n", what, frame)
}

func (r *recorder) lines(prefix, part string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(r.frames.String()) {
		if rest, ok := strings.CutPrefix(line, prefix+": "); ok && strings.Contains(rest, part) {
			out = append(out, strings.TrimSpace(rest))
		}
	}
	return out
}

// connectModern connects an SDK client with roots under revision 2026-07-28.
func connectModern(t *testing.T, s *mcp.Server, roots ...string) (*mcp.ServerSession, *mcp.ClientSession, *mcp.Client, *recorder) {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{RootsV2: &mcp.RootCapabilities{}},
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept"}, nil
		}})
	for _, r := range roots {
		c.AddRoots(&mcp.Root{URI: r})
	}
	st, ct := mcp.NewInMemoryTransports()
	rec := &recorder{Transport: st}
	ss, err := s.Connect(bg, rec, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := c.Connect(bg, ct, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close(); ss.Wait() })
	if v := cs.InitializeResult().ProtocolVersion; v != "2026-07-28" {
		t.Fatalf("revision %s", v)
	}
	return ss, cs, c, rec
}

// R166, R167, R168, R169, R170, R171, R173: under 2026-07-28 the roots are asked for inside the request,
// in the protocol's form, and nothing is sent outside a request.
func TestRootsInsideRequest(t *testing.T) {
	runs := 0
	s := toolServer(&runs, "tool")
	roots := client.NewRootsService(&client.RootsOptions{Platform: remote})
	s.AddReceivingMiddleware(roots.RequireWithinRoots())
	ss, cs, c, rec := connectModern(t, s, "file:///a")
	call := func(path string) error {
		_, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "tool", Arguments: map[string]any{"path": path}})
		return err
	}
	if err := call("/a/x"); err != nil || runs != 1 {
		t.Fatalf("inside: %v, %d runs", err, runs)
	}
	var reply *jsonrpc.Error
	if err := call("/etc"); !errors.As(err, &reply) || reply.Code != -32602 || !strings.Contains(reply.Message, `"/etc"`) || runs != 1 {
		t.Fatalf("outside: %v, %d runs", err, runs)
	}
	// A change is seen by the next request: there is no notification to wait for (R173).
	c.AddRoots(&mcp.Root{URI: "file:///etc"})
	if err := call("/etc"); err != nil || runs != 2 {
		t.Fatalf("after a change: %v", err)
	}
	c.RemoveRoots("file:///a")
	if err := call("/a/x"); err == nil {
		t.Fatal("a root that is gone still counts")
	}
	if v := roots.Version(ss); v != 4 {
		t.Errorf("version %d", v)
	}
	// R167: outside a request the roots cannot be asked for, and nothing is sent.
	if g, err := roots.Guard(bg, ss); !errors.Is(err, client.ErrInputRequired) || g.Within("/etc") {
		t.Errorf("outside a request: %v", err)
	}
	roots.Changed(ss)
	if err := roots.Refresh(bg, ss); !errors.Is(err, client.ErrInputRequired) {
		t.Errorf("refresh outside a request: %v", err)
	}
	// R166: the server wrote answers only.
	wrote := rec.lines("write", "{")
	for _, frame := range wrote {
		var m struct{ Method string }
		if err := json.Unmarshal([]byte(frame), &m); err != nil || m.Method != "" {
			t.Errorf("the server sent a message of its own: %s, %v", frame, err)
		}
	}
	if len(wrote) < 8 {
		t.Errorf("only %d frames were looked at", len(wrote))
	}
	// R170, R171: the form on the wire: the inner request has no jsonrpc and no id.
	questions := rec.lines("write", "input_required")
	if len(questions) != 4 {
		t.Fatalf("asked %d times", len(questions))
	}
	var got struct {
		Result map[string]json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal([]byte(questions[0]), &got); err != nil {
		t.Fatal(err)
	}
	if r := string(got.Result["resultType"]); r != `"input_required"` {
		t.Errorf("resultType %s", r)
	}
	if r := string(got.Result["inputRequests"]); r != `{"io.github.rootsfs/roots":{"method":"roots/list","params":{}}}` {
		t.Errorf("inputRequests %s", r)
	}
	retries := rec.lines("read", `"inputResponses":{"io.github.rootsfs/roots":{"roots":[{`)
	if len(retries) != 4 {
		t.Errorf("%d retries", len(retries))
	}
	// R168, R169: each request carries the client's declarations, roots as an empty object.
	calls := rec.lines("read", `"tools/call"`)
	if len(calls) != 8 {
		t.Errorf("%d calls on the wire", len(calls))
	}
	for _, frame := range calls {
		var m struct {
			Params struct {
				Meta struct {
					Caps map[string]json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
				} `json:"_meta"`
			}
		}
		if err := json.Unmarshal([]byte(frame), &m); err != nil || string(m.Params.Meta.Caps["roots"]) != "{}" {
			t.Errorf("a request that declares roots as %s: %v", m.Params.Meta.Caps["roots"], err)
		}
	}
}

// R172: a repeated request without the roots is refused, and the client is not asked again.
func TestAnswerWithoutRoots(t *testing.T) {
	runs := 0
	s := toolServer(&runs, "tool")
	s.AddReceivingMiddleware(client.NewRootsService(&client.RootsOptions{Platform: remote}).RequireWithinRoots())
	_, cs, _, rec := connectModern(t, s, "file:///a")
	_, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "tool", Arguments: map[string]any{"path": "/a"}, RequestState: "io.github.rootsfs/roots asked"})
	var reply *jsonrpc.Error
	if !errors.As(err, &reply) || reply.Code != -32602 || runs != 0 {
		t.Fatalf("%v, %d runs", err, runs)
	}
	if n := len(rec.lines("write", "input_required")); n != 0 {
		t.Fatalf("asked %d times", n)
	}
}

// A tool call of a client without the roots capability is refused under revision 2026-07-28, too
// (R119).
func TestInsideRequestWithoutRoots(t *testing.T) {
	runs := 0
	s := toolServer(&runs, "tool")
	s.AddReceivingMiddleware(client.NewRootsService(nil).RequireWithinRoots())
	c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	st, ct := mcp.NewInMemoryTransports()
	if _, err := s.Connect(bg, st, nil); err != nil {
		t.Fatal(err)
	}
	cs, err := c.Connect(bg, ct, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	_, err = cs.CallTool(bg, &mcp.CallToolParams{Name: "tool", Arguments: map[string]any{"path": "/a"}})
	if err == nil || !strings.Contains(err.Error(), "roots capability") || runs != 0 {
		t.Fatalf("%v, %d runs", err, runs)
	}
}

// One handler serves the old and the new revision: it returns the error of Guard. Under the new
// revision it is called again when the roots have come (R170). The test has a tool and a prompt.
func TestHandlersAskByError(t *testing.T) {
	for _, version := range []string{legacy, ""} {
		roots := client.NewRootsService(&client.RootsOptions{Platform: remote})
		s := newServer()
		s.AddReceivingMiddleware(roots.Middleware())
		check := func(ctx context.Context, ss *mcp.ServerSession, path string) error {
			g, err := roots.Guard(ctx, ss)
			if err != nil {
				return err
			}
			return g.Check(path)
		}
		mcp.AddTool(s, &mcp.Tool{Name: "typed"}, func(ctx context.Context, req *mcp.CallToolRequest, in struct {
			Path string `json:"path"`
		}) (*mcp.CallToolResult, any, error) {
			return nil, nil, check(ctx, req.Session, in.Path)
		})
		s.AddPrompt(&mcp.Prompt{Name: "prompt", Arguments: []*mcp.PromptArgument{{Name: "path"}}}, func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{}, check(ctx, req.Session, req.Params.Arguments["path"])
		})
		c := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil)
		c.AddRoots(&mcp.Root{URI: "file:///a"})
		st, ct := mcp.NewInMemoryTransports()
		if _, err := s.Connect(bg, st, nil); err != nil {
			t.Fatal(err)
		}
		cs, err := c.Connect(bg, ct, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]bool{"/a/x": true, "/b": false} {
			res, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "typed", Arguments: map[string]any{"path": path}})
			if err != nil || res.IsError == want {
				t.Errorf("%q tool %s: %+v, %v", version, path, res, err)
			}
			if _, err := cs.GetPrompt(bg, &mcp.GetPromptParams{Name: "prompt", Arguments: map[string]string{"path": path}}); (err == nil) != want {
				t.Errorf("%q prompt %s: %v", version, path, err)
			}
		}
		cs.Close()
	}
}

// A handler that asks the client a question of its own gets the answer. The middleware adds the
// question for the roots, and the handler sees neither the answer nor the state of the added
// question. Two services share one answer.
func TestQuestionsAreCombined(t *testing.T) {
	s := newServer()
	a := client.NewRootsService(&client.RootsOptions{Platform: remote})
	b := client.NewRootsService(&client.RootsOptions{Platform: remote})
	var seen []string
	s.AddTool(&mcp.Tool{Name: "tool", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		p := req.Params
		seen = append(seen, fmt.Sprintf("%d %q", len(p.InputResponses), p.RequestState))
		if p.InputResponses["mine"] == nil {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"mine": &mcp.ElicitParams{Message: "sure?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)}}, RequestState: "step 2"}, nil
		}
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	})
	s.AddReceivingMiddleware(a.RequireWithinRoots(), b.RequireWithinRoots())
	_, cs, _, rec := connectModern(t, s, "file:///a")
	if _, err := cs.CallTool(bg, &mcp.CallToolParams{Name: "tool", Arguments: map[string]any{"path": "/a"}}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(seen) != `[0 "" 1 "step 2"]` {
		t.Errorf("the handler saw %v", seen)
	}
	if n := len(rec.lines("read", `"tools/call"`)); n != 3 {
		t.Errorf("%d requests", n)
	}
}
