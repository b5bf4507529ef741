// Package rootspec reads a root as a person writes it on the command line, in the
// configuration, and in the command that an MCP host starts: [NAME=]PATH[:MODE].
//
// A text is read in the same way in all three places. An error says what is wrong with the
// text, and what to write instead. The package does not look the path up: it may not exist, and
// the gate may refuse it.
package rootspec

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Spec is a root as a person writes it: [NAME=]PATH[:MODE].
type Spec struct {
	Name   guard.RootName // "" if none is given: see DefaultName
	Path   string         // as written, or the path of a file:// URI; "auto" asks for the enclosing project
	Rights guard.Rights
	Mode   string // as written; "" when left out, which means ro
}

// Parse parses [NAME=]PATH[:MODE]. PATH may be a file:// URI. Text after the last colon
// is a mode if it has lower-case letters and commas only; a path that ends like this is
// written with :ro after it. Text before the first equals sign is a name if it has no slash;
// a path that begins like this is written with ./ before it.
func Parse(s string) (Spec, error) {
	bad := func(format string, args ...any) (Spec, error) {
		return Spec{}, &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("root %s: %w", names.Quote(s), fmt.Errorf(format, args...))}
	}
	spec := Spec{Path: s, Rights: guard.ReadOnly}
	if name, rest, ok := strings.Cut(s, "="); ok && !strings.Contains(name, "/") {
		n, err := names.ParseRootName(name)
		if err != nil {
			return bad("%w", err)
		}
		spec.Name, spec.Path = n, rest
	}
	if i := strings.LastIndexByte(spec.Path, ':'); i >= 0 && looksLikeMode(spec.Path[i+1:]) {
		rights, err := rules.ParseMode(spec.Path[i+1:])
		if err != nil {
			return bad("%w (a path that ends like this is written with :ro after it)", err)
		}
		spec.Mode, spec.Rights, spec.Path = spec.Path[i+1:], rights, spec.Path[:i]
	}
	switch {
	case spec.Path == "":
		return bad("the path is missing: write [NAME=]PATH[:ro|:rw|:stage]")
	case strings.IndexByte(spec.Path, 0) >= 0:
		return bad("the path has a NUL byte")
	}
	if len(spec.Path) >= 5 && strings.EqualFold(spec.Path[:5], "file:") {
		p, err := names.ParseURI(spec.Path)
		if err != nil {
			return bad("%w", err)
		}
		spec.Path = p
	}
	return spec, nil
}

// DefaultName returns the name of a root whose spec has none: the last element of its path,
// in which "-" replaces each colon, equals sign and comma, and bytes that are not UTF-8. White space
// at its ends, and hyphens at its beginning with the white space among them, are left out. If nothing
// is left, the name is "root". A name that is still not valid is an error.
func DefaultName(path string) (guard.RootName, error) {
	base := filepath.Base(path)
	if base == "/" || base == "." {
		base = "root"
	}
	base = strings.Map(func(r rune) rune {
		switch r {
		case ':', '=', ',', '\uFFFD':
			return '-'
		}
		return r
	}, strings.TrimSpace(strings.ToValidUTF8(base, "-")))
	base = strings.TrimLeftFunc(base, func(r rune) bool { return r == '-' || unicode.IsSpace(r) })
	if base == "" {
		base = "root"
	}
	return names.ParseRootName(base)
}

// looksLikeMode reports whether s has lower-case letters and commas only.
func looksLikeMode(s string) bool {
	if s == "" {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && c != ',' {
			return false
		}
	}
	return true
}
