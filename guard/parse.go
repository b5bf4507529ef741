package guard

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Parse turns what a peer sent into a path inside a root: "name/…", an absolute
// path inside a live root, or a file URI. An absolute path chooses the innermost
// root of those that the subject sees, its own before everybody's. Names alone are
// compared: with the path that the root lies at, and with the one it was approved by, if
// that led there through links. So nothing outside the roots is looked at on a peer's
// behalf: no path makes it wait for a file system, or tells it what exists. Links are
// resolved when the path is opened, beneath the root.
func (g *Registry) Parse(who Subject, s string) (Path, error) {
	if strings.HasPrefix(s, "file:") || len(s) > 5 && strings.EqualFold(s[:5], "file:") {
		p, err := names.ParseURI(s)
		if err != nil {
			return Path{}, err
		}
		return g.parseAbs(who, p)
	}
	if strings.HasPrefix(s, "/") {
		if strings.IndexByte(s, 0) >= 0 {
			return Path{}, &Error{Kind: names.Invalid, Err: errors.New("path has a NUL byte")}
		}
		return g.parseAbs(who, s)
	}
	return names.ParsePath(s)
}

func (g *Registry) parseAbs(who Subject, s string) (Path, error) {
	for elem := range strings.SplitSeq(s, "/") {
		if elem == ".." {
			return Path{}, &Error{Kind: names.Invalid, Err: errors.New(`path has the element ".."`)}
		}
	}
	r, rel, ok := g.snap.Load().find(who, filepath.Clean(s))
	if !ok {
		return Path{}, &Error{Kind: names.NoConsent}
	}
	return names.NewPath(r.name, rel)
}

// find returns the innermost live root of a subject that holds the absolute, clean
// path, and the path below it. A root holds what lies below the path it was asked for as
// what lies below the one that led to. Names are compared, nothing is looked up.
func (s *snapshot) find(who Subject, p string) (r *root, rel string, ok bool) {
	_, at := s.innermost(byDir, who, p)
	if r, asked := s.innermost(byRequested, who, p); len(asked) > len(at) {
		p = filepath.Join(r.grant.Resolved, p[len(asked):])
	}
	r, at = s.innermost(byDir, who, p)
	if r == nil || r.src.File() != "" && at != p {
		return nil, "", false
	}
	return r, strings.TrimPrefix(p[len(at):], "/"), true
}

// innermost returns the subject's live root with the longest path that p is or
// lies below, and that path. The cost grows with the depth of the roots, not with their
// number nor with what a peer may make p.
func (s *snapshot) innermost(kind pathKind, who Subject, p string) (r *root, at string) {
	if len(p) > s.longest {
		p = parentDir(p[:s.longest+1])
	}
	for {
		if r := s.index.live(indexKey{kind, p}, who); r != nil {
			return r, p
		}
		if p == "/" {
			return nil, ""
		}
		p = parentDir(p)
	}
}

// parentDir is the directory of an absolute, clean path, for which filepath.Dir
// would read the whole path again.
func parentDir(p string) string { return p[:max(1, strings.LastIndexByte(p, '/'))] }

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
