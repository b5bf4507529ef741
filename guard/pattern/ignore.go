package pattern

import "strings"

// ParseIgnore reads the rules of a .gitignore. file is its name for messages,
// base the directory it lies in, below the root. As with git, a pattern that
// means nothing matches nothing.
func ParseIgnore(doc, file, base string) []Rule {
	var out []Rule
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(doc, "\ufeff")) {
		n++
		text := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		text = trimSpaces(text)
		if text == "" || text[0] == '#' {
			continue
		}
		r := Rule{List: Ignore, Text: text, File: file, Line: n, Base: base}
		if _, err := compile(&r, false); err == nil {
			out = append(out, r)
		}
	}
	return out
}

// trimSpaces drops the spaces at the end of a line, except after a backslash.
func trimSpaces(s string) string {
	t := strings.TrimRight(s, " ")
	if n := len(t); n < len(s) && strings.HasSuffix(t, `\`) && (n-len(strings.TrimRight(t, `\`)))%2 == 1 {
		return t + " "
	}
	return t
}
