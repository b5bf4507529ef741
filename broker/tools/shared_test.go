package tools_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/tools"
)

// Issue 17, item 17: under 2026-07-28 requests have no session. What a person allows is
// then no other user's, nor another OAuth client's; where only the server's token is
// shown, the question says that every client with it has what is allowed.
func TestSessionlessConsents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, []byte("outside"), 0o600))
	connect := func(b *bench, url string, token sends, say *string, allow bool) *person {
		p := &person{}
		c := mcp.NewClient(&mcp.Implementation{Name: "editor", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			*say = req.Params.Message
			if !allow {
				return &mcp.ElicitResult{Action: "decline"}, nil
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"path1": "allow", "minutes": 0}}, nil
		}})
		var err error
		p.client, err = c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: token}},
			&mcp.ClientSessionOptions{ProtocolVersion: "2026-07-28"})
		must(b.t, err)
		t.Cleanup(func() { _ = p.client.Close() })
		return p
	}
	asks := func(b *bench) {
		b.ask = broker.New(broker.Config{Registry: b.reg, Tree: b.cfg.Tree, Asker: broker.AskHost, AskFor: 20 * time.Second})
		t.Cleanup(b.ask.Close)
	}
	t.Run("oauth", func(t *testing.T) {
		b, site, i := trustingWith(t, tools.HTTPOptions{})
		asks(b)
		tokenOf := func(sub, client string) sends {
			return sends(i.Token(audience, m{"sub": sub, "client_id": client, "scope": "files"}))
		}
		var said, others string
		if text, ok := connect(b, site.URL, tokenOf("alice", "one"), &said, true).reads(t, path); !ok || text != "outside" {
			t.Fatalf("%q", text)
		}
		if !strings.Contains(said, "this user through this OAuth client") {
			t.Errorf("the question: %s", said)
		}
		for _, who := range [][2]string{{"alice", "two"}, {"bob", "one"}} {
			if text, ok := connect(b, site.URL, tokenOf(who[0], who[1]), &others, false).reads(t, path); ok {
				t.Errorf("%v has it: %q", who, text)
			}
		}
		if text, ok := connect(b, site.URL, tokenOf("alice", "one"), &others, false).reads(t, path); !ok {
			t.Errorf("the same again: %q", text)
		}
	})
	t.Run("token", func(t *testing.T) {
		b := start(t, nil, nil)
		asks(b)
		site := b.site(tools.HTTPOptions{})
		var said string
		if text, ok := connect(b, site.URL, sends(token), &said, true).reads(t, path); !ok || text != "outside" {
			t.Fatalf("%q", text)
		}
		if !strings.Contains(said, "every such client with the server's bearer token has") {
			t.Errorf("the question: %s", said)
		}
		// The owner's status tells it of the session, by whose subject the root is found.
		shared := 0
		for _, s := range b.ask.Sessions() {
			st := s.Stats()
			for _, r := range b.reg.Roots() {
				if st.SharedBy == "every such client with the server's bearer token" && string(r.Grant.Subject) == st.Subject {
					shared++
				}
			}
		}
		if shared != 1 {
			t.Errorf("%d roots are known to be shared, want 1: %+v", shared, b.reg.Roots())
		}
	})
}
