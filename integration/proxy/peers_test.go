package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// program is a server, as a host on the Go SDK sees it.
type program struct {
	t    testing.TB
	host *mcp.ClientSession
	log  *bytes.Buffer
}

// host starts a command line as a host does and shakes hands.
func host(t testing.TB, argv []string, opt *mcp.ClientOptions, revision string) *program {
	t.Helper()
	cmd := commandOf(argv)
	var log bytes.Buffer
	cmd.Stderr = &log
	c := mcp.NewClient(&mcp.Implementation{Name: "test-host", Version: "1"}, opt)
	cs, err := c.Connect(context.Background(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	p := &program{t, cs, &log}
	t.Cleanup(func() {
		if err := cs.Close(); err != nil {
			t.Errorf("closing the session: %v\n%s", err, &log)
		}
	})
	return p
}

const (
	handshake = "2025-11-25" // the last revision with a handshake
	modern    = "2026-07-28" // a revision without a handshake
)

// tool calls a tool and returns its text.
func (p *program) tool(name string, args any) string {
	p.t.Helper()
	res, err := p.host.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", name, err, p.log)
	}
	var all strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			all.WriteString(text.Text)
		}
	}
	return all.String()
}

// until calls a tool until its text is right.
func (p *program) until(name string, right func(text string) bool) {
	p.t.Helper()
	text := ""
	if !testkit.Eventually(func() bool { text = p.tool(name, struct{}{}); return right(text) }) {
		p.t.Fatalf("%s still says %s\n%s", name, text, p.log)
	}
}

// tree makes a directory with a file a.txt.
func tree(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte(text), 0o644))
	return dir
}

func publishedCommand(t testing.TB, name string, args ...string) []string {
	t.Helper()
	return append([]string{"node", needPeers(t).Module("@modelcontextprotocol", "server-"+name, "dist", "index.js")}, args...)
}

// server-filesystem uses the session's roots as its directories and follows their changes, with a
// host that has no roots (R012, R118). One root stays to the end: without roots the server keeps
// its directories. To the server, roots are only advice, so `rootsfs run` confines the server, too.
func TestServerFilesystem(t *testing.T) { withEachRunner(t, testServerFilesystem) }

func testServerFilesystem(t *testing.T, newRunner newRunnerFunc) {
	first, second := tree(t, "one"), tree(t, "two")
	r := newRunner(t, Root{"one", "ro", first})
	p := host(t, r.command(publishedCommand(t, "filesystem", t.TempDir())...), nil, handshake)
	has := func(yes, no string) func(string) bool {
		return func(s string) bool { return strings.Contains(s, yes) && (no == "" || !strings.Contains(s, no)) }
	}
	p.until("list_allowed_directories", has(first, ""))
	if got := p.tool("read_text_file", map[string]any{"path": first + "/a.txt"}); got != "one" {
		t.Errorf("the server read %q", got)
	}
	r.grant("two", "ro", second)
	p.until("list_allowed_directories", has(second, ""))
	r.revoke("one")
	p.until("list_allowed_directories", has(second, first))
}

// server-everything shows the roots that it got.
func TestServerEverything(t *testing.T) { withEachRunner(t, testServerEverything) }

func testServerEverything(t *testing.T, newRunner newRunnerFunc) {
	dir := tree(t, "one")
	r := newRunner(t, Root{"one", "ro", dir})
	p := host(t, r.command(publishedCommand(t, "everything", "stdio")...), nil, handshake)
	p.until("get-roots-list", func(s string) bool { return strings.Contains(s, dir) && strings.Contains(s, "one") })
	r.revoke("one")
	p.until("get-roots-list", func(s string) bool { return !strings.Contains(s, dir) })
}

// A server on the TypeScript SDK asks for consent. After the host's user has allowed reading, the
// server can read, but not write.
func TestTypeScriptServer(t *testing.T) { withEachRunner(t, testTypeScriptServer) }

func testTypeScriptServer(t *testing.T, newRunner newRunnerFunc) {
	dir := tree(t, "hello")
	text, err := os.ReadFile("../files/testdata/peer.mjs")
	testkit.Must(t, err)
	// The script lies beside the modules that it imports: a link to them would lead out of its root.
	script, err := os.CreateTemp(filepath.Dir(needPeers(t).Module()), "peer-*.mjs")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.Remove(script.Name()) })
	_, err = script.Write(text)
	testkit.Must(t, errors.Join(err, script.Chmod(0o644), script.Close()))
	asked := 0
	p := host(t, newRunner(t).command("node", script.Name()), &mcp.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked++
			if !strings.Contains(req.Params.Message, dir) {
				t.Errorf("the user was asked %q", req.Params.Message)
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"path1": "read only"}}, nil
		},
	}, handshake)
	ask := func(method string, params any) string {
		t.Helper()
		return p.tool("ask", map[string]any{"method": method, "params": params})
	}
	if got := ask(wire.Consent, map[string]any{"message": "to read", "requestedPaths": []string{dir}}); !strings.Contains(got, `"granted":true`) || asked != 1 {
		t.Fatalf("consent: %s, asked %d times", got, asked)
	}
	if got := ask(wire.Read, map[string]any{"path": dir + "/a.txt"}); !strings.Contains(got, `"content":"hello"`) {
		t.Errorf("read: %s", got)
	}
	if got := ask(wire.Write, map[string]any{"path": dir + "/a.txt", "content": "x"}); !strings.Contains(got, "PERMISSION_DENIED") {
		t.Errorf("write: %s", got)
	}
	if got := ask(wire.RootsList, nil); !strings.Contains(got, "file://"+dir) {
		t.Errorf("roots/list: %s", got)
	}
	if got := p.tool("capabilities", struct{}{}); !strings.Contains(got, wire.Extension) {
		t.Errorf("capabilities: %s", got)
	}
}

