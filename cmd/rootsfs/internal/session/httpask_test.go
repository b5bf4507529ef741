package session

//lint:file-ignore SA1019 roots are deprecated since 2026-07-28 (SEP-2577), but still work

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/oauthissuer"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// greedy is an MCP client that says yes to every question that it gets.
type greedy struct {
	t         *testing.T
	questions atomic.Int64
	unable    bool // it cannot show forms
	session   *mcp.ClientSession
}

func newGreedy(t *testing.T, transport mcp.Transport, revision string, forms bool, roots ...string) *greedy {
	t.Helper()
	g := &greedy{t: t}
	var options mcp.ClientOptions
	if forms {
		options.ElicitationHandler = func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return g.Elicit(ctx, r.Params)
		}
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "greedy", Version: "1"}, &options)
	for _, dir := range roots {
		c.AddRoots(&mcp.Root{URI: names.FormatURI(dir), Name: "mine"})
	}
	var err error
	g.session, err = c.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = g.session.Close() })
	return g
}

// Elicit implements broker.Elicitor.
func (g *greedy) Elicit(_ context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	g.questions.Add(1)
	if g.unable {
		return nil, errors.New("not supported")
	}
	content := map[string]any{"minutes": 0}
	for _, key := range []string{"path1", "host"} {
		if properties, _ := p.RequestedSchema.(map[string]any)["properties"].(map[string]any); properties[key] != nil {
			content[key] = "allow"
		}
	}
	return &mcp.ElicitResult{Action: "accept", Content: content}, nil
}

// call calls a tool and returns its text, and whether the call succeeded.
func (g *greedy) call(tool string, args map[string]any) (text string, ok bool) {
	res, err := g.session.CallTool(g.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return err.Error(), false
	}
	return res.Content[0].(*mcp.TextContent).Text, !res.IsError
}

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b != "" {
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// overHTTP has a session serve a port, and returns how clients with a token reach it.
func overHTTP(t *testing.T, s *Session, req control.HTTPRequest) func(token string) mcp.Transport {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testkit.Must(t, err)
	_, req.Port, _ = net.SplitHostPort(l.Addr().String())
	req.Path, req.Sessions, req.Ask = "/mcp", 10, true
	f, err := s.NewFront(t.Context(), "serve", req)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		testkit.Must(t, <-done)
		f.Close()
	})
	return func(token string) mcp.Transport {
		return &mcp.StreamableClientTransport{Endpoint: "http://" + l.Addr().String() + "/mcp", HTTPClient: &http.Client{Transport: bearer(token)}}
	}
}

// startWithFile starts a session with the configuration conf, and makes a file that is in no root
// of the session. In conf, FILE stands for the path of the file.
func startWithFile(t *testing.T, conf string, mounted bool) (s *Session, file string) {
	t.Helper()
	opt, work := newOptions(t)
	opt.Unmounted, opt.Name = !mounted, "me"
	file = filepath.Join(work, "private")
	testkit.Must(t, os.WriteFile(file, []byte("private"), 0o600))
	path := filepath.Join(work, "config.toml")
	testkit.Must(t, os.WriteFile(path, []byte(strings.ReplaceAll(conf, "FILE", file)), 0o600))
	var err error
	opt.Config, err = config.Load(path)
	testkit.Must(t, err)
	return startWith(t, opt), file
}

// startWith starts a session with options. The session ends with the test.
func startWith(t *testing.T, opt Options) *Session {
	t.Helper()
	s, err := Start(context.Background(), opt)
	testkit.Must(t, err)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(stop) }()
	t.Cleanup(func() {
		close(stop)
		testkit.Must(t, <-ended)
	})
	return s
}

// awaitQuestion waits for a question and returns it, or nil if done is closed first.
func awaitQuestion(t *testing.T, s *Session, done <-chan struct{}) *control.Question {
	t.Helper()
	for {
		list, changed := s.consent.Waiting()
		if len(list) > 0 {
			return &list[0]
		}
		select {
		case <-changed:
		case <-done:
			return nil
		case <-time.After(time.Minute):
			t.Fatal("neither a question nor an answer")
		}
	}
}

