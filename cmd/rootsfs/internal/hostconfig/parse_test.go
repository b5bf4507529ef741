package hostconfig

import (
	"errors"
	"strings"
	"testing"
)

// Every error is one short line. The line tells the position of a mistake that has one.
func TestParseErrors(t *testing.T) {
	deep := strings.Repeat(`{"a":`, maxDepth+1)
	for _, tt := range []struct{ doc, want string }{
		{``, "not JSON: line 1, column 1: "},
		{"{\n \"mcpServers\": {,}\n}", "not JSON: line 2, column 17: invalid character ',' "},
		{"{\n", "not JSON: line 2, column 1: "},
		{"{\"a\": \"\x01\x1b[31m\"}", `not JSON: line 1, column 7: invalid literal: "\"\u{1}\u{1b}[31m\""`},
		{"{\"a\": \"" + strings.Repeat("\\q", 500) + "\"}", "…"},
		{"{\"a\": /* x", "not JSON: line 1"},
		{"{\n\n\"a\": \"\xff\"}", "line 3: not UTF-8"},
		{"{\n" + deep, "line 2: nested deeper than the limit of 500"},
		{`[]`, "line 1: a list, not the configuration"},
		{`null`, "line 1: null, not the"},
		{`{"a": 1}`, `has neither "mcpServers" nor "servers"`},
		{`{"projects": {"/p": {"a": 1}, "/q": 3}}`, `has neither`},
		{`{"projects": [{"mcpServers": 1}]}`, `has neither`},
		{"{\"a\": 1,\n \"\\u0061\": 2}", `line 2: the key "a" is given twice, first in line 1; remove one of them`},
		{"{\"mcpServers\": {\"x\": {\n\"command\": \"a\",\n\"args\": [],\n\"command\": \"b\"}}}", `line 4: the key "command" is given twice, first in line 2`},
		{"{\"mcpServers\":\n []}", `line 2: "mcpServers" is a list; it should be an object of servers`},
		{"{\"servers\": 1}", `line 1: "servers" is a number`},
		{"{\"projects\": {\"/p\": {\"mcpServers\": \"x\"}}}", `line 1: "mcpServers" is a text`},
	} {
		c, err := Parse("x.json", []byte(tt.doc), program)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 300 {
			t.Errorf("%.60q: %v, %v", tt.doc, c, err)
		}
	}
	if _, err := Parse("x.json", make([]byte, MaxSize+1), program); err == nil || !strings.Contains(err.Error(), "limit of 33554432 bytes") {
		t.Error(err)
	}
}

// A server that cannot be parsed does not keep the others from being read.
func TestServerErrors(t *testing.T) {
	for _, tt := range []struct{ server, want string }{
		{`1`, `line 3: server "s" is a number; it should be an object`},
		{`{}`, `line 2: server "s" has no "command" and no "url"`},
		{`{"type": "stdio"}`, `has no "command"`},
		{`{"command": ""}`, `the command of server "s" is empty`},
		{`{"command": ["npx"]}`, `line 3: "command" of server "s" is a list; it should be a text`},
		{`{"command": "x", "url": "http://x"}`, `has both a command and a URL`},
		{`{"command": "x", "args": null}`, `"args" of server "s" is null; it should be a list of texts`},
		{`{"command": "x", "args": "-y"}`, `"args" of server "s" is a text`},
		{"{\"command\": \"x\", \"args\": [\"a\",\n 1]}", `line 4: argument 2 of server "s" is a number`},
		{`{"command": "x", "env": []}`, `"env" of server "s" is a list`},
		{`{"command": "x", "env": {"A": {}}}`, `"A" in "env" of server "s" is an object`},
		{`{"command": "x", "type": true}`, `"type" of server "s" is true or false`},
		{`{"command": "x", "cwd": 1}`, `"cwd" of server "s" is a number`},
	} {
		doc := "{\"mcpServers\": {\n\"s\":\n" + tt.server + ",\n\"good\": {\"command\": \"y\"}}}"
		c, err := Parse("x.json", []byte(doc), program)
		if err != nil {
			t.Errorf("%s: %v", tt.server, err)
			continue
		}
		s, good := c.Servers[0], c.Servers[1]
		if s.Err == nil || !strings.Contains(s.Err.Error(), tt.want) || good.Err != nil {
			t.Errorf("%s: %v, %v", tt.server, s.Err, good.Err)
		}
		want := strings.Replace(doc, `{"command": "y"}`, `{"command": "/r", "args": [ "run", "--", "y" ]}`, 1)
		if got := string(c.Wrap("/r", map[*Server]RunFlags{s: {}, good: {}})); got != want {
			t.Errorf("%s: wrapped to\n%s", tt.server, got)
		}
	}
}

// Parse determines the Kind of a server from the server's members.
func TestKinds(t *testing.T) {
	for server, want := range map[string]Kind{
		`{"command": "x"}`: Stdio,
		`{"command": "x", "type": "stdio", "url": "u"}`: Stdio,
		`{"url": "u"}`:       Remote,
		`{"serverUrl": "u"}`: Remote,
		`{"type": "http", "url": "u", "command": "x"}`: Stdio, // as in a host that decides by the command
		`{"type": "sse"}`:                                          Remote,
		`{"command": "rootsfs", "args": ["run"]}`:                  Wrapped,
		`{"command": "/x/rootsfs", "args": ["serve"]}`:             Wrapped,
		`{"command": "/opt/rootsfs"}`:                              Wrapped,
		`{"command": "uv", "args": ["run", "--", "x"]}`:            Stdio,
		`{"command": "npx", "args": ["rootsfs", "run", "--", ""]}`: Stdio,
	} {
		c, err := Parse("x.json", []byte(`{"servers": {"s": `+server+`}}`), program)
		if err != nil || c.Servers[0].Err != nil || c.Servers[0].Kind != want {
			t.Errorf("%s: %+v, %v", server, c.Servers[0], err)
		}
	}
}

// ProjectOf tells by the path of a file whether the file configures a project's servers or the
// user's. Default returns the user's own file of a host.
func TestPlaces(t *testing.T) {
	none := func(string) string { return "" }
	for path, want := range map[string]string{
		"/p/.mcp.json":                  "/p",
		"/p/.vscode/mcp.json":           "/p",
		"/p/.cursor/mcp.json":           "/p",
		"/home/u/.cursor/mcp.json":      "",
		"/home/u/.claude.json":          "",
		"/p/mcp.json":                   "",
		"/p/User/mcp.json":              "",
		"/x/claude_desktop_config.json": "",
	} {
		if got := ProjectOf(path, "/home/u"); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for f, want := range map[Format]string{
		ClaudeDesktop: "/c/Claude/claude_desktop_config.json", ClaudeCode: "/h/.claude.json",
		VSCode: "/c/Code/User/mcp.json", Cursor: "/h/.cursor/mcp.json", Generic: "",
	} {
		if got := Default(f, "/h", "/c", none); got != want {
			t.Errorf("%s: %q, want %q", f, got, want)
		}
	}
	own := func(name string) string { return map[string]string{"CLAUDE_CONFIG_DIR": "/d"}[name] }
	if got := Default(ClaudeCode, "/h", "/c", own); got != "/d/.claude.json" {
		t.Error(got)
	}
}