// A server without an SDK, a Python script, works although it prints text before its first message.
func TestPython(t *testing.T) { withEachRunner(t, testPython) }

func testPython(t *testing.T, newRunner newRunnerFunc) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing")
	}
	dir := tree(t, "hello")
	script, err := filepath.Abs("testdata/server.py")
	testkit.Must(t, err)
	r := newRunner(t, Root{"work", "ro", dir})
	// The script greets on standard output with text that no host reads as a message. Such text
	// passes before the host's first message, and is refused afterwards. The host is the test itself,
	// because the Go SDK drops a server that prints text other than JSON.
	lines := talk(t, r.command("python3", script), []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"roots"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read","arguments":{"path":"work/a.txt"}}}`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"name":"echo","arguments":{"n":1.0}}}`,
	})
	if strings.Contains(lines[0], "a script that greets on standard output") {
		lines = lines[1:]
	}
	for i, want := range []string{
		`"filesystemBrokering\": true`, "file://" + dir, `\"content\": \"hello\"`, `"id": 9007199254740993`,
	} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Errorf("line %d lacks %s: %q", i, want, lines)
		}
	}
}

// A server on the Go SDK gets the roots, and reads a file in one of them. In revision 2025-11-25
// the server sends requests of its own; since 2026-07-28 it asks for the roots inside a result.
func TestGoServer(t *testing.T) { withEachRunner(t, testGoServer) }

func testGoServer(t *testing.T, newRunner newRunnerFunc) {
	dir := tree(t, "hello")
	for _, revision := range []string{handshake, modern} {
		p := host(t, newRunner(t, Root{"work", "ro", dir}).command(goCommand(t)...), nil, revision)
		if got := p.tool("roots", struct{}{}); !strings.Contains(got, "file://"+dir) {
			t.Errorf("%s: roots: %s", revision, got)
		}
		if got := p.tool("read", map[string]any{"Path": "work/a.txt"}); got != "hello" {
			t.Errorf("%s: read: %s", revision, got)
		}
	}
}

// A server on the Go SDK asks for consent while a tool is called. The host's user allows one
// directory and declines another one. In revision 2025-11-25 the host gets the question as a
// request; since 2026-07-28 it gets the question in the place of the tool's answer.
func TestGoServerConsent(t *testing.T) { withEachRunner(t, testGoServerConsent) }

func testGoServerConsent(t *testing.T, newRunner newRunnerFunc) {
	for _, revision := range []string{handshake, modern} {
		dir, other := tree(t, "hello"), tree(t, "other")
		var asked []string
		p := host(t, newRunner(t).command(goCommand(t)...), &mcp.ClientOptions{
			ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked = append(asked, req.Params.Message)
				if strings.Contains(req.Params.Message, other) {
					return &mcp.ElicitResult{Action: "decline"}, nil
				}
				return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"path1": "read only"}}, nil
			},
		}, revision)
		if got := p.tool("consent", map[string]any{"Path": dir}); !strings.Contains(got, dir) || len(asked) != 1 || !strings.Contains(asked[0], dir) {
			t.Errorf("%s: consent: %s; the user was asked %q", revision, got, asked)
		}
		if got := p.tool("read", map[string]any{"Path": dir + "/a.txt"}); got != "hello" {
			t.Errorf("%s: read: %s", revision, got)
		}
		if got := p.tool("consent", map[string]any{"Path": other}); strings.Contains(got, other) || len(asked) != 2 {
			t.Errorf("%s: consent that was declined: %s; the user was asked %q", revision, got, asked)
		}
	}
}

// The MCP Inspector as the host, in its CLI mode, lists and calls the tools of a server.
func TestInspector(t *testing.T) { withEachRunner(t, testInspector) }

func testInspector(t *testing.T, newRunner newRunnerFunc) {
	dir := tree(t, "hello")
	cli := needPeers(t).Module("@modelcontextprotocol", "inspector-cli", "build", "index.js")
	inspect := func(server []string, args ...string) string {
		t.Helper()
		line := newRunner(t, Root{"work", "ro", dir}).command(server...)
		// The Inspector expects the first word of the command before its own options.
		argv := append(append([]string{"node", cli, line[0]}, args...), "--")
		cmd := commandOf(append(argv, line[1:]...))
		cmd.Dir = filepath.Dir(cli) // from there the Inspector finds its package.json
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s%s", args, err, out, &errs)
		}
		return string(out)
	}
	if got := inspect(publishedCommand(t, "filesystem", t.TempDir()), "--method", "tools/list"); !strings.Contains(got, `"list_allowed_directories"`) {
		t.Errorf("tools/list: %s", got)
	}
	got := inspect(goCommand(t), "--method", "tools/call", "--tool-name", "read", "--tool-arg", "Path=work/a.txt")
	var res mcp.CallToolResult
	if err := json.Unmarshal([]byte(got), &res); err != nil || len(res.Content) != 1 || res.Content[0].(*mcp.TextContent).Text != "hello" {
		t.Errorf("tools/call: %s, %v", got, err)
	}
}
