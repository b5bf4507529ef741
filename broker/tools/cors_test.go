package tools_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A browser checks a page of another site twice: by a preflight request, which has no token,
// and by the headers of every answer, also of a refusal. A page of a listed origin passes both
// checks. A page of an origin that is not listed passes neither.
func TestListedOriginPassesTheBrowsersChecks(t *testing.T) {
	b := start(t, nil, nil)
	const page = "http://localhost:6274"
	site := b.site(tools.HTTPOptions{Origins: []string{page}})
	ask := func(method, origin, token string, header ...string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), method, site.URL, strings.NewReader(hello))
		testkit.Must(t, err)
		req.Header.Set("Origin", origin)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(req)
		testkit.Must(t, err)
		_ = res.Body.Close()
		return res
	}
	for _, c := range []struct {
		name, method, origin, token string
		header                      []string
		status                      int
		allowed                     bool // the answer names the origin
	}{
		{"preflight", http.MethodOptions, page, "", []string{"Access-Control-Request-Method", "POST"}, 204, true},
		{"OPTIONS without a preflight's header", http.MethodOptions, page, "", nil, 401, true},
		{"request", http.MethodPost, page, token, nil, 200, true},
		{"request without a token", http.MethodPost, page, "", nil, 401, true},
		{"request of an ended session", http.MethodPost, page, token, []string{"Mcp-Session-Id", "gone"}, 404, true},
		{"preflight of another page", http.MethodOptions, "https://evil.example", "", []string{"Access-Control-Request-Method", "POST"}, 403, false},
		{"request of another page", http.MethodPost, "https://evil.example", token, nil, 403, false},
		{"request of a page of the server's", http.MethodPost, site.URL, token, nil, 200, false},
		{"preflight without an origin", http.MethodOptions, "", "", []string{"Access-Control-Request-Method", "POST"}, 401, false},
	} {
		res := ask(c.method, c.origin, c.token, c.header...)
		want := ""
		if c.allowed {
			want = page
		}
		if got := res.Header.Get("Access-Control-Allow-Origin"); res.StatusCode != c.status || got != want {
			t.Errorf("%s: %d, Access-Control-Allow-Origin %q; want %d, %q", c.name, res.StatusCode, got, c.status, want)
		}
		if res.StatusCode == http.StatusOK && c.allowed && !strings.Contains(res.Header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id") {
			t.Errorf("%s: the page cannot read the session's id", c.name)
		}
		if res.StatusCode == http.StatusNoContent && !strings.Contains(res.Header.Get("Access-Control-Allow-Headers"), "Authorization") {
			t.Errorf("%s: the page cannot send its token", c.name)
		}
	}
}
