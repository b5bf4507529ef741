package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/client"
	"github.com/rootsfs/rootsfs/guard"
)

//lint:file-ignore SA1019 roots are deprecated since 2026-07-28 (SEP-2577), but still work

// sdkServer returns a server on the Go SDK whose tools ask for roots and files.
func sdkServer(t *testing.T, files *client.Broker) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk-server", Version: "1"}, &mcp.ServerOptions{
		RootsListChangedHandler: func(context.Context, *mcp.RootsListChangedRequest) {},
	})
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	join := func(r *mcp.ListRootsResult) string {
		var all []string
		for _, root := range r.Roots {
			all = append(all, root.URI)
		}
		return strings.Join(all, " ")
	}
	s.AddTool(&mcp.Tool{Name: "roots", InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r, ok := req.Params.InputResponses["r"].(*mcp.ListRootsResult); ok {
			return text(req.Params.RequestState + " " + join(r)), nil
		}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"r": &mcp.ListRootsParams{}}, RequestState: "state"}, nil
	})
	s.AddTool(&mcp.Tool{Name: "both", InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		r, ok := req.Params.InputResponses["r"].(*mcp.ListRootsResult)
		e, also := req.Params.InputResponses["e"].(*mcp.ElicitResult)
		if ok && also {
			return text(fmt.Sprint(e.Content["name"], " ", join(r))), nil
		}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{
			"r": &mcp.ListRootsParams{},
			"e": &mcp.ElicitParams{Message: "name?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}}},
		}}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "direct"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		r, err := req.Session.ListRoots(ctx, nil)
		if err != nil {
			return nil, nil, err
		}
		return text(join(r)), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "read"}, func(ctx context.Context, req *mcp.CallToolRequest, in struct{ Path string }) (*mcp.CallToolResult, any, error) {
		f, err := files.Files(req.Session)
		if err != nil {
			return nil, nil, err
		}
		if strings.HasPrefix(in.Path, "/") {
			c, err := f.Consent(ctx, "to read it", in.Path)
			if err != nil || !c.Granted {
				return nil, nil, errors.Join(err, errors.New("no consent"))
			}
			in.Path = c.Approved[0].Root
		}
		c, err := f.Read(ctx, in.Path, client.ReadOptions{})
		return text(string(c.Data)), nil, err
	})
	return s
}

// connectSDK joins a host and a server on the Go SDK through a proxy.
func (l *lab) connectSDK(revision string, opt *mcp.ClientOptions) *mcp.ClientSession {
	l.t.Helper()
	n := l.connect(nil)
	files := client.New(nil)
	server := sdkServer(l.t.(*testing.T), files)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx, files.Lines(n.server.out, n.server.in, 0)) }()
	host := mcp.NewClient(&mcp.Implementation{Name: "sdk-host", Version: "1"}, opt)
	cs, err := host.Connect(ctx, &mcp.IOTransport{Reader: n.host.out, Writer: n.host.in}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cs.Close()
		cancel()
		<-served
	})
	if got := cs.InitializeResult().ProtocolVersion; got != revision {
		l.t.Fatalf("revision %s, want %s", got, revision)
	}
	return cs
}

func tool(t *testing.T, cs *mcp.ClientSession, name string, args any) string {
	t.Helper()
	res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return ""
	}
	var all strings.Builder
	for _, c := range res.Content {
		all.WriteString(c.(*mcp.TextContent).Text)
	}
	return all.String()
}

// With the Go SDK on both sides, these work in both revisions: roots inside a result, files/*,
// consent, and a thousand calls at once. In 2025-11-25 a direct request for roots works, too (R170
// among others, see integration/requirements.md).
func TestSDK(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			l := newLab(t, func(c *broker.Config) {
				c.Limits.InFlight = 2000
				if revision == "2026-07-28" { // this revision has no unsolicited requests to the host
					c.Asker = broker.AskerFunc(func(context.Context, *broker.Question) (broker.Answer, error) {
						return broker.Answer{By: "test", Decisions: []broker.Decision{{Allow: true}}}, nil
					})
				}
			})
			dir := l.root("work", guard.ReadOnly, map[string]string{"a.txt": "hello"})
			cs := l.connectSDK(revision, &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					if req.Params.Message == "name?" {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
					}
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"path1": "allow", "minutes": 1.0}}, nil
				},
			})
			if got := tool(t, cs, "roots", nil); got != "state file://"+dir {
				t.Errorf("roots: %q", got)
			}
			if got := tool(t, cs, "both", nil); got != "Ada file://"+dir {
				t.Errorf("both: %q", got)
			}
			if got := tool(t, cs, "direct", nil); revision == "2025-11-25" && got != "file://"+dir {
				t.Errorf("direct: %q", got)
			}
			if got := tool(t, cs, "read", map[string]any{"Path": "work/a.txt"}); got != "hello" {
				t.Errorf("read: %q", got)
			}
			other := t.TempDir() + "/f"
			write(t, other, "granted")
			if got := tool(t, cs, "read", map[string]any{"Path": other}); got != "granted" {
				t.Errorf("consent, then read: %q", got)
			}
			var wg sync.WaitGroup
			for i := range 1000 {
				wg.Go(func() {
					name, args, want := "roots", any(nil), "file://"+dir
					if i%2 == 0 {
						name, args, want = "read", map[string]any{"Path": "work/a.txt"}, "hello"
					}
					if got := tool(t, cs, name, args); !strings.Contains(got, want) {
						t.Errorf("%s at once with others: %q", name, got)
					}
				})
			}
			wg.Wait()
		})
	}
}
