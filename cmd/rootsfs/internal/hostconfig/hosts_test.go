package hostconfig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The files of Windsurf, Gemini CLI, Cline, Zed, Codex and opencode, which have no golden files, are
// found, parsed, wrapped, and unwrapped byte for byte.
func TestMoreHosts(t *testing.T) {
	for f, c := range map[Format]struct{ path, doc string }{
		Windsurf: {"/home/u/.codeium/windsurf/mcp_config.json", `{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"]}, "r": {"serverUrl": "https://x"}}}`},
		Gemini:   {"/home/u/.gemini/settings.json", `{"theme": "x", "mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "trust": true}, "r": {"httpUrl": "https://x"}}}`},
		Cline:    {"/home/u/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", `{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "disabled": false}, "r": {"type": "sse", "url": "https://x"}}}`},
		Zed:      {"/home/u/.config/zed/settings.json", "{\n  // mine\n  \"context_servers\": {\n    \"a\": {\n      \"source\": \"custom\",\n      \"command\": \"npx\", // here\n      \"args\": [\"-y\", \"x\"],\n    },\n    \"r\": {\"url\": \"https://x\"},\n    \"e\": {\"source\": \"extension\", \"settings\": {}},\n  },\n}\n"},
		Codex:    {"/home/u/.codex/config.toml", codexDoc},
		OpenCode: {"/home/u/.config/opencode/opencode.json", "{\n  \"mcp\": {\n    // mine\n    \"a\": {\"type\": \"local\", \"command\": [\"npx\", \"-y\", \"x\"], \"environment\": {\"K\": \"s3cret\"}, \"enabled\": true},\n    \"r\": {\"type\": \"remote\", \"url\": \"https://x\"},\n  },\n}\n"},
	} {
		if got := Default(f, "/home/u", "/home/u/.config", func(string) string { return "" }); got != c.path {
			t.Errorf("%s: %s", f, got)
		}
		conf, err := Parse(c.path, []byte(c.doc))
		if err != nil || conf.Format != f || conf.Servers[0].Kind != Stdio || conf.Servers[0].Err != nil || conf.Servers[1].Kind != Remote {
			t.Fatalf("%s: %+v, %v", f, conf, err)
		}
		if len(conf.Servers) > 2 && (conf.Servers[2].Err != nil || conf.Servers[2].Kind != Extension) {
			t.Errorf("%s: %+v", f, conf.Servers[2])
		}
		doc := conf.Wrap(program, map[*Server]RunFlags{conf.Servers[0]: {Roots: []string{"/srv:ro"}}})
		wrapped, err := Parse(c.path, doc, program)
		if err != nil || wrapped.Servers[0].Kind != Wrapped || !strings.Contains(string(doc), "/srv:ro") {
			t.Fatalf("%s: %v\n%s", f, err, doc)
		}
		if back := wrapped.Unwrap(wrapped.Servers); string(back) != c.doc {
			t.Errorf("%s:\n%s\nwant\n%s", f, back, c.doc)
		}
	}
}

const codexDoc = `# mine
model = "x" # kept
[mcp_servers.a]  # a server
command = 'npx' # not "npm"
args = ["-y", "x"]
env_vars = ["TOKEN"]

[mcp_servers.a.env]
K = "s3cret"

[mcp_servers."r"]
url = "https://x"
http_headers = { X = "s3cret" }

[projects."/home/u/code"]
trust_level = "trusted"
`

