package hostconfig

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/tailscale/hujson"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Unwrap restores the servers' own commands also in a file that people or programs have edited since
// Wrap. The edits stay. A server that is not of the form that Wrap writes is left unchanged.
func TestUnwrapEdited(t *testing.T) {
	for _, tt := range []struct{ doc, want string }{
		// More flags, and another argument.
		{`{"command": "/r/rootsfs", "args": ["run", "--net", "--root", "/a:rw", "--", "npx", "-y", "x", "--new"]}`,
			`{"command": "npx", "args": ["-y", "x", "--new"]}`},
		// If the file was printed anew, an empty list and a missing one mean the same.
		{"{\"command\": \"rootsfs\", \"args\": [\n\"run\",\n\"--\",\n\"x\"\n], \"a\": 1}", `{"command": "x", "a": 1}`},
		{`{"args": [ "run", "--", "x" ], "command": "rootsfs"}`, `{"command": "x"}`},
		{`{"args": [ "run", "--", "x", ], "a": 1, "command": "rootsfs"}`, `{"a": 1, "command": "x"}`},
		{`{"command": "rootsfs", "a": 1, "args": [ "run", "--", "x" ],}`, `{"command": "x", "a": 1,}`},
		{`{"command": "rootsfs" /*c*/, /*d*/ "args": [ "run", "--", "x" ]}`, `{"command": "x" /*c*/, /*d*/ "args": [  ]}`},
		{`{"command": "rootsfs", "args": ["run", "--", "x" /*c*/, /*d*/]}`, `{"command": "x", "args": [ /*c*/ /*d*/]}`},
		{`{"command": "rootsfs", "args": ["run", "--", "x", ]}`, `{"command": "x", "args": [ ]}`},
		// The "--" in the server's own arguments stays, with its spelling.
		{`{"command": "rootsfs", "args": ["run", "--", "\u0078", "--", "\/"]}`, `{"command": "\u0078", "args": ["--", "\/"]}`},
		// These are not of the form that Wrap writes.
		{`{"command": "rootsfs", "args": ["serve", "--", "x"]}`, ``},
		{`{"command": "rootsfs", "args": ["run", "--"]}`, ``},
		{`{"command": "rootsfs", "args": ["run", "x"]}`, ``},
		{`{"command": "rootsfs"}`, ``},
		{`{"command": "npx", "args": ["run", "--", "x"]}`, ``},
	} {
		const head, tail = `{"mcpServers": {"s": `, `}}`
		c, err := Parse("x.json", []byte(head+tt.doc+tail), program)
		if err != nil {
			t.Fatal(err)
		}
		want := tt.want
		if _, ok := c.Servers[0].Inner(); ok != (want != "") {
			t.Errorf("%s: can be unwrapped: %v", tt.doc, ok)
		}
		if want == "" {
			want = tt.doc
		}
		if got := string(c.Unwrap(c.Servers)); got != head+want+tail {
			t.Errorf("%s\n became %s\n wanted %s", tt.doc, got, head+want+tail)
		}
	}
}

// FuzzWrap checks that every document that Parse accepts can be wrapped. Parse accepts the
// result, which differs only in the servers' commands and arguments. Unwrapped, it is the first
// document again, byte for byte. hujson returns each document unchanged.
func FuzzWrap(f *testing.F) {
	err := filepath.WalkDir("testdata", func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".json" {
			var doc []byte
			doc, err = os.ReadFile(path)
			f.Add(doc, "/opt/root fs", "/a:ro", "K", true)
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"servers":{"":{"args":[/**/],"command":"\ud800"},"b":{"command":"y",//`+"\n}}}"), "rootsfs", "--", "--", false)
	f.Fuzz(func(t *testing.T, doc []byte, prog, spec, env string, net bool) {
		if prog == "" {
			prog = program
		}
		c, err := Parse("mcp.json", doc, prog)
		if err != nil {
			return
		}
		if v, err := hujson.Parse(endLastLine(c.body)); err != nil || !bytes.Equal(v.Pack(), endLastLine(c.body)) {
			t.Fatalf("hujson does not keep bytes: %v", err)
		}
		plans := map[*Server]RunFlags{}
		for _, s := range c.Servers {
			c.Propose(s, testMachine("/home/u/code/.mcp.json"))
			plans[s] = RunFlags{Roots: []string{spec}, Env: append([]string{env}, names.List[string](s.Env)...), Home: env, Net: net}
		}
		// hujson replaces bytes that JSON cannot hold.
		prog = hujson.String(prog).String()
		wrapped := c.Wrap(prog, plans)
		w, err := Parse("mcp.json", wrapped, prog)
		if err != nil {
			t.Fatalf("the wrapped document cannot be parsed: %v\n%q", err, wrapped)
		}
		var ours []*Server
		for i, s := range w.Servers {
			if c.Servers[i].Err == nil && c.Servers[i].Kind == Stdio {
				inner, ok := s.Inner()
				if !ok || s.Args[inner] != c.Servers[i].Command || !slices.Equal(s.Args[inner+1:], c.Servers[i].Args) {
					t.Fatalf("%v: %q", s, s.Args)
				}
				ours = append(ours, s)
			}
		}
		if back := w.Unwrap(ours); !bytes.Equal(back, doc) {
			t.Fatalf("unwrapped:\n%q, not\n%q", back, doc)
		}
		if a, b := rest(t, c), rest(t, w); !reflect.DeepEqual(a, b) {
			t.Fatalf("something else differs:\n%v\n%v", a, b)
		}
		if shown, err := Parse("mcp.json", c.WithoutSecrets(), prog); err != nil || len(shown.Servers) != len(c.Servers) {
			t.Fatalf("the document without secrets cannot be parsed: %v", err)
		}
	})
}

// rest returns the comments of the document, and its values without the commands and arguments of
// servers.
func rest(t *testing.T, c *Config) any {
	v, err := hujson.Parse(bytes.Clone(endLastLine(c.body)))
	if err != nil {
		t.Fatal(err)
	}
	var comments []string
	for v := range v.All() {
		for _, extra := range []hujson.Extra{v.BeforeExtra, v.AfterExtra} {
			if !extra.IsStandard() {
				comments = append(comments, string(bytes.TrimSpace(extra)))
			}
		}
	}
	v.Standardize()
	var doc map[string]any
	dec := json.NewDecoder(bytes.NewReader(v.Pack()))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	strip := func(servers any) {
		all, _ := servers.(map[string]any)
		for _, s := range all {
			if s, ok := s.(map[string]any); ok {
				delete(s, "command")
				delete(s, "args")
			}
		}
	}
	strip(doc["mcpServers"])
	strip(doc["servers"])
	projects, _ := doc["projects"].(map[string]any)
	for _, p := range projects {
		if p, ok := p.(map[string]any); ok {
			strip(p["mcpServers"])
		}
	}
	return []any{doc, comments}
}
