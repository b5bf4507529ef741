package hostconfig

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// The host gives a server's "env" to the program that it starts, which is rootsfs once
// the server is wrapped. steering are the variables that rootsfs itself obeys, or the
// programs that it starts do, and steeringStart the beginnings of others: they say where
// its configuration, its sessions and its audit are, and which code runs.
// TestSteeringVariablesAreKnown compares the list with what is read.
var (
	steering = []string{"HOME", "PATH", "TMPDIR", "NOTIFY_SOCKET", "JOURNAL_STREAM", "GODEBUG", "MCPGODEBUG", "JSONSCHEMAGODEBUG", "GOTRACEBACK",
		"ENV", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH"}
	steeringStart = []string{"XDG_", "LD_", "ROOTSFS_", "DBUS_", "BASH_"}
)

// Steers returns what of a server's configuration rootsfs itself obeys if it starts the
// server: variables, and "envFile" for all that such a file may set. The owner's own file is the owner's word, but for what a host fills
// in there from the project. A host joins name and value by "=", so a name that has one
// sets the variable before it; a variable that is taken away steers, too.
func (s *Server) Steers(own bool) []string {
	var list []string
	for _, v := range s.set {
		name, _, _ := strings.Cut(v.name, "=")
		steers := slices.Contains(steering, name) || slices.ContainsFunc(steeringStart, func(p string) bool { return strings.HasPrefix(name, p) })
		if !own && (steers || fillsIn(v.name)) || own && (steers && projectFills(v.value) || projectFills(v.name)) {
			list = append(list, v.name)
		}
	}
	if s.EnvFile != "" && (!own || projectFills(s.EnvFile) || !strings.ContainsAny(s.EnvFile[:1], "/~$")) {
		list = append(list, "envFile")
	}
	return list
}

// projectFills reports whether a host fills in a part of the text by what a project can
// say: anything but the home directory and the variables of the host's own environment.
func projectFills(s string) bool {
	for rest, ok := s, true; ok; {
		var name string
		if _, rest, ok = strings.Cut(rest, "${"); !ok {
			break
		}
		name, rest, _ = strings.Cut(rest, "}")
		variable, otherwise, _ := strings.Cut(name, ":-") // Claude Code's
		variable, env := strings.CutPrefix(variable, "env:")
		word := !strings.ContainsFunc(variable, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		theirs := variable == "CLAUDE_PROJECT_DIR" || !env && variable != "userHome" && strings.ToUpper(variable) != variable
		if !word || theirs || otherwise != "" && !filepath.IsAbs(otherwise) {
			return true
		}
	}
	return strings.Contains(s, "{file:")
}
