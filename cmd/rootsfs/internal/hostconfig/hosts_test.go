package hostconfig

import (
	"strings"
	"testing"
)

// Issue 17, item 24: the files of Windsurf, Gemini CLI, Cline and Zed are found,
// understood, wrapped and given back byte for byte.
func TestMoreHosts(t *testing.T) {
	for f, c := range map[Format]struct{ path, doc string }{
		Windsurf: {"/home/u/.codeium/windsurf/mcp_config.json", `{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"]}, "r": {"serverUrl": "https://x"}}}`},
		Gemini:   {"/home/u/.gemini/settings.json", `{"theme": "x", "mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "trust": true}, "r": {"httpUrl": "https://x"}}}`},
		Cline:    {"/home/u/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", `{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "disabled": false}, "r": {"type": "sse", "url": "https://x"}}}`},
		Zed:      {"/home/u/.config/zed/settings.json", "{\n  // mine\n  \"context_servers\": {\n    \"a\": {\n      \"source\": \"custom\",\n      \"command\": \"npx\", // here\n      \"args\": [\"-y\", \"x\"],\n    },\n    \"r\": {\"url\": \"https://x\"},\n    \"e\": {\"source\": \"extension\", \"settings\": {}},\n  },\n}\n"},
	} {
		if got := Default(f, "/home/u", "/home/u/.config", ""); got != c.path {
			t.Errorf("%s: %s", f, got)
		}
		conf, err := Parse(c.path, []byte(c.doc))
		if err != nil || conf.Format != f || conf.Servers[0].Kind != Stdio || conf.Servers[0].Err != nil || conf.Servers[1].Kind != Remote {
			t.Fatalf("%s: %+v, %v", f, conf, err)
		}
		if len(conf.Servers) > 2 && (conf.Servers[2].Err != nil || conf.Servers[2].Kind != Extension) {
			t.Errorf("%s: %+v", f, conf.Servers[2])
		}
		doc := conf.Wrap(program, map[*Server]How{conf.Servers[0]: {Roots: []string{"/srv:ro"}}})
		wrapped, err := Parse(c.path, doc, program)
		if err != nil || wrapped.Servers[0].Kind != Wrapped || !strings.Contains(string(doc), "/srv:ro") {
			t.Fatalf("%s: %v\n%s", f, err, doc)
		}
		if back := wrapped.Unwrap(wrapped.Servers); string(back) != c.doc {
			t.Errorf("%s:\n%s\nwant\n%s", f, back, c.doc)
		}
	}
}