// Servers that are spelled differently in TOML, in opencode's JSON and in VS Code's settings.json are
// wrapped, and unwrapped byte for byte. The names of their variables become --env flags, and secrets
// are not shown.
func TestSpellings(t *testing.T) {
	const args = `"run", "--root", "/srv:ro", "--env", "K", "--", `
	for _, tt := range []struct{ path, doc, want string }{
		{"config.toml", "[mcp_servers.a]\ncommand = \"x\" # c\nenv = { K = \"s3cret\" }\n", "[mcp_servers.a]\nargs = [ " + args + "\"x\" ]\ncommand = \"/opt/rootsfs\" # c\n"},
		{"config.toml", "[mcp_servers.a]\r\n  command = \"x\"\r\n  env_vars = [\"K\"]\r\n", "\r\n  args = [ " + args + "\"x\" ]\r\n  command"},
		{"config.toml", "[mcp_servers.a]\nargs = [\n  # first\n  \"-y\", # why\n  'z',\n]\ncommand = \"\"\"x\"\"\"\nenv_vars = [\"K\"]", "  # first\n  \"run\",\n  \"--root\","},
		{"config.toml", "mcp_servers.a.command = 'x'\nmcp_servers.a.env.K = 's3cret'\n", "mcp_servers.a.args = [ " + args + "'x' ]\nmcp_servers.a.command = \"/opt/rootsfs\"\n"},
		{"config.toml", "mcp_servers = { a = { command = 'x', env = { K = 's3cret' } } }", "a = { args = [ " + args + "'x' ], command = \"/opt/rootsfs\", env"},
		{"config.toml", "[mcp_servers]\na = { command = 'x', args = [ ], env = { K = 's3cret' } } # c", "args = [" + args + "'x' ], env"},
		{"config.toml", "[mcp_servers]\n\"a\" = { args = [ 'y', ], command = 'x', env = { K = 's3cret' } }", "args = [ " + args + "'x', 'y', ]"},
		{"opencode.json", `{"mcp": {"a": {"type": "local", "command": ["x"], "environment": {"K": "s3cret"}}, "off": {"enabled": false}}}`, `["/opt/rootsfs", ` + args + `"x"]`},
		{"opencode.jsonc", "{\"mcp\": {\"servers\": {\"a\": {\"type\": \"local\", \"command\": [\n\"x\",\n\"y\", // c\n], \"environment\": {\"K\": \"s3cret\"}}}}}", "[\n\"/opt/rootsfs\",\n\"run\",\n"},
		{"opencode.json", `{"mcp": {"servers": {"type": "local", "command": ["x", "--"], "environment": {"K": "s3cret"}}}}`, `"--", "x", "--"]`},
		{"settings.json", `{"mcp": {"servers": {"a": {"command": "x", "env": {"K": "s3cret"}}}}}`, `"args": [ ` + args + `"x" ]`},
	} {
		c, err := Parse(tt.path, []byte(tt.doc), program)
		if err != nil || c.Servers[0].Err != nil || c.Servers[0].Kind != Stdio || len(c.Servers[0].Env) != 1 {
			t.Errorf("%s: %+v, %v", tt.doc, c, err)
			continue
		}
		if strings.Contains(string(c.WithoutSecrets()), "s3cret") {
			t.Errorf("%s: a secret is shown", tt.doc)
		}
		doc := c.Wrap(program, map[*Server]RunFlags{c.Servers[0]: {Roots: []string{"/srv:ro"}, Env: names.List[string](c.Servers[0].Env)}})
		w, err := Parse(tt.path, doc, program)
		if err != nil || w.Servers[0].Kind != Wrapped || !strings.Contains(string(doc), tt.want) {
			t.Errorf("%s: %v\n%s\nshould contain\n%s", tt.doc, err, doc, tt.want)
			continue
		}
		if i, ok := w.Servers[0].Inner(); !ok || w.Servers[0].Args[i] != "x" {
			t.Errorf("%s: %q", tt.doc, w.Servers[0].Args)
		}
		if back := w.Unwrap(w.Servers); string(back) != tt.doc {
			t.Errorf("unwrapped:\n%s\nwant\n%s", back, tt.doc)
		}
	}
}

