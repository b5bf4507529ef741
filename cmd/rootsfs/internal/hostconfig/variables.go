package hostconfig

import (
	"path/filepath"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// workspace reports whether a text is the variable for the directory of the
// project, as the hosts call it. Claude Code's is set for servers only, so that its
// configurations give it a default: ${CLAUDE_PROJECT_DIR:-.}
func workspace(s string) bool {
	for _, name := range []string{"workspaceFolder", "CLAUDE_PROJECT_DIR"} {
		// Another default than the project's directory is the path that is meant.
		if rest, ok := strings.CutPrefix(s, "${"+name); ok && (strings.HasPrefix(rest, "}") || strings.HasPrefix(rest, ":")) {
			otherwise, given := strings.CutPrefix(rest, ":-")
			return !given || strings.HasPrefix(otherwise, ".}")
		}
	}
	return false
}

// fillsIn reports whether a host fills in a part of the text: by its own settings, which
// a project may bring, by the content of a file, or by a variable.
func fillsIn(s string) bool {
	return strings.Contains(s, "$") || strings.Contains(s, "{file:") || strings.Contains(s, "{env:")
}

// expand follows ~ and a variable at the beginning of a text, as far as this
// host expands variables; false if the text is no path then.
func (p *proposer) expand(s string) (target, bool) {
	rest, home := strings.CutPrefix(s, "~")
	first, after := "", s // a variable at the beginning, and the rest
	if strings.HasPrefix(s, "${") || strings.HasPrefix(s, "{env:") {
		first, after, _ = strings.Cut(s, "}")
	}
	switch {
	case strings.HasPrefix(s, "{file:"):
		return target{}, false
	case fillsIn(strings.TrimPrefix(strings.TrimPrefix(first, "${"), "{env:")), fillsIn(after):
		if strings.Contains(after, "/") {
			p.notef("%s holds a variable that can lead anywhere: name what it needs with --root", names.Quote(s))
		}
		return target{}, false
	case s == "" || strings.IndexByte(s, 0) >= 0:
		return target{}, false
	case home && (rest == "" || rest[0] == '/'):
		return target{s, p.at.Home + rest}, p.at.Home != ""
	case p.format == OpenCode && strings.HasPrefix(s, "{env:"):
		name, rest, ok := strings.Cut(s[len("{env:"):], "}")
		value := p.at.Getenv(name)
		return target{s, value + rest}, ok && filepath.IsAbs(value) && (rest == "" || rest[0] == '/')
	case !strings.HasPrefix(s, "${"):
		return target{s, s}, true
	}
	name, rest, ok := strings.Cut(s[len("${"):], "}")
	if !ok || rest != "" && rest[0] != '/' {
		return target{}, false
	}
	value, known := "", true
	switch {
	case p.format == ClaudeDesktop || p.format == Cline || p.format == Zed || p.format == Codex || p.format == OpenCode: // they expand nothing
		return target{}, false
	case workspace("${" + name + "}"):
		value = p.at.Base
		known = value != "" && !strings.HasPrefix(name, "workspaceFolder:") // another one of several
	case name == "userHome" && p.format != ClaudeCode:
		value = p.at.Home
	case strings.HasPrefix(name, "env:") && p.format != ClaudeCode:
		value = p.at.Getenv(name[len("env:"):])
	case p.format == ClaudeCode || p.format == Gemini || p.format == Generic:
		variable, otherwise, _ := strings.Cut(name, ":-")
		if value = p.at.Getenv(variable); value == "" {
			value = otherwise
		}
	}
	switch {
	case !known && names.Under(filepath.Join("/x", rest), "/x"):
		// Only the host knows; that it is a path is clear from the workspace.
		return target{text: s}, workspace("${" + name + "}")
	case !known:
		p.notef("%s leads out of the project: name what it needs with --root", names.Quote(s))
		return target{}, false
	case !filepath.IsAbs(value):
		return target{}, false // a token, as likely as not
	}
	return target{s, value + rest}, true
}
