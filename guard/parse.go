package guard

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Spec is a root as a person writes it: [NAME=]PATH[:MODE].
type Spec struct {
	Name   RootName // "" when the path's last element is to be used
	Path   string   // as written, or what a file:// URI names; "auto" asks for the enclosing project
	Rights Rights
	Mode   string // as written; "" when left out, which means ro
}

// ParseSpec reads [NAME=]PATH[:MODE]. PATH may be a file:// URI. What follows
// the last colon is a mode if it looks like one (lower-case letters and commas
// only); a path that really ends that way is written with :ro after it. What
// precedes the first equals sign is a name if it has no slash; a path that
// really begins that way is written with ./ before it.
func ParseSpec(s string) (Spec, error) {
	bad := func(format string, args ...any) (Spec, error) {
		return Spec{}, &Error{Kind: names.Invalid, Err: fmt.Errorf("root %s: %w", names.Quote(s), fmt.Errorf(format, args...))}
	}
	spec := Spec{Path: s, Rights: ReadOnly}
	if name, rest, ok := strings.Cut(s, "="); ok && !strings.Contains(name, "/") {
		n, err := names.ParseRootName(name)
		if err != nil {
			return bad("%w", err)
		}
		spec.Name, spec.Path = n, rest
	}
	if i := strings.LastIndexByte(spec.Path, ':'); i >= 0 && looksLikeMode(spec.Path[i+1:]) {
		rights, err := ParseMode(spec.Path[i+1:])
		if err != nil {
			return bad("%w (a path that ends like this is written with :ro after it)", err)
		}
		spec.Mode, spec.Rights, spec.Path = spec.Path[i+1:], rights, spec.Path[:i]
	}
	switch {
	case spec.Path == "":
		return bad("the path is missing: write [NAME=]PATH[:ro|:rw]")
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

// DefaultName is the name a root gets when its spec gives none: the last
// element of its path, with what a name may not hold replaced by "-".
func DefaultName(path string) (RootName, error) {
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
	base = strings.TrimLeft(base, "-")
	if base == "" {
		base = "root"
	}
	return names.ParseRootName(base)
}

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
