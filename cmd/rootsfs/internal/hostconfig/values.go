package hostconfig

import (
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
)

// value proposes roots for the paths in an argument or a variable: the value itself, or paths
// inside of it, as in sqlite:///PATH, file:///PATH, NAME=PATH or a list. relative reports
// whether the server resolves a relative path in its working directory.
func (p *proposer) value(text, from string, relative bool) {
	if parts := inValue(text); parts != nil && !p.isContainer && !p.exists(text) {
		for _, part := range parts {
			isURI := part.isURI && len(parts) == 1
			if t, ok := p.expand(part.path); ok && (t.path == "" || filepath.IsAbs(t.path)) && (isURI || t.path == "" || p.at.Look(t.path) != Nothing) {
				p.absolute(t, from)
			} else if ok && relative && filepath.IsAbs(p.cwd) && looksRelative(t.path) {
				p.relative(t, from)
			}
		}
		return
	}
	t, ok := p.expand(text)
	switch {
	case !ok:
	case t.path == "" || filepath.IsAbs(t.path):
		p.absolute(t, from)
	case relative && filepath.IsAbs(p.cwd) && looksRelative(t.path):
		p.relative(t, from)
	}
}

// exists reports whether a text as a whole is the absolute path of an existing file or directory.
func (p *proposer) exists(text string) bool {
	return filepath.IsAbs(text) && p.at.Look(text) != Nothing
}

// valuePart is a path inside of a value.
type valuePart struct {
	path  string
	isURI bool
}

// scheme matches the beginning of a URI. jdbc:sqlite:/p has two schemes.
var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+:`)

// beginsPath reports whether a text begins like a path that is not relative.
func beginsPath(s string) bool {
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~/") || s == "~" || strings.HasPrefix(s, "${") || strings.HasPrefix(s, "{env:")
}

// inValue returns the paths inside of a value; nil: the whole value is a path, or the value has no
// path.
func inValue(text string) []valuePart {
	if strings.ContainsAny(text, ",;\n") || strings.HasPrefix(text, "[") || strings.HasPrefix(text, `"`) || strings.HasPrefix(text, `{"`) {
		var parts []valuePart
		for _, part := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",;\n[]\"", r) }) {
			part = strings.TrimSpace(part)
			if in := inValue(part); in != nil {
				parts = append(parts, in...)
			} else if beginsPath(part) {
				parts = append(parts, valuePart{path: part})
			}
		}
		return parts
	}
	if path, ok := inURI(text); ok {
		return []valuePart{{path, true}}
	}
	if name, value, ok := strings.Cut(text, "="); ok && !strings.ContainsAny(name, "/~$") {
		if in := inValue(value); in != nil {
			return in
		}
		if beginsPath(value) {
			return []valuePart{{path: value}}
		}
		return nil
	}
	if rest, ok := strings.CutPrefix(text, "@"); ok && beginsPath(rest) { // a file that holds the value
		return []valuePart{{path: rest}}
	}
	if beginsPath(text) && strings.Contains(text, ":") && !strings.HasPrefix(text, "${") && !strings.HasPrefix(text, "{env:") {
		var parts []valuePart
		for part := range strings.SplitSeq(text, ":") {
			if beginsPath(part) {
				parts = append(parts, valuePart{path: part})
			}
		}
		return parts
	}
	return nil
}

// inURI returns the path in the URI of a file or a database. The URI must have no host
// other than localhost.
func inURI(text string) (path string, ok bool) {
	rest := text
	for {
		head := scheme.FindString(rest)
		if head == "" {
			break
		}
		rest, ok = rest[len(head):], true
	}
	if !ok {
		return "", false
	}
	rest, _, _ = strings.Cut(rest, "?")
	rest, _, _ = strings.Cut(rest, "#")
	if after, found := strings.CutPrefix(rest, "//localhost/"); found {
		rest = "/" + after
	}
	if after, found := strings.CutPrefix(rest, "//"); found {
		rest = after
	}
	if strings.HasPrefix(rest, "/") {
		rest = "/" + strings.TrimLeft(rest, "/") // SQLAlchemy writes one more slash
	}
	if decoded, err := url.PathUnescape(rest); err == nil {
		rest = decoded
	}
	return rest, beginsPath(rest) || strings.HasPrefix(rest, "./") || strings.HasPrefix(rest, "../")
}