// An error in a TOML document is reported with its line, if it has one. A server that cannot be
// parsed does not keep the others from being read.
func TestTOMLErrors(t *testing.T) {
	for _, tt := range []struct{ doc, want string }{
		{"a = 1\nb = [", "not TOML: "},
		{"a = 1\nb = ?", "line 2: not TOML: "},
		{"a = 1\n\na = 2", `line 3: the key "a" is given twice, first in line 1`},
		{"[t]\n[t]", `line 2: the key "t" is given twice`},
		{"a = 1", `has no "mcp_servers"`},
		{"mcp_servers = 1", `line 1: "mcp_servers" is a number; it should be an object of servers`},
		{"a = " + strings.Repeat("{a=", maxDepth+1), "not TOML"},
		{"a = " + strings.Repeat("{a=", maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1), "nested deeper than the limit"},
	} {
		if c, err := Parse("config.toml", []byte(tt.doc)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40q: %v, %v", tt.doc, c, err)
		}
	}
	for server, want := range map[string]string{
		"":                            `server "s" has no "command"`,
		"command = 1":                 `line 4: "command" of server "s" is a number; it should be a text`,
		"command = ''":                `the command of server "s" is empty`,
		"command = 'x'\nurl = 'y'":    "has both a command and a URL",
		"command = 'x'\nargs = 'y'":   `"args" of server "s" is a text; it should be a list`,
		"command = 'x'\nargs = [[1]]": `argument 1 of server "s" is a list; it should be a text`,
		"command = 'x'\nenv = 1":      `"env" of server "s" is a number; it should be an object`,
		"command = 'x'\nenv.A = 1":    `line 5: "A" in "env" of server "s" is a number; it should be a text`,
	} {
		c, err := Parse("config.toml", []byte("[mcp_servers.good]\ncommand = 'x'\n[mcp_servers.s]\n"+server))
		if err != nil || len(c.Servers) != 2 || c.Servers[0].Err != nil || c.Servers[1].Err == nil || !strings.Contains(c.Servers[1].Err.Error(), want) {
			t.Errorf("%q: %+v, %v", server, c, err)
		}
	}
}

// The secrets of a server that cannot be parsed are not shown either.
func TestSecretsOfInvalidServers(t *testing.T) {
	for path, doc := range map[string]string{
		"mcp.json":    `{"mcpServers": {"s": {"command": 1, "env": {"K": "s3cret"}, "headers": {"A": "s3cret"}}}}`,
		"config.toml": "[mcp_servers.s]\ncommand = 1\nenv.K = 's3cret ${x}'\n[mcp_servers.s.http_headers]\nA = 's3cret'",
	} {
		c, err := Parse(path, []byte(doc), program)
		if err != nil || c.Servers[0].Err == nil || strings.Contains(string(c.WithoutSecrets()), "s3cret") || strings.Count(string(c.WithoutSecrets()), "…") != 2 {
			t.Errorf("%s: %v\n%s", path, err, c.WithoutSecrets())
		}
	}
	// A document in which mcp_servers is a table and also an array of tables is refused.
	if c, err := Parse("config.toml", []byte("[mcp_servers.b]\ncommand='x'\n[[mcp_servers]]\ncommand='y'"), program); err == nil {
		t.Errorf("%+v", c.Servers)
	}
}

// A value that can be a secret is shown only if it consists of variables that the host replaces. The
// scheme of an Authorization header may precede them.
func TestOnlyVariablesAreShown(t *testing.T) {
	const claude, vscode, desktop, openCode, other = ".mcp.json", ".vscode/mcp.json", "claude_desktop_config.json", "opencode.json", "mcp.json"
	for _, tt := range []struct {
		path, value string
		isShown     bool
	}{
		{claude, "${TOKEN}", true},
		{claude, "Bearer ${TOKEN}", true},
		{claude, "${USER_1}${TOKEN}", true},
		{vscode, "${input:api-key}", true},
		{vscode, "token ${env:TOKEN}", true},
		{other, "${TOKEN}", true},
		{openCode, "{env:TOKEN}", true},
		{openCode, "Bearer {env:TOKEN}", true},
		{claude, "s3cret${TOKEN}", false},
		{claude, "${TOKEN}s3cret", false},
		{claude, "${A}s3cret${B}", false},
		{claude, "Bearer s3cret${TOKEN}", false},
		{claude, "${TOKEN:-s3cret}", false},
		{claude, "${s3cret", false},
		{claude, "${}", false},
		{claude, "Bearer ", false},
		{claude, "{env:TOKEN}", false},
		{openCode, "{env:TOKEN}s3cret", false},
		{openCode, "${TOKEN}", false},
		{desktop, "${TOKEN}", false},
		{"cline_mcp_settings.json", "${TOKEN}", false},
	} {
		doc := fmt.Sprintf(`{"mcpServers": {"s": {"command": "x", "env": {"K": %q}}}}`, tt.value)
		switch tt.path {
		case vscode:
			doc = strings.Replace(doc, "mcpServers", "servers", 1)
		case openCode:
			doc = fmt.Sprintf(`{"mcp": {"s": {"type": "local", "command": ["x"], "environment": {"K": %q}}}}`, tt.value)
		}
		c, err := Parse(tt.path, []byte(doc), program)
		testkit.Must(t, err)
		if got := strings.Contains(string(c.WithoutSecrets()), tt.value); got != tt.isShown {
			t.Errorf("%s: %q is shown: %v", tt.path, tt.value, got)
		}
	}
}

