package tools_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// In revision 2026-07-28 of the protocol, requests have no session. With OAuth, a consent holds
// for one user through one OAuth client. With the server's own token, all clients share the
// consent: the question and the owner's status say so.
func TestSessionlessConsents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	testkit.Must(t, os.WriteFile(path, []byte("outside"), 0o600))
	t.Run("oauth", func(t *testing.T) {
		b, site, i := trustingWith(t, tools.HTTPOptions{})
		o := b.letOwnerAnswer()
		tokenOf := func(sub, client string) bearerToken {
			return bearerToken(i.Token(audience, m{"sub": sub, "client_id": client, "scope": "files"}))
		}
		reads := func(sub, client string) (string, bool) {
			return connect(t, site.URL, tokenOf(sub, client), "2026-07-28").read(t, path)
		}
		o.allow = true
		if text, ok := reads("alice", "one"); !ok || text != "outside" {
			t.Fatalf("%q", text)
		}
		if question := o.asked[0].Message; !strings.Contains(question.Raw(), "this user through this OAuth client") {
			t.Errorf("the question: %s", question)
		}
		o.allow = false
		for _, who := range [][2]string{{"alice", "two"}, {"bob", "one"}} {
			if text, ok := reads(who[0], who[1]); ok {
				t.Errorf("%v can read the file: %q", who, text)
			}
		}
		if text, ok := reads("alice", "one"); !ok {
			t.Errorf("alice through client one, again: %q", text)
		}
	})
	t.Run("token", func(t *testing.T) {
		b := start(t, nil, nil)
		o := b.letOwnerAnswer()
		o.allow = true
		site := b.site(tools.HTTPOptions{})
		if text, ok := connect(t, site.URL, bearerToken(token), "2026-07-28").read(t, path); !ok || text != "outside" {
			t.Fatalf("%q", text)
		}
		if question := o.asked[0].Message; !strings.Contains(question.Raw(), "every such client with the server's bearer token has") {
			t.Errorf("the question: %s", question)
		}
		// The owner's status shows which clients share the session, and the root has the
		// session's subject.
		shared := 0
		for _, s := range b.ask.Sessions() {
			st := s.Stats()
			for _, r := range b.reg.Roots() {
				if st.SharedBy == "every such client with the server's bearer token" && string(r.Grant.Subject) == st.Subject.Raw() {
					shared++
				}
			}
		}
		if shared != 1 {
			t.Errorf("%d roots are known to be shared, want 1: %+v", shared, b.reg.Roots())
		}
	})
}
