package tools_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// oddIDs are ids, most of which a float64 or an int64 does not hold.
var oddIDs = []string{"9007199254740993", "-9007199254740993", "1795854427892123457", "9223372036854775807", "18446744073709551617", "7.9", "1e2", "-0", "7", `"7"`}

// An answer has the id of its request to the last digit, whether the SDK or this package gives
// the answer, and whether it is a result or an error.
func TestStdioGivesIDsBackAsTheyCame(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("r", guard.ReadWrite, "f=text")
	testkit.Must(t, os.WriteFile(dir+"/big", make([]byte, 32<<20), 0o644))
	unread, theirs := io.Pipe()
	ours, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.srv.Run(ctx, ours, theirs) }()
	x := newTalker(t, w, unread)
	x.say(hello)
	x.next(`"id":1,`)
	x.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for _, id := range oddIDs {
		for _, rest := range []string{
			`"method":"ping"`, `"method":"none"`,
			`"method":"tools/call","params":{"name":"list_directory","arguments":{"path":"r"}}`,
			`"method":"resources/read","params":{"uri":"file://` + dir + `/f"}`,
		} {
			x.say(`{"jsonrpc":"2.0","id":` + id + `,` + rest + `}`)
			if line := <-x.lines; !strings.Contains(line, `"id":`+id+`,`) {
				t.Errorf("%s with the id %s: %.200s", rest, id, line)
			}
		}
	}
	x.say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"copy_file","arguments":{"source":"r/big","destination":"r/copy"},"_meta":{"progressToken":9007199254740993}}}`)
	for line := ""; !strings.Contains(line, `"id":2,`); {
		if line = <-x.lines; strings.Contains(line, "notifications/progress") && !strings.Contains(line, `"progressToken":9007199254740993`) {
			t.Errorf("progress of another token: %s", line)
		}
	}
	cancel()
	_ = w.Close()
	_ = unread.Close()
	testkit.Must(t, <-ended)
}

// Over HTTP, too, an answer has the id of its request to the last digit.
func TestHTTPGivesIDsBackAsTheyCame(t *testing.T) {
	b := start(t, nil, nil)
	b.root("r", guard.ReadWrite, "f=text")
	site := b.site(tools.HTTPOptions{})
	body := func(session, text string) string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.URL, strings.NewReader(text))
		testkit.Must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Authorization", "Bearer "+token)
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
		}
		res, err := http.DefaultClient.Do(req)
		testkit.Must(t, err)
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		testkit.Must(t, err)
		if session == "" {
			return res.Header.Get("Mcp-Session-Id") + " " + string(got)
		}
		return string(got)
	}
	for _, id := range oddIDs {
		first := body("", strings.Replace(hello, `"id":1`, `"id":`+id, 1))
		session, _, _ := strings.Cut(first, " ")
		answers := []string{first}
		body(session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		for _, rest := range []string{`"method":"ping"`, `"method":"tools/call","params":{"name":"list_directory","arguments":{"path":"r"}}`} {
			answers = append(answers, body(session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, id, rest)))
		}
		for i, got := range answers {
			if !strings.Contains(got, `"id":`+id) {
				t.Errorf("request %d with the id %s: %.300s", i, id, got)
			}
		}
	}
}
