package tools_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// caller is a client over HTTP that approves every path it is asked about, and counts the
// questions.
type caller struct {
	asked  atomic.Int64
	client *mcp.ClientSession
}

func (p *caller) elicit(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	p.asked.Add(1)
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"path1": "allow", "minutes": 0}}, nil
}

// connect connects one more client to a site, in a revision of the protocol.
func connect(t *testing.T, url string, token http.RoundTripper, revision string) *caller {
	t.Helper()
	p := &caller{}
	c := mcp.NewClient(&mcp.Implementation{Name: "editor-of-theirs", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: p.elicit})
	var err error
	p.client, err = c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: token}},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = p.client.Close() })
	return p
}

// read calls read_text_file.
func (p *caller) read(t *testing.T, path string) (text string, ok bool) {
	t.Helper()
	res, err := p.client.CallTool(context.Background(), &mcp.CallToolParams{Name: "read_text_file", Arguments: m{"path": path}})
	if err != nil {
		return err.Error(), false
	}
	return res.Content[0].(*mcp.TextContent).Text, !res.IsError
}

// owner answers every question by its field allow, and keeps the questions in asked.
type owner struct {
	allow bool
	asked []*broker.Question
}

// Ask implements broker.Asker.
func (o *owner) Ask(_ context.Context, q *broker.Question) (broker.Answer, error) {
	o.asked = append(o.asked, q)
	return broker.Answer{By: "owner", Decisions: []broker.Decision{{Allow: o.allow}}}, nil
}

// letOwnerAnswer makes the returned owner answer the questions of a bench. A client that may answer
// its own questions is asked first.
func (b *bench) letOwnerAnswer() *owner {
	o := &owner{}
	b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.Chain(broker.AskHost, o), AskFor: 20 * time.Second})
	b.t.Cleanup(b.ask.Close)
	return o
}

// rootsOf returns the roots that were granted to this subject alone, such as a session's by
// consent.
func (b *bench) rootsOf(who guard.Subject) (list []guard.RootName) {
	for _, st := range b.reg.Roots() {
		if st.Grant.Subject == who {
			list = append(list, st.Grant.Root)
		}
	}
	return list
}

// A session over HTTP does not answer its own question: the owner does. The consent holds for
// this session only, and ends with the session.
func TestHTTPSessionsAskTheOwner(t *testing.T) {
	b := start(t, func(c *tools.Config) { c.ClientAnswers = true }, nil) // over HTTP this is switched off
	o := b.letOwnerAnswer()
	site := b.site(tools.HTTPOptions{})
	one, two := connect(t, site.URL, bearer{}, "2025-11-25"), connect(t, site.URL, bearer{}, "2025-11-25")
	path := filepath.Join(t.TempDir(), "f")
	testkit.Must(t, os.WriteFile(path, []byte("outside"), 0o600))
	o.allow = true
	if text, ok := one.read(t, path); !ok || text != "outside" {
		t.Errorf("allowed: %q", text)
	}
	o.allow = false
	if text, ok := two.read(t, path); ok || strings.Contains(text, "outside") {
		t.Errorf("denied: %q", text)
	}
	if text, ok := one.read(t, path); !ok || text != "outside" {
		t.Errorf("allowed before: %q", text)
	}
	if n := one.asked.Load() + two.asked.Load(); n != 0 || len(o.asked) != 2 {
		t.Fatalf("the callers were asked %d times, the owner %d times; want 0 and 2", n, len(o.asked))
	}
	for i, who := range []guard.Subject{"test#1", "test#2"} {
		if q := o.asked[i]; q.Subject != who || q.Server != "editor-of-theirs" {
			t.Errorf("the question does not say who asks: %+v", q)
		}
	}
	if one, two := b.rootsOf("test#1"), b.rootsOf("test#2"); len(one) != 1 || len(two) != 0 {
		t.Fatalf("the sessions have %q and %q", one, two)
	}
	name := b.rootsOf("test#1")[0]
	if text, ok := two.read(t, string(name)); ok {
		t.Errorf("by the root's name: %q", text)
	}
	testkit.Must(t, one.client.Close())
	testkit.Until(t, "the root ends with its session", func() bool { return len(b.rootsOf("test#1")) == 0 })
	var records []string
	for _, r := range b.recs.All() {
		records = append(records, string(r.Subject))
	}
	if !slices.Contains(records, "test#1") || !slices.Contains(records, "test#2") {
		t.Errorf("the records are of %q", records)
	}
}

// The answer says how the question ended and what to do next, and names no path.
func TestAnswerSaysHowTheQuestionEnded(t *testing.T) {
	for name, c := range map[string]struct {
		ask  broker.AskerFunc
		want string
	}{
		"denied": {func(context.Context, *broker.Question) (broker.Answer, error) { return broker.Answer{}, nil },
			"nobody approved this: the owner or the configuration denied it; list_allowed_directories tells what is approved"},
		"no answer": {func(context.Context, *broker.Question) (broker.Answer, error) {
			return broker.Answer{}, broker.ErrUnanswered
		}, "nobody approved this: the owner was asked and has not answered in time; ask the owner to answer (rootsfs consent list --watch), then call again"},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, nil, nil)
			b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: c.ask})
			t.Cleanup(b.ask.Close)
			p := connect(t, b.site(tools.HTTPOptions{}).URL, bearer{}, "2026-07-28")
			if text, ok := p.read(t, t.TempDir()); ok || text != c.want {
				t.Errorf("%v: %s", ok, text)
			}
		})
	}
}

// chooser allows the path of a form if the form's message contains allow, and declines other forms.
type chooser struct {
	allow string
	asked atomic.Int64
}

