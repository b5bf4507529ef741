package cli

import (
	"path"
	"strings"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// printWhy tells why roots are unavailable.
func (a *app) printWhy(roots []control.Root) {
	for _, r := range roots {
		if r.Why != "" {
			a.say("%s: %s", quoteIfNeeded(r.Name), r.Why)
		}
	}
}

// rootPlace is a root's directory, and whom it is for if that is one server alone.
func rootPlace(r *control.Root) string {
	return quoteIfNeeded(r.Resolved) + withPrefix(", for ", r.Subject)
}

// expiryText says when a root ends by itself.
func expiryText(r *control.Root) string {
	if r.Once != "" {
		return "once (" + r.Once + ")"
	}
	return localTime(r.Expires)
}

// repositoryText tells of a repository, which can be the root itself, or of what git has begun in
// one.
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

// netText says which network a command has.
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

// foldQuoted is names.Fold for the foreign texts that stand in quotation marks in a line of
// ours: no row of a terminal begins with a part of one. Our own words, and a command that
// is shown to be copied, stay as they are.
func foldQuoted(line string, columns int) string {
	if names.Columns(line) < columns {
		return line
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	var b strings.Builder
	width := 0
	for line != "" {
		n := quoted(line)
		text := line[:n]
		line = line[n:]
		made := strings.HasPrefix(text, `"$(printf '`) && !strings.Contains(text[len(`"$(printf '`):], " ") // by names.ShellWord
		if text[0] == '"' && !made && width+names.Columns(text) >= columns {
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

// quoted is the length of the text in quotation marks that s begins with, to its end if
// none closes it; otherwise the length of what comes before.
func quoted(s string) int {
	body := strings.TrimPrefix(s, `"`)
	mark := len(s) - len(body) // of the opening quotation mark: 1, or 0 if there is none
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
