package hostconfig

import (
	"path/filepath"

	"github.com/tailscale/hujson"
)

// Format is whose configuration a document is. It decides what a host makes of
// variables and of ~ in a server's arguments, and nothing else.
type Format string

// The formats. Claude Desktop, Cursor and a project's .mcp.json look the same
// inside; the file's name tells them apart, and Generic is what no name tells.
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

// Known are the formats whose default file Default finds.
var Known = []Format{ClaudeDesktop, ClaudeCode, VSCode, Cursor, Windsurf, Gemini, Cline, Zed, Codex, OpenCode}

// formatOf goes by the content, and where that says nothing by the name.
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

// HomeVariable names the environment variable by which a host goes for the directory of
// its own files; "" if there is none.
func HomeVariable(f Format) string {
	switch f {
	case ClaudeCode:
		return "CLAUDE_CONFIG_DIR"
	case Codex:
		return "CODEX_HOME"
	}
	return ""
}

// Default is the user's own file of a host. config is the directory for
// configurations of this platform (os.UserConfigDir), own what the host's
// HomeVariable says. It is "" for Generic.
func Default(f Format, home, config, own string) string {
	switch f {
	case ClaudeDesktop:
		return filepath.Join(config, "Claude", "claude_desktop_config.json")
	case ClaudeCode:
		if own != "" {
			home = own
		}
		return filepath.Join(home, ".claude.json")
	case VSCode:
		return filepath.Join(config, "Code", "User", "mcp.json")
	case Cursor:
		return filepath.Join(home, ".cursor", "mcp.json")
	case Windsurf:
		return filepath.Join(home, ".codeium", "windsurf", "mcp_config.json")
	case Gemini:
		return filepath.Join(home, ".gemini", "settings.json")
	case Cline: // in VS Code
		return filepath.Join(config, "Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json")
	case Zed:
		return filepath.Join(home, ".config", "zed", "settings.json")
	case Codex:
		if own != "" {
			return filepath.Join(own, "config.toml")
		}
		return filepath.Join(home, ".codex", "config.toml")
	case OpenCode: // its directory is ~/.config on every platform
		return filepath.Join(home, ".config", "opencode", "opencode.json")
	}
	return ""
}

// ProjectOf is the directory whose servers the file at path configures: that of
// the project for .mcp.json, .vscode/mcp.json, .cursor/mcp.json, .gemini/settings.json
// and .zed/settings.json, else "". The
// file of that name in the home directory is the user's own.
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
