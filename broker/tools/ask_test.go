package tools_test

import (
	"context"
	"errors"
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
	"github.com/rootsfs/rootsfs/vfs"
)

// person is who sits at one host: answers its forms, and counts them.
type person struct {
	allow  bool
	asked  atomic.Int64
	client *mcp.ClientSession
}

func (p *person) elicit(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	p.asked.Add(1)
	if !strings.Contains(req.Params.Message, "editor-of-theirs") {
		return nil, errors.New("the form does not say who asks: " + req.Params.Message)
	}
	if !p.allow {
		return &mcp.ElicitResult{Action: "decline"}, nil
	}
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"path1": "allow", "minutes": 0}}, nil
}

// reads calls read_text_file.
func (p *person) reads(t *testing.T, path string) (text string, ok bool) {
	t.Helper()
	res, err := p.client.CallTool(context.Background(), &mcp.CallToolParams{Name: "read_text_file", Arguments: m{"path": path}})
	if err != nil {
		return err.Error(), false
	}
	return res.Content[0].(*mcp.TextContent).Text, !res.IsError
}

// asking makes a bench with hosts over HTTP, each with a person.
func asking(t *testing.T, revision string, people ...*person) *bench {
	t.Helper()
	b := start(t, nil, nil)
	b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.AskHost, AskFor: 20 * time.Second})
	t.Cleanup(b.ask.Close)
	site := b.site(tools.HTTPOptions{})
	for _, p := range people {
		c := mcp.NewClient(&mcp.Implementation{Name: "editor-of-theirs", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: p.elicit})
		var err error
		p.client, err = c.Connect(context.Background(), &mcp.StreamableClientTransport{
			Endpoint: site.URL, HTTPClient: &http.Client{Transport: bearer{}},
		}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		must(t, err)
		t.Cleanup(func() { _ = p.client.Close() })
	}
	return b
}

// won are the roots that consent gave to a session.
func (b *bench) won(who guard.Subject) (list []guard.RootName) {
	for _, st := range b.reg.Roots() {
		if st.Grant.Subject == who {
			list = append(list, st.Grant.Root)
		}
	}
	return list
}

// Each HTTP session asks its own person, has what that person gave, and nobody
// else has it. It is taken back when the session ends.
func TestHTTPSessionsAskTheirOwn(t *testing.T) {
	yes, no := &person{allow: true}, &person{}
	b := asking(t, "2025-11-25", yes, no)
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, []byte("outside"), 0o600))
	if text, ok := yes.reads(t, path); !ok || text != "outside" {
		t.Errorf("allowed: %q", text)
	}
	if text, ok := no.reads(t, path); ok || strings.Contains(text, "outside") {
		t.Errorf("denied: %q", text)
	}
	if text, ok := yes.reads(t, path); !ok || text != "outside" {
		t.Errorf("allowed before: %q", text)
	}
	if y, n := yes.asked.Load(), no.asked.Load(); y != 1 || n != 1 {
		t.Errorf("asked %d and %d times, want once each", y, n)
	}
	if one, two := b.won("test#1"), b.won("test#2"); len(one) != 1 || len(two) != 0 {
		t.Fatalf("the sessions have %q and %q", one, two)
	}
	name := b.won("test#1")[0]
	if text, ok := no.reads(t, string(name)); ok {
		t.Errorf("by the root's name: %q", text)
	}
	must(t, yes.client.Close())
	for end := time.Now().Add(20 * time.Second); len(b.won("test#1")) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the root outlives its session")
		}
	}
	var records []string
	for _, r := range b.recs.All() {
		records = append(records, string(r.Subject))
	}
	if !slices.Contains(records, "test#1") || !slices.Contains(records, "test#2") {
		t.Errorf("the records are of %q", records)
	}
}

// chooser is a person who decides by the path that the form shows.
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

// Under revision 2026-07-28 the question is the result of the call, which comes back
// with the answer: what is allowed is done, what is denied is not asked again in that
// call, and each of several paths is asked about once.
func TestAskInsideACall(t *testing.T) {
	for name, connect := range map[string]func(*bench, string){"stdio": (*bench).overStdio, "http": (*bench).overHTTP} {
		t.Run(name, func(t *testing.T) {
			p := &chooser{allow: "yes"}
			b := start(t, func(c *tools.Config) {
				c.Subject = guard.Subject("test").InSession(7)
			}, &mcp.ClientOptions{ElicitationHandler: p.elicit})
			b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.AskHost, AskFor: 30 * time.Second})
			t.Cleanup(b.ask.Close)
			b.askingItself()
			connect(b, "2026-07-28")
			dir := t.TempDir()
			paths := []string{dir + "/no-1", dir + "/yes-1", dir + "/no-2", dir + "/yes-2"}
			for _, f := range paths {
				must(t, os.WriteFile(f, []byte("of "+filepath.Base(f)), 0o600))
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
		})
	}
}

// A client without forms is not asked, and told so.
func TestAskInsideWithoutForms(t *testing.T) {
	b := start(t, nil, nil)
	b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.AskHost})
	t.Cleanup(b.ask.Close)
	b.overHTTP("2026-07-28")
	b.refused("read_text_file", m{"path": t.TempDir() + "/f"}, "nobody approved")
}

// Issue 17, item 18: a path below ~ is asked about as the path that it stands for.
func TestAskAboutHome(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			home := t.TempDir()
			must(t, os.WriteFile(home+"/x", []byte("of home"), 0o600))
			p := &chooser{allow: home + "/x"}
			b := start(t, func(c *tools.Config) { c.Home, c.Subject = home, guard.Subject("test").InSession(7) }, &mcp.ClientOptions{ElicitationHandler: p.elicit})
			b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.AskHost, AskFor: 30 * time.Second})
			t.Cleanup(b.ask.Close)
			b.askingItself()
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

// What a person allows in the moment in which the session ends is taken back with the rest.
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
			b.askingItself()
			b.overStdio(revision)
			path := filepath.Join(t.TempDir(), "yes")
			must(t, os.WriteFile(path, []byte("text"), 0o600))
			go b.call("read_text_file", m{"path": path})
			<-slow.begun
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				b.srv.Close()
			}()
			for len(b.ask.Sessions()) > 0 {
				time.Sleep(time.Millisecond)
			}
			select {
			case <-closed:
				t.Error("the session has ended, and something is being granted to it")
			case <-time.After(50 * time.Millisecond): // which shows nothing
			}
			close(slow.end)
			<-closed
			if left := b.won(who); len(left) != 0 {
				t.Errorf("%q outlives its session", left)
			}
		})
	}
}
