package serve

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/oauthissuer"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// With --oauth-issuer the program accepts that issuer's tokens for its URL, serves each client as
// its token's subject, and tells clients where to get tokens. It makes no token of its own.
func TestOAuth(t *testing.T) {
	i := oauthissuer.New(t)
	h := newHome(t)
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(dir+"/a.txt", []byte("text"), 0o644))
	s := h.http("--root", "r="+dir, "--oauth-issuer", i.URL, "--oauth-scope", "files")
	if s.token != "" {
		t.Error("a bearer token was made")
	}
	status, _ := s.post(strings.NewReader(hello), nil)
	if status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
	res, err := http.Get(strings.TrimSuffix(s.url, "/mcp") + "/.well-known/oauth-protected-resource/mcp")
	testkit.Must(t, err)
	defer res.Body.Close()
	meta, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(meta), `"resource":"`+s.url+`"`) || !strings.Contains(string(meta), i.URL) {
		t.Errorf("%s, %v", meta, err)
	}
	for _, c := range []struct {
		audience string
		status   int
	}{{s.url, 200}, {strings.Replace(s.url, "127.0.0.1", "localhost", 1), 200}, {"http://127.0.0.1:1/mcp", 401}, {i.URL, 401}} {
		s.token = i.Token(c.audience, map[string]any{"scope": "files"})
		if status, _ := s.post(strings.NewReader(hello), nil); status != c.status {
			t.Errorf("a token for %s: %d, want %d", c.audience, status, c.status)
		}
	}
	s.token = i.Token(s.url, map[string]any{"scope": "files"})
	s.checkAlive()
	s.checkLog("another audience")
	got := ""
	if !testkit.Eventually(func() bool { // records of successes are written later
		got = h.mustRun("audit", "show", "--subject", "oauth:alice")
		return strings.Contains(got, "oauth:alice#")
	}) {
		t.Fatalf("the records of alice:\n%s", got)
	}
}
