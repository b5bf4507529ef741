package hostconfig

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/rootsfs/rootsfs/guard/names"
)

// isWorkspace reports whether a text begins with a host's variable for the directory of the project.
// Claude Code sets its variable for servers only, so configurations give it a default:
// ${CLAUDE_PROJECT_DIR:-.}
func isWorkspace(s string) bool {
	for _, name := range []string{"workspaceFolder", "CLAUDE_PROJECT_DIR"} {
		// If the default is not the project's directory, the default itself is the path.
		if rest, ok := strings.CutPrefix(s, "${"+name); ok && (strings.HasPrefix(rest, "}") || strings.HasPrefix(rest, ":")) {
			otherwise, hasDefault := strings.CutPrefix(rest, ":-")
			return !hasDefault || strings.HasPrefix(otherwise, ".}")
		}
	}
	return false
}

// hasSubstitution reports whether a host may replace a part of the text: by a setting of its own,
// which a project may define, by the content of a file, or by a variable.
func hasSubstitution(s string) bool {
	return strings.Contains(s, "$") || strings.Contains(s, "{file:") || strings.Contains(s, "{env:")
}

// variableStart returns how a variable begins in the files of a host, "" if the host replaces none.
func variableStart(format Format) string {
	switch format {
	case ClaudeDesktop, Cline, Zed, Codex:
		return ""
	case OpenCode:
		return "{env:"
	}
	return "${"
}

// isVariable reports whether a text consists of variables that the host replaces. The scheme of an
// Authorization header may precede them. A variable with a default does not count: the default may
// be a secret.
func isVariable(format Format, s string) bool {
	for _, scheme := range []string{"Bearer ", "Basic ", "token "} {
		s = strings.TrimPrefix(s, scheme)
	}
	start := variableStart(format)
	if s == "" || start == "" {
		return false
	}
	for s != "" {
		rest, ok := strings.CutPrefix(s, start)
		name, rest, closed := strings.Cut(rest, "}")
		for _, source := range []string{"env:", "input:", "config:", "command:"} { // Cursor and VS Code
			name = strings.TrimPrefix(name, source)
		}
		if !ok || !closed || name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isVariableRune(r) }) {
			return false
		}
		s = rest
	}
	return true
}

// isVariableRune reports whether r may be in the name of a variable, or of an input or a setting of
// VS Code.
func isVariableRune(r rune) bool {
	return r == '_' || r == '-' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

// expand replaces ~ or a variable at the beginning of a text, as far as the document's host expands
// variables. It reports false if the result is no path.
func (p *proposer) expand(s string) (target, bool) {
	rest, home := strings.CutPrefix(s, "~")
	first, after := "", s // the variable at the beginning, and the rest
	if strings.HasPrefix(s, "${") || strings.HasPrefix(s, "{env:") {
		first, after, _ = strings.Cut(s, "}")
	}
	switch {
	case strings.HasPrefix(s, "{file:"):
		return target{}, false
	case hasSubstitution(strings.TrimPrefix(strings.TrimPrefix(first, "${"), "{env:")), hasSubstitution(after):
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
	case variableStart(p.format) != "${":
		return target{}, false
	case isWorkspace("${" + name + "}"):
		value = p.at.Base
		known = value != "" && !strings.HasPrefix(name, "workspaceFolder:") // one of several folders
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
		// Only the host knows the value. The variable for the workspace is surely a path.
		return target{text: s}, isWorkspace("${" + name + "}")
	case !known:
		p.notef("%s leads out of the project: name what it needs with --root", names.Quote(s))
		return target{}, false
	case !filepath.IsAbs(value):
		return target{}, false // the value may be a token
	}
	return target{s, value + rest}, true
}

// The host passes a server's "env" to the program that it starts, which is rootsfs for a
// wrapped server. steering has the variables that rootsfs, or a program that it starts, obeys.
// steeringStart has the prefixes of further names. These variables decide where the
// configuration, the sessions and the audit are, and which code runs.
// TestSteeringVariablesAreKnown compares the list with the variables that the code reads.
var (
	steering = []string{"HOME", "PATH", "TMPDIR", "NOTIFY_SOCKET", "JOURNAL_STREAM", "GODEBUG", "MCPGODEBUG", "JSONSCHEMAGODEBUG", "GOTRACEBACK",
		"ENV", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH",
		// These decide where a secret is sent: certificate authorities, and the name look-ups
		// of Go and the C library.
		"SSL_CERT_FILE", "SSL_CERT_DIR", "LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES", "ASR_CONFIG",
		// These decide which directory the program sees (package sandbox).
		"RUSTUP_HOME"}
	steeringStart = []string{"XDG_", "LD_", "ROOTSFS_", "DBUS_", "BASH_", "RESOLV_"}
)

// IsSteering reports whether rootsfs itself, or a program that it starts, obeys a variable.
func IsSteering(name string) bool {
	return slices.Contains(steering, name) || slices.ContainsFunc(steeringStart, func(p string) bool { return strings.HasPrefix(name, p) })
}

// SteeringSettings returns the settings of a server that rootsfs itself would obey when it starts the
// server: the names of variables, and "envFile", since such a file may set any variable. more has the
// names of further variables that rootsfs obeys: the variables of its secrets. If own is set, the
// file is the owner's, and only settings that a project can influence count. A host joins name and
// value by "=", so a name with a "=" sets the variable in front of the "=". Removing a variable counts
// as well.
func (s *Server) SteeringSettings(own bool, more ...string) []string {
	var list []string
	for _, v := range s.set {
		name, _, _ := strings.Cut(v.name, "=")
		steers := IsSteering(name) || slices.Contains(more, name)
		if !own && (steers || hasSubstitution(v.name)) || own && (steers && hasProjectSubstitution(v.value) || hasProjectSubstitution(v.name)) {
			list = append(list, v.name)
		}
	}
	if s.EnvFile != "" && (!own || hasProjectSubstitution(s.EnvFile.Raw()) || !strings.ContainsAny(s.EnvFile[:1].Raw(), "/~$")) {
		list = append(list, "envFile")
	}
	return list
}

// hasProjectSubstitution reports whether a host replaces a part of the text by a value that a project can
// choose: any but the home directory and the variables of the host's own environment.
func hasProjectSubstitution(s string) bool {
	for rest, ok := s, true; ok; {
		var name string
		if _, rest, ok = strings.Cut(rest, "${"); !ok {
			break
		}
		name, rest, _ = strings.Cut(rest, "}")
		variable, otherwise, _ := strings.Cut(name, ":-") // Claude Code's syntax of a default
		variable, env := strings.CutPrefix(variable, "env:")
		word := !strings.ContainsFunc(variable, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		theirs := variable == "CLAUDE_PROJECT_DIR" || !env && variable != "userHome" && strings.ToUpper(variable) != variable
		if !word || theirs || otherwise != "" && !filepath.IsAbs(otherwise) {
			return true
		}
	}
	return strings.Contains(s, "{file:")
}
