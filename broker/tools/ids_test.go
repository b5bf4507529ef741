package tools_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// oddIDs are request ids as JSON. Most of them change when they are decoded into a float64 or an
// int64 and encoded again.
var oddIDs = []string{"9007199254740993", "-9007199254740993", "1795854427892123457", "9223372036854775807", "18446744073709551617", "7.9", "1e2", "-0", "7", `"7"`}

// An answer has the id of its request to the last digit, whether the SDK or this package gives
// the answer, and whether it is a result or an error.
func TestStdioGivesIDsBackAsTheyCame(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("r", guard.ReadWrite, "f=text")
	testkit.Must(t, os.WriteFile(dir+"/big", make([]byte, 32<<20), 0o644))
	fromServer, out := io.Pipe()
	in, toServer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.srv.Run(ctx, in, out) }()
	x := newTalker(t, toServer, fromServer)
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
	_ = toServer.Close()
	_ = fromServer.Close()
	testkit.Must(t, <-ended)
}

// Over HTTP, too, an answer has the id of its request to the last digit, under each revision.
func TestHTTPGivesIDsBackAsTheyCame(t *testing.T) {
	b := start(t, nil, nil)
	b.root("r", guard.ReadWrite, "f=text")
	site := b.site(tools.HTTPOptions{})
	// send posts text with these header fields. It returns the id of the session that the request
	// began, and the answer.
	send := func(text string, header ...string) (session, answer string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.URL, strings.NewReader(text))
		testkit.Must(t, err)
		for _, field := range append(header, "Content-Type: application/json", "Accept: application/json, text/event-stream", "Authorization: Bearer "+token) {
			name, value, _ := strings.Cut(field, ": ")
			req.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(req)
		testkit.Must(t, err)
		defer res.Body.Close()
		got, err := io.ReadAll(res.Body)
		testkit.Must(t, err)
		return res.Header.Get("Mcp-Session-Id"), string(got)
	}
	call := `"method":"tools/call","params":{"name":"list_directory","arguments":{"path":"r"}%s}`
	for _, revision := range mcp.SupportedProtocolVersions() {
		version := "Mcp-Protocol-Version: " + revision
		for _, id := range oddIDs {
			var answers []string
			if revision == "2026-07-28" {
				for _, method := range []string{"tools/list", "none"} {
					_, got := send(`{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":{`+noHandshakeMeta[1:]+`}}`, version, "Mcp-Method: "+method)
					answers = append(answers, got)
				}
				_, got := send(`{"jsonrpc":"2.0","id":`+id+`,`+fmt.Sprintf(call, noHandshakeMeta)+`}`, version, "Mcp-Method: tools/call", "Mcp-Name: list_directory")
				answers = append(answers, got)
			} else {
				session, got := send(strings.NewReplacer(`"id":1`, `"id":`+id, "2025-11-25", revision).Replace(hello))
				answers = append(answers, got)
				inSession := "Mcp-Session-Id: " + session
				send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, version, inSession)
				for _, rest := range []string{`"method":"ping"`, fmt.Sprintf(call, "")} {
					_, got := send(`{"jsonrpc":"2.0","id":`+id+`,`+rest+`}`, version, inSession)
					answers = append(answers, got)
				}
			}
			for i, got := range answers {
				if !strings.Contains(got, `"id":`+id+`,`) && !strings.Contains(got, `"id":`+id+`}`) {
					t.Errorf("%s: request %d with the id %s: %.300s", revision, i, id, got)
				}
			}
		}
	}
}
