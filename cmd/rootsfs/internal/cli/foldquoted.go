package cli

import (
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

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
