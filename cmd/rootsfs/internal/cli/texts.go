package cli

import (
	"path"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// printUnavailable prints, for each root that is unavailable, the reason.
func (a *app) printUnavailable(roots []control.Root) {
	for _, r := range roots {
		if r.Why != "" {
			a.say("%s: %s", quoteIfNeeded(r.Name), r.Why)
		}
	}
}

// rootLocation returns a root's directory, with the server if the root is for one server only.
func rootLocation(r *control.Root) string {
	return quoteIfNeeded(r.Resolved) + withPrefix(", for ", r.Subject)
}

// expiryText describes when a root ends by itself: after one use, or at a time.
func expiryText(r *control.Root) string {
	if r.Once != "" {
		return "once (" + r.Once + ")"
	}
	return localTime(r.Expires)
}

// repositoryText says what is untrusted in a repository, or in an unfinished operation of git. dir
// is the path of the repository or of the operation's directory, below the root; "": the root
// itself is the repository.
func repositoryText(root, dir names.Foreign) string {
	at := quoteIfNeeded(root)
	if dir != "" {
		at = quoteIfNeeded(root + "/" + dir)
	}
	switch path.Base(dir.Raw()) {
	case "rebase-merge", "rebase-apply", "sequencer":
		return at + ": git rebase --continue runs what it lists, which is untrusted"
	}
	return at + ": its hooks are untrusted"
}

// netText describes the network that a command has, and the secrets that it can use there.
func netText(c *control.Confined) string {
	var parts []string
	switch hosts := plural(len(c.Hosts), "approved host") + " (" + strings.Join(c.Hosts, ", ") + ")"; {
	case len(c.Hosts) > 0 && c.Asks:
		parts = append(parts, "a network of "+hosts+"; others are asked about")
	case len(c.Hosts) > 0:
		parts = append(parts, "a network of "+hosts)
	case c.Asks:
		parts = append(parts, "a network whose hosts are asked about")
	}
	if len(c.Secrets) > 0 {
		parts = append(parts, plural(len(c.Secrets), "secret")+" ("+strings.Join(c.Secrets, ", ")+")")
	}
	switch {
	case c.Net:
		return "the host's network"
	case len(parts) > 0:
		return strings.Join(parts, ", ")
	}
	return "no network"
}

// foldQuoted breaks a line of rootsfs so that no row of the terminal begins with a part of a
// foreign text in quotation marks. A quoted text that does not fit in its row gets rows of its own,
// which names.Fold makes. The words around quoted texts, and commands that are shown for copying,
// stay as they are.
func foldQuoted(line string, columns int) string {
	if names.Columns(line) < columns {
		return line
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	var b strings.Builder
	width := 0
	for line != "" {
		n := quotedLen(line)
		text := line[:n]
		line = line[n:]
		// names.ShellWord writes some texts as a call of printf with one space: after "printf".
		isShellWord := strings.HasPrefix(text, `"$(printf '`) && !strings.Contains(text[len(`"$(printf '`):], " ")
		if text[0] == '"' && !isShellWord && width+names.Columns(text) >= columns {
			if text = names.Fold(text, indent+"  | ", columns); width > 0 {
				text = "\n" + text
			}
			width = 0
		}
		b.WriteString(text)
		width += names.Columns(text[strings.LastIndexByte(text, '\n')+1:])
	}
	return b.String()
}

// quotedLen returns the length of the quoted text at the beginning of s: up to its closing quotation
// mark, or all of s if there is none. If s does not begin with a quotation mark, quotedLen returns
// the length of the text before the first one.
func quotedLen(s string) int {
	body := strings.TrimPrefix(s, `"`)
	mark := len(s) - len(body) // length of the opening quotation mark: 1, or 0 if there is none
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '"':
			return i + 2*mark
		}
	}
	return len(s)
}
