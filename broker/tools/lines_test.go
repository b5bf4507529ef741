package tools_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
)

// Over lines, what is no message costs its line, ids come back as they were, and
// hanging up ends the session.
func TestLines(t *testing.T) {
	b := start(t, nil, nil)
	b.root("code", guard.ReadOnly, "a=one <&>\u2028 \"two\"")
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ss, err := b.srv.MCP().Connect(context.Background(), tools.Lines(in, out), nil)
	must(t, err)
	answers := bufio.NewReader(fromServer)
	ask := func(line string) string {
		t.Helper()
		_, err := io.WriteString(toServer, line+"\n")
		must(t, err)
		answer, err := answers.ReadString('\n')
		must(t, err)
		return answer
	}
	if got := ask(hello); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"result":{`) {
		t.Errorf("%s", got)
	}
	_, err = io.WriteString(toServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n\n")
	must(t, err)
	for line, want := range map[string]string{
		"nonsense": `"id":null,"error":`,
		"[]":       `"id":null,"error":`,
		"{}":       `"id":null,"error":`,
		`{"jsonrpc":"2.0","id":"x \"y\"","method":"ping"}`:           `{"jsonrpc":"2.0","id":"x \"y\"","result":{}}`,
		`{"jsonrpc":"2.0","id":9007199254740991,"method":"nothing"}`: `"id":9007199254740991`,
		`[{"jsonrpc":"2.0","id":7,"method":"ping"}]`:                 `{"jsonrpc":"2.0","id":7,"result":{}}`,
		strings.Repeat("x", 33<<20):                                  "longer than",
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"code/a"}}}`: `"id":3,"result":{`,
	} {
		if got := ask(line); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%.80s: %s; want %s", line, got, want)
		}
	}
	must(t, toServer.Close())
	if err := ss.Wait(); err != nil {
		t.Errorf("the session ended with %v", err)
	}
}
