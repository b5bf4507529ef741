package tools_test

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// postText posts a request of a session, and returns the status and the body of the answer.
func postText(t *testing.T, site *httptest.Server, session, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.URL, strings.NewReader(body))
	testkit.Must(t, err)
	for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + token, "Mcp-Session-Id": session} {
		r.Header.Set(k, v)
	}
	res, err := (&http.Client{Timeout: testTimeout}).Do(r)
	testkit.Must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	testkit.Must(t, err)
	return res.StatusCode, string(text)
}

// A batch is refused as a whole if two of its requests have the same id. JSON that is neither an
// object nor a batch is refused.
func TestHTTPMessages(t *testing.T) {
	b := start(t, nil, nil)
	site := b.site(tools.HTTPOptions{Body: 64 << 10})
	_, session := post(t, site, strings.Replace(hello, "2025-11-25", "2025-03-26", 1), func(*http.Request) {})
	postText(t, site, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	const ping = `{"jsonrpc":"2.0","id":ID,"method":"ping"}`
	batch := func(ids ...string) string {
		var list []string
		for _, id := range ids {
			list = append(list, strings.Replace(ping, "ID", id, 1))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		batch("1", "2"):                             {200, `"id":2`},
		batch("1", `"1"`):                           {200, `"id":"1"`},
		" \r\n" + batch("1"):                        {200, `"id":1`},
		" \n" + strings.Replace(ping, "ID", "7", 1): {200, `"id":7`},
		batch("7", "7"):                             {400, "two requests of the batch have the id \"7\""},
		batch("7", "7.0"):                           {400, "two requests of the batch have the id \"7\""},
		batch(`"a"`, "1", `"a"`):                    {400, `have the id "a"`},
		"[]":                                        {400, "not a JSON-RPC batch"},
		"[null]":                                    {400, "no JSON-RPC message"},
		"[" + strings.Repeat("{},", 1000) + "{}]": {400, "more than 1000"},
		"null": {400, "a message is a JSON object"},
		"7":    {400, "a message is a JSON object"},
		`"x"`:  {400, "a message is a JSON object"},
		"":     {400, "non-empty body"},
		"  ":   {400, "non-empty body"},
		"{":    {400, "malformed"},
		"{}":   {400, "malformed"},
	} {
		if status, text := postText(t, site, session, body); status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%.60s: %d %s; want %d, %s", body, status, text, want.status, want.text)
		}
	}
	r := func(r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", 65<<10) + hello))
		r.ContentLength = -1
	}
	if status, _ := post(t, site, hello, r); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that begins with too much white space: %d", status)
	}
}

// A server at another port of this machine is another site. A request whose Host or Origin is that
// of another server is refused, unless the owner has named that Host or Origin.
func TestHTTPPort(t *testing.T) {
	b := start(t, nil, nil)
	site := b.site(tools.HTTPOptions{Port: "8931", Hosts: []string{"files.example", "front.example:443", "::1"}, Origins: []string{"http://localhost:6274"}})
	for host, want := range map[string]int{
		"localhost:8931": 200, "127.0.0.1:8931": 200, "[::1]:8931": 200, "LOCALHOST:8931": 200, "files.example:8931": 200,
		"front.example": 200, "front.example:443": 200,
		"localhost": 403, "localhost:80": 403, "localhost:8932": 403, "127.0.0.1": 403, "[::1]:1": 403, "files.example": 403,
		"front.example:8931": 403, "other.example:8931": 403, "localhost:08931": 403,
	} {
		if got, _ := post(t, site, hello, func(r *http.Request) { r.Host = host }); got != want {
			t.Errorf("Host %s: %d, want %d", host, got, want)
		}
	}
	for origin, want := range map[string]int{
		"http://localhost:8931": 200, "https://127.0.0.1:8931": 200, "http://localhost:6274": 200, "https://front.example": 200, "http://files.example:8931": 200,
		"http://localhost": 403, "http://localhost:3000": 403, "http://127.0.0.1:6274": 403, "http://front.example": 403, "ftp://localhost:8931": 403, "https://files.example": 403,
	} {
		if got, _ := post(t, site, hello, func(r *http.Request) { r.Host = "localhost:8931"; r.Header.Set("Origin", origin) }); got != want {
			t.Errorf("Origin %s: %d, want %d", origin, got, want)
		}
	}
}

// A line that is not JSON, and JSON that is not a message, get the two error codes of JSON-RPC
// for these cases (section 5.1).
func TestStdioErrorCodes(t *testing.T) {
	b := start(t, nil, nil)
	ours, w := io.Pipe()
	r, theirs := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- b.srv.Run(t.Context(), ours, theirs) }()
	in := bufio.NewReader(r)
	for _, c := range []struct{ line, code string }{
		{"{broken", "-32700"}, {`{"jsonrpc":"2.0","id":1,}`, "-32700"}, {"[{]", "-32700"},
		{"[]", "-32600"}, {`{"jsonrpc":"2.0"}`, "-32600"}, {"7", "-32600"},
	} {
		_, err := io.WriteString(w, c.line+"\n")
		testkit.Must(t, err)
		if got, err := in.ReadString('\n'); err != nil || !strings.Contains(got, `"code":`+c.code) {
			t.Errorf("%s: %s, %v; want %s", c.line, got, err, c.code)
		}
	}
	testkit.Must(t, w.Close())
	testkit.Must(t, <-ended)
	_ = r.Close()
}