// FuzzWrapTOML checks that a document that can be parsed is wrapped into one that can be
// parsed, and unwrapped into the original, byte for byte.
func FuzzWrapTOML(f *testing.F) {
	f.Add([]byte(codexDoc), "/a:ro", "K")
	f.Add([]byte("mcp_servers={a={command='''x''',args=[#c\n'y',]},b.command=\"z\"}"), "--", "\x7f")
	f.Add([]byte("[[mcp_servers]]\ncommand='x'\n[mcp_servers.b]\r\n command='x'"), "", "")
	f.Fuzz(func(t *testing.T, doc []byte, spec, env string) {
		c, err := Parse("config.toml", doc, program)
		if err != nil {
			return
		}
		plans := map[*Server]RunFlags{}
		for _, s := range c.Servers {
			c.Propose(s, testMachine("/home/u/code/.codex/config.toml"))
			plans[s] = RunFlags{Roots: []string{spec}, Env: append([]string{env}, names.List[string](s.Env)...)}
		}
		wrapped := c.Wrap(program, plans)
		w, err := Parse("config.toml", wrapped, program)
		if err != nil || len(w.Servers) != len(c.Servers) {
			t.Fatalf("the wrapped document cannot be parsed: %v\n%q", err, wrapped)
		}
		var ours []*Server
		for i, s := range w.Servers {
			if c.Servers[i].Err == nil && c.Servers[i].Kind == Stdio {
				if inner, ok := s.Inner(); !ok || s.Args[inner] != c.Servers[i].Command || len(s.Args)-inner-1 != len(c.Servers[i].Args) {
					t.Fatalf("%v: %q", s, s.Args)
				}
				ours = append(ours, s)
			}
		}
		if back := w.Unwrap(ours); string(back) != string(doc) {
			t.Fatalf("unwrapped:\n%q, not\n%q", back, doc)
		}
		if _, err := Parse("config.toml", c.WithoutSecrets(), program); err != nil {
			t.Fatalf("the document without secrets cannot be parsed: %v", err)
		}
	})
}

// The working directory of the server stays the first root, also if an earlier argument is another
// root: the confined server starts in its first root, and its relative paths begin there.
func TestRelativePathsKeepTheFirstRoot(t *testing.T) {
	for _, tt := range []struct{ server, want string }{
		{`"command": "x", "args": ["/home/u/srv", "./docs"]`, "[.:ro /home/u/srv:ro]"},
		{`"command": "x", "args": ["/home/u/code", "./docs"]`, "[/home/u/code:ro]"},
		{`"command": "x", "args": ["/home/u/srv", "/home/u/code", "./docs"]`, "[/home/u/code:ro /home/u/srv:ro]"},
		{`"command": "x", "args": ["./docs", "/home/u/srv"]`, "[.:ro /home/u/srv:ro]"},
		{`"command": "x", "args": ["/home/u/srv", "./nothing"]`, "[/home/u/srv:ro]"},
	} {
		c, err := Parse("/home/u/code/.mcp.json", []byte(`{"mcpServers": {"s": {`+tt.server+`}}}`), program)
		if err != nil {
			t.Fatal(err)
		}
		var specs []string
		for _, r := range c.Propose(c.Servers[0], testMachine("/home/u/code/.mcp.json")).Roots {
			specs = append(specs, r.Spec)
		}
		if got := fmt.Sprint(specs); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.server, got, tt.want)
		}
	}
}