// A client over HTTP is not asked for consent, whether it has the token, is a user of the issuer,
// or has no token. The question about its call goes to the owner. After the owner's denial the call
// fails.
func TestHTTPCallersAnswerNothing(t *testing.T) {
	for name, how := range map[string]func(*testing.T) (req control.HTTPRequest, token string){
		"token": func(*testing.T) (control.HTTPRequest, string) {
			const token = "0123456789abcdef0123456789abcdef"
			return control.HTTPRequest{Token: token}, token
		},
		"oauth": func(t *testing.T) (control.HTTPRequest, string) {
			i := oauthissuer.New(t)
			req := control.HTTPRequest{Issuer: i.URL, Audiences: []string{"files"}, Resources: []string{"http://127.0.0.1/mcp"}}
			return req, i.Token("files", map[string]any{"sub": "bob"})
		},
		"no token": func(*testing.T) (control.HTTPRequest, string) { return control.HTTPRequest{}, "" },
	} {
		for _, revision := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(name+" "+revision, func(t *testing.T) {
				s, file := startWithFile(t, "", false)
				req, token := how(t)
				g := newGreedy(t, overHTTP(t, s, req)(token), revision, true)
				for _, tool := range []struct {
					name string
					args map[string]any
				}{
					{"read_text_file", map[string]any{"path": file}},
					{"write_file", map[string]any{"path": file, "content": "changed by the caller"}},
				} {
					var text string
					var ok bool
					done := make(chan struct{})
					go func() {
						defer close(done)
						text, ok = g.call(tool.name, tool.args)
					}()
					q := awaitQuestion(t, s, done)
					if q == nil {
						t.Errorf("%s: nobody was asked, and the answer is %v: %q", tool.name, ok, text)
						continue
					}
					_, err := s.consent.Answer(t.Context(), control.AnswerRequest{ID: q.ID})
					testkit.Must(t, err)
					<-done
					if ok || strings.Contains(text, filepath.Dir(file)) || !strings.Contains(text, "owner") {
						t.Errorf("%s after the owner's no: %v: %q", tool.name, ok, text)
					}
				}
				if n := g.questions.Load(); n != 0 {
					t.Errorf("the caller was asked %d times", n)
				}
				if b, err := os.ReadFile(file); string(b) != "private" {
					t.Errorf("the file has %q, %v", b, err)
				}
			})
		}
	}
}

// Another client cannot answer a client's question, even if it knows the id.
func TestHTTPCallersDoNotAnswerEachOther(t *testing.T) {
	s, file := startWithFile(t, "", false)
	to := overHTTP(t, s, control.HTTPRequest{Token: testToken})
	var calls sync.WaitGroup
	ask := func(state string) {
		g := newGreedy(t, to(testToken), "2026-07-28", true)
		calls.Go(func() {
			res, err := g.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "read_text_file", Arguments: map[string]any{"path": file}, RequestState: state,
				InputResponses: mcp.InputResponseMap{"rootsfs-consent": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"path1": "allow"}}}})
			if err == nil && !res.IsError {
				t.Errorf("an answer to %q was taken", state)
			}
		})
	}
	waiting := func(n int) []control.Question {
		for {
			list, changed := s.consent.Waiting()
			if len(list) == n {
				return list
			}
			select {
			case <-changed:
			case <-time.After(time.Minute):
				t.Fatalf("%d questions wait, want %d", len(list), n)
			}
		}
	}
	ask("")
	id := waiting(1)[0].ID
	ask(id)
	waiting(2)
	if list := s.Registry().Roots(); len(list) != 0 {
		t.Errorf("granted: %+v", list)
	}
	_, err := s.consent.Answer(t.Context(), control.AnswerRequest{All: true})
	testkit.Must(t, err)
	calls.Wait()
}
