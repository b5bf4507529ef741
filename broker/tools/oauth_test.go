package tools_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/broker/tools/oauth"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/oauthissuer"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

const audience = "rootsfs-test"

// trusting makes a bench over HTTP that accepts an issuer's tokens.
func trusting(t *testing.T) (*bench, *httptest.Server, *oauthissuer.Issuer) {
	t.Helper()
	return trustingWith(t, tools.HTTPOptions{})
}

func trustingWith(t *testing.T, o tools.HTTPOptions) (*bench, *httptest.Server, *oauthissuer.Issuer) {
	t.Helper()
	i := oauthissuer.New(t)
	v, err := oauth.New(t.Context(), oauth.Config{Issuer: i.URL, Audiences: []string{audience}, Resources: []string{"http://localhost/mcp"}, Scopes: []string{"files"}})
	testkit.Must(t, err)
	b := start(t, nil, nil)
	o.OAuth = v
	return b, b.site(o), i
}

// with returns a function that adds a token to a request, and the id of a session unless it is "".
func with(token, session string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
	}
}

// A session belongs to one subject through one OAuth client, whichever of their tokens a
// request has. Nobody else can use the session, not even the holder of the server's bearer token.
func TestOAuthSessions(t *testing.T) {
	b, site, i := trusting(t)
	b.root("code", guard.ReadOnly, "a=1")
	tokenOf := func(sub, client string) string {
		return i.Token(audience, m{"sub": sub, "client_id": client, "scope": "files"})
	}
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"code/a"}}}`
	status, session := post(t, site, hello, with(tokenOf("alice", "one"), ""))
	if status != http.StatusOK || session == "" {
		t.Fatalf("%d", status)
	}
	post(t, site, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, with(tokenOf("alice", "one"), session))
	for name, c := range map[string]struct {
		token, session string
		status         int
	}{
		"another token of hers": {tokenOf("alice", "one"), session, 200},
		"another client":        {tokenOf("alice", "two"), session, 403},
		"another subject":       {tokenOf("bob", "one"), session, 403},
		"a guessed session":     {tokenOf("alice", "one"), "AAAAAAAAAAAAAAAAAAAAAAAAAA", 404},
		"the server's token":    {token, session, 401},
		"no scope":              {i.Token(audience, m{"client_id": "one"}), session, 403},
		"for another audience":  {i.Token("other", m{"client_id": "one", "scope": "files"}), session, 401},
	} {
		if got, _ := post(t, site, call, with(c.token, c.session)); got != c.status {
			t.Errorf("%s: %d, want %d", name, got, c.status)
		}
	}
	post(t, site, hello, with(tokenOf("alice#1", "one"), "")) // another subject, whose name looks like a session of alice
	var whose []string
	for _, r := range b.recs.All() {
		if r.Via == guard.ViaTools && r.Verdict == guard.Allowed {
			whose = append(whose, string(r.Subject))
		}
	}
	if got := strings.Join(whose, " "); !strings.Contains(got, "oauth:alice#1") || strings.Contains(got, "bob") {
		t.Errorf("the subjects of the records are %q", whose)
	}
}

// A grant to one subject of the issuer does not hold for the others.
func TestOAuthSubjects(t *testing.T) {
	b, site, i := trusting(t)
	dir := t.TempDir()
	_, err := b.reg.Grant(context.Background(), guard.Grant{Root: "hers", Dir: names.Foreign(dir), Subject: "oauth:alice", Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}})
	testkit.Must(t, err)
	for sub, want := range map[string]bool{"alice": true, "bob": false, "alice#1": false, "alice%231": false, "alice$(id>x)": false} {
		for _, revision := range []string{"2025-11-25", "2026-07-28"} {
			if got := b.listed(site, i.Token(audience, m{"sub": sub, "scope": "files"}), revision); strings.Contains(got, dir) != want {
				t.Errorf("%s, %s: %s", sub, revision, got)
			}
		}
	}
}

// A user of the issuer may be able to choose the name of a subject. The name is escaped, so that it
// contains nothing that a shell runs, and differs from the escaped names of other subjects.
func TestOAuthSubjectNames(t *testing.T) {
	b, site, i := trusting(t)
	dirs := map[string]string{}
	subjects := map[string]guard.Subject{"al$(id>x)ice": "al%24%28id%3Ex%29ice", "al`id`ice": "al%60id%60ice", "al ice;id": "al%20ice%3Bid", "al%20ice": "al%2520ice", "a@b.c/d:e+f": "a@b.c%2Fd:e+f", "$HOME=~&": "%24HOME%3D%7E%26"}
	for sub, subject := range subjects {
		dirs[sub] = t.TempDir()
		_, err := b.reg.Grant(context.Background(), guard.Grant{Root: guard.RootName(fmt.Sprint("r", len(dirs))), Dir: names.Foreign(dirs[sub]), Subject: "oauth:" + subject, Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}})
		testkit.Must(t, err)
	}
	for sub := range subjects {
		got := b.listed(site, i.Token(audience, m{"sub": sub, "scope": "files"}), "2025-11-25")
		for whose, dir := range dirs {
			if strings.Contains(got, dir) != (whose == sub) {
				t.Errorf("%q is not the subject %q alone: %s", sub, subjects[sub], got)
			}
		}
	}
}

// listed returns the text of list_allowed_directories.
func (b *bench) listed(site *httptest.Server, token, revision string) string {
	b.t.Helper()
	cs := b.connectWith(site, token, revision)
	defer cs.Close()
	b.host = cs
	return b.ok("list_allowed_directories", m{})
}

// A stream of events ends when the token of its request has expired.
func TestOAuthStreamEndsWithItsToken(t *testing.T) {
	_, site, i := trusting(t)
	// The server accepts a token until oauth.Skew after its expiry time. For this token that moment
	// is 3 seconds away, to keep the test short. On a slow machine it is further away.
	var old, session string
	for left := 3 * time.Second; session == ""; left *= 2 {
		old = i.Token(audience, m{"scope": "files", "exp": time.Now().Add(left - oauth.Skew).Unix()})
		var status int
		if status, session = post(t, site, hello, with(old, "")); status != http.StatusOK && left > time.Minute {
			t.Fatalf("%d", status)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.URL, nil)
	testkit.Must(t, err)
	with(old, session)(r)
	r.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(r)
	testkit.Must(t, err)
	defer res.Body.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, res.Body)
		ended <- err
	}()
	select {
	case <-ended:
	case <-time.After(3 * time.Minute):
		t.Error("the stream goes on")
	}
	if got, _ := post(t, site, hello, with(old, session)); got != http.StatusUnauthorized {
		t.Errorf("the expired token is accepted: %d", got)
	}
}

// Everybody may read where to get a token, from any origin, but only under a name of the server.
func TestOAuthMetadata(t *testing.T) {
	i := oauthissuer.New(t)
	v, err := oauth.New(t.Context(), oauth.Config{Issuer: i.URL, Resources: []string{"http://localhost/mcp"}})
	testkit.Must(t, err)
	b := start(t, nil, nil)
	h := tools.NewHTTP(func(guard.Subject) *tools.Server { return tools.New(b.cfg) }, tools.HTTPOptions{Registry: b.reg, OAuth: v})
	defer h.Close()
	for host, status := range map[string]int{"localhost": 200, "evil.example": 403} {
		r := httptest.NewRequest(http.MethodGet, oauth.WellKnown, nil)
		r.Host = host
		r.Header.Set("Origin", "https://app.example")
		w := httptest.NewRecorder()
		h.Metadata().ServeHTTP(w, r)
		if w.Code != status || status == 200 && !strings.Contains(w.Body.String(), i.URL) {
			t.Errorf("%s: %d %s", host, w.Code, w.Body)
		}
	}
}
