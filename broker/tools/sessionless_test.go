package tools_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Under 2026-07-28 requests have no session. A consent then holds for one user through one
// OAuth client. If clients show only the server's token, the consent holds for all of them, and
// the question says so.
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
				t.Errorf("%v has it: %q", who, text)
			}
		}
		if text, ok := reads("alice", "one"); !ok {
			t.Errorf("the same again: %q", text)
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
		// The owner's status shows by whom the session is shared, and the root has the
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