func (p *chooser) elicit(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	p.asked.Add(1)
	if !strings.Contains(req.Params.Message, p.allow) {
		return &mcp.ElicitResult{Action: "decline"}, nil
	}
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"path1": "read only"}}, nil
}

// Under revision 2026-07-28 the question is the result of the call, and the client repeats the
// call with the answer. An allowed call is then carried out. A denied path is not asked about
// again in this call, and each of several paths is asked about once.
func TestAskInsideACall(t *testing.T) {
	p := &chooser{allow: "yes"}
	b := start(t, func(c *tools.Config) {
		c.Subject = guard.Subject("test").InSession(7)
	}, &mcp.ClientOptions{ElicitationHandler: p.elicit})
	b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.AskHost, AskFor: 30 * time.Second})
	t.Cleanup(b.ask.Close)
	b.letClientAnswer()
	b.overStdio("2026-07-28")
	dir := t.TempDir()
	paths := []string{dir + "/no-1", dir + "/yes-1", dir + "/no-2", dir + "/yes-2"}
	for _, f := range paths {
		testkit.Must(t, os.WriteFile(f, []byte("of "+filepath.Base(f)), 0o600))
	}
	text := b.ok("read_multiple_files", m{"paths": paths})
	for _, f := range paths {
		if got, want := strings.Contains(text, "of "+filepath.Base(f)), strings.Contains(f, "yes"); got != want {
			t.Errorf("%s: %v in %q", f, got, text)
		}
	}
	if n := p.asked.Load(); n != 4 {
		t.Errorf("asked %d times, want 4", n)
	}
	if got := b.ok("read_text_file", m{"path": dir + "/yes-1"}); got != "of yes-1" || p.asked.Load() != 4 {
		t.Errorf("%q, asked %d times", got, p.asked.Load())
	}
	b.refused("read_text_file", m{"path": dir + "/no-1"}, "nobody approved")
	res, err := b.host.CallTool(context.Background(), &mcp.CallToolParams{Name: "read_text_file", Arguments: m{"path": dir + "/no-2"}, RequestState: "made up",
		InputResponses: mcp.InputResponseMap{"rootsfs-consent": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"path1": "allow"}}}})
	if err == nil && !res.IsError {
		t.Errorf("an answer to no question: %+v", res)
	}
}

// A client without forms is not asked, and its call is refused.
func TestAskInsideWithoutForms(t *testing.T) {
	b := start(t, nil, nil)
	b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.AskHost})
	t.Cleanup(b.ask.Close)
	b.overHTTP("2026-07-28")
	b.refused("read_text_file", m{"path": t.TempDir() + "/f"}, "nobody approved")
}

// A path below ~ is asked about as the path that it stands for.
func TestAskAboutHome(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			home := t.TempDir()
			testkit.Must(t, os.WriteFile(home+"/x", []byte("of home"), 0o600))
			p := &chooser{allow: home + "/x"}
			b := start(t, func(c *tools.Config) { c.Home, c.Subject = home, guard.Subject("test").InSession(7) }, &mcp.ClientOptions{ElicitationHandler: p.elicit})
			b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.AskHost, AskFor: 30 * time.Second})
			t.Cleanup(b.ask.Close)
			b.letClientAnswer()
			b.overStdio(revision)
			if got := b.ok("read_text_file", m{"path": "~/x"}); got != "of home" || p.asked.Load() != 1 {
				t.Errorf("%q, asked %d times", got, p.asked.Load())
			}
			b.refused("read_text_file", m{"path": "~/none"}, "nobody approved")
			if n := p.asked.Load(); n != 2 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// slowGrants is an auditor that holds up the record of each grant, and so the grant.
type slowGrants struct {
	begun, end chan struct{}
	once       sync.Once
}

// Record implements guard.Auditor.
func (g *slowGrants) Record(r guard.Record) error {
	if r.Op == names.OpGrant && r.Verdict == guard.Allowed {
		g.once.Do(func() { close(g.begun) })
		<-g.end
	}
	return nil
}

// If the session ends while a consent is being granted, the grant is revoked with the session's
// other grants.
func TestEndWhileGranting(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			slow := &slowGrants{begun: make(chan struct{}), end: make(chan struct{})}
			reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: slow})
			who := guard.Subject("test").InSession(7)
			p := &chooser{allow: "yes"}
			b := start(t, func(c *tools.Config) { c.Registry, c.Tree, c.Subject = reg, vfs.New(reg), who }, &mcp.ClientOptions{ElicitationHandler: p.elicit})
			b.reg = reg
			b.ask = broker.New(broker.Config{Registry: reg, Tree: b.cfg.Tree, Asker: broker.AskHost, AskFor: time.Minute})
			t.Cleanup(b.ask.Close)
			b.letClientAnswer()
			b.overStdio(revision)
			path := filepath.Join(t.TempDir(), "yes")
			testkit.Must(t, os.WriteFile(path, []byte("text"), 0o600))
			answered := make(chan string, 1)
			go func() {
				text, _, _ := b.call("read_text_file", m{"path": path})
				answered <- text
			}()
			select {
			case <-slow.begun:
			case text := <-answered:
				t.Fatalf("nothing is being granted; the call was answered with %q", text)
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				b.srv.Close()
			}()
			testkit.Until(t, "the end of the sessions", func() bool { return len(b.ask.Sessions()) == 0 })
			select {
			case <-closed:
				t.Error("the session has ended, and something is being granted to it")
			case <-time.After(50 * time.Millisecond): // the end of the session waits for the grant
			}
			close(slow.end)
			<-closed
			if left := b.rootsOf(who); len(left) != 0 {
				t.Errorf("%q outlives its session", left)
			}
		})
	}
}
