package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// talk starts a command and sends requests to it, one a line. After a request with an id, talk
// waits for the answer. It returns the output: the lines that it read while it waited, and then the
// rest in one string.
func talk(t testing.TB, argv []string, requests []string) []string {
	t.Helper()
	cmd := commandOf(argv)
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	testkit.Must(t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	r := bufio.NewReader(out)
	var got []string
	for _, req := range requests {
		_, err := io.WriteString(in, req+"\n")
		testkit.Must(t, err)
		var m struct{ ID any }
		if json.Unmarshal([]byte(req), &m) != nil || m.ID == nil {
			continue
		}
		for answered := false; !answered; {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("after %s: %v\n%s", req, err, &log)
			}
			got = append(got, line)
			var a struct{ ID any }
			answered = json.Unmarshal([]byte(line), &a) == nil && a.ID == m.ID
		}
	}
	testkit.Must(t, in.Close())
	rest, err := io.ReadAll(r)
	testkit.Must(t, err)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", argv, err, &log)
	}
	if len(rest) > 0 {
		got = append(got, string(rest))
	}
	return got
}

// recorded returns a host's side of a conversation, with JSON that a careless decoder would
// change.
func recorded(dir string) []string {
	path, _ := json.Marshal(dir + "/a.txt")
	return []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1","x":1.50}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"tools","method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":123456789012345,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":` + string(path) + `}}}`,
		`{"jsonrpc":"2.0","id":"\u00e9","method":"tools/call","params":{"name":"list_directory","arguments":{"path":"` + dir + `"}}}`,
		`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"` + dir + `/new","content":"\ud83d\ude00\t\u0000"}}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"/etc/passwd"}}}`,
		`{"jsonrpc":"2.0","id":6,"method":"no/such","params":{"_meta":{"progressToken":7}}}`,
		`{"jsonrpc":"2.0","id":7,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":` + string(path) + `,"head":1}}}`,
	}
}

// echoes is a server that needs no files. It answers each request with the line that it read,
// except for initialize, because the proxy changes that line.
const echoes = `
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" in m:
        said = line if m["method"] != "initialize" else ""
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": {"said": said, "protocolVersion": "2025-11-25",
            "capabilities": {}, "serverInfo": {"name": "echoes", "version": "1"}}}, ensure_ascii=False), flush=True)
`

// The host reads the same bytes in the same conversation with and without the proxy.
func TestRecordedBytes(t *testing.T) {
	dir := tree(t, strings.Repeat("line\r\n", 2000))
	for _, c := range []struct {
		name      string
		newRunner newRunnerFunc
		server    []string
	}{
		{"server-filesystem", newProxyRunner, publishedCommand(t, "filesystem", dir)},
		{"go", newProxyRunner, goCommand(t)},
		// With rootsfs run, a server's own files must be a root, too, which would change the
		// answers. So this server has no files.
		{"run", newConfinedRunner, []string{"python3", "-c", echoes}},
	} {
		t.Run(c.name, func(t *testing.T) {
			newRunner, server := c.newRunner, c.server
			without := talk(t, server, recorded(dir))
			_ = os.Remove(dir + "/new") // if the server has written it
			with := talk(t, newRunner(t, Root{"work", "rw", dir}).command(server...), recorded(dir))
			if len(with) < 9 || strings.Join(with, "") != strings.Join(without, "") {
				t.Errorf("with the proxy\n%.3000q\nwithout\n%.3000q", with, without)
			}
		})
	}
}

// The input and the output of a program that speaks no MCP pass the proxy unchanged.
func TestOrdinaryProgram(t *testing.T) { withEachRunner(t, testOrdinaryProgram) }

func testOrdinaryProgram(t *testing.T, newRunner newRunnerFunc) {
	script := []string{"sh", "-c", `printf 'no end> '; tr a-f A-F; echo "ended" >&2; exit 0`}
	for _, argv := range [][]string{script, newRunner(t).command(script...)} {
		cmd := commandOf(argv)
		cmd.Stdin = strings.NewReader("ls -la\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\nlast")
		out, err := cmd.Output()
		if want := "no end> ls -lA\n{\"jsonrpC\":\"2.0\",\"iD\":1,\"mEthoD\":\"roots/list\"}\nlAst"; string(out) != want || err != nil {
			t.Errorf("%v: %q, %v", argv, out, err)
		}
	}
}
