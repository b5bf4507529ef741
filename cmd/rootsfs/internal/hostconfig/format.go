package hostconfig

import (
	"path/filepath"
	"slices"

	"github.com/tailscale/hujson"
)

// Format is the kind of host that a document configures. It decides how the host treats variables
// and ~ in a server's arguments. Codex also stands for a document in TOML.
type Format string

// The formats. The files of Claude Desktop and Cursor and a project's .mcp.json look the same
// inside and differ only in their names. Generic stands for any other name.
const (
	ClaudeDesktop Format = "claude-desktop"
	ClaudeCode    Format = "claude-code"
	VSCode        Format = "vscode"
	Cursor        Format = "cursor"
	Windsurf      Format = "windsurf"
	Gemini        Format = "gemini"
	Cline         Format = "cline"
	Zed           Format = "zed"
	Codex         Format = "codex"
	OpenCode      Format = "opencode"
	Generic       Format = "mcp"
)

// host is an MCP host. Its own file lies below the home directory or, if inConfig is set, below the
// directory for configurations of this platform.
type host struct {
	format   Format
	inConfig bool
	file     string
	variable string // variable of the environment that names another directory for the file; "": none
}

var hosts = []host{
	{ClaudeDesktop, true, "Claude/claude_desktop_config.json", ""},
	{ClaudeCode, false, ".claude.json", "CLAUDE_CONFIG_DIR"},
	{VSCode, true, "Code/User/mcp.json", ""},
	{Cursor, false, ".cursor/mcp.json", ""},
	{Windsurf, false, ".codeium/windsurf/mcp_config.json", ""},
	{Gemini, false, ".gemini/settings.json", ""},
	{Cline, true, "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", ""}, // in VS Code
	{Zed, false, ".config/zed/settings.json", ""},
	{Codex, false, ".codex/config.toml", "CODEX_HOME"},
	{OpenCode, false, ".config/opencode/opencode.json", ""}, // on every platform
}

// Known lists the formats for which Default knows the default file.
func Known() (list []string) {
	for _, h := range hosts {
		list = append(list, string(h.format))
	}
	return list
}

// formatOf determines the format of a JSON document by its top-level keys and the last two elements
// of the file's path.
func formatOf(path string, top *hujson.Value) Format {
	obj, _ := top.Value.(*hujson.Object)
	has := func(key string) bool { _, i := member(obj, key); return i >= 0 }
	base := filepath.Base(path)
	switch {
	case has("servers"):
		return VSCode
	case has("context_servers"):
		return Zed
	case base == "cline_mcp_settings.json":
		return Cline
	case base == "mcp_config.json":
		return Windsurf
	case base == "settings.json" && filepath.Base(filepath.Dir(path)) == ".gemini":
		return Gemini
	case has("mcp") && base == "settings.json":
		return VSCode
	case has("mcp"):
		return OpenCode
	case has("projects"), base == ".claude.json", base == ".mcp.json":
		return ClaudeCode
	case base == "claude_desktop_config.json":
		return ClaudeDesktop
	case filepath.Base(filepath.Dir(path)) == ".cursor":
		return Cursor
	}
	return Generic
}

// Default returns the path of the user's own file of a host; "" for a format that Known does not
// list. config is the directory for configurations of this platform (os.UserConfigDir). getenv
// returns a variable of the host's environment.
func Default(f Format, home, config string, getenv func(name string) string) string {
	i := slices.IndexFunc(hosts, func(h host) bool { return h.format == f })
	if i < 0 {
		return ""
	}
	h := hosts[i]
	if h.inConfig {
		home = config
	}
	if h.variable != "" {
		if own := getenv(h.variable); own != "" {
			return filepath.Join(own, filepath.Base(h.file))
		}
	}
	return filepath.Join(home, h.file)
}

// ProjectOf returns the project's directory if the file at path configures the servers of a
// project, and "" otherwise. It knows the files by their names, such as .mcp.json or
// .vscode/mcp.json. A file of such a name in the home directory is the user's own.
func ProjectOf(path, home string) string {
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	switch within := filepath.Base(dir); {
	case base == ".mcp.json":
	case (base == "opencode.json" || base == "opencode.jsonc") && dir != filepath.Join(home, ".config", "opencode"):
		if within == ".opencode" {
			dir = filepath.Dir(dir)
		}
	case base == "config.toml" && within == ".codex":
		dir = filepath.Dir(dir)
	case base == "mcp.json" && (within == ".vscode" || within == ".cursor"),
		base == "settings.json" && (within == ".gemini" || within == ".zed"):
		dir = filepath.Dir(dir)
	default:
		return ""
	}
	if dir == filepath.Clean(home) {
		return ""
	}
	return dir
}
