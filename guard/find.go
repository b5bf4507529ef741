package guard

import (
	"path/filepath"
	"slices"
	"strings"
)

// index finds roots by a path of one of three kinds. Several roots can share one: each is
// then another subject's, or everybody's. The slices do not change; put and drop make
// others.
type index map[indexKey][]*root

type indexKey struct {
	kind pathKind
	path string
}

type pathKind uint8

const (
	byDir   pathKind = iota // the resolved path (of a file root: the file's)
	byPlace                 // the place
	byAsked                 // the path it was asked for, where that is another one
)

// keys are under what a root is found.
func (r *root) keys() [3]indexKey {
	return [...]indexKey{{byDir, r.grant.Resolved}, {byPlace, r.place}, {byAsked, r.asked}}
}

func (m index) put(at indexKey, r *root) {
	if at.path != "" {
		m[at] = append(slices.Clone(m[at]), r)
	}
}

func (m index) drop(at indexKey, r *root) {
	left := slices.DeleteFunc(slices.Clone(m[at]), func(have *root) bool { return have == r })
	if len(left) == 0 {
		delete(m, at)
	} else {
		m[at] = left
	}
}

// of returns the root at a path that is granted to exactly this subject.
func (m index) of(at indexKey, who Subject) *root {
	for _, r := range m[at] {
		if r.grant.Subject == who {
			return r
		}
	}
	return nil
}

// live returns the live root at a path that a subject sees: its own before
// everybody's.
func (m index) live(at indexKey, who Subject) *root {
	var found *root
	for _, r := range m[at] {
		if State(r.state.Load()) == Live && who.Of(r.grant.Subject) && (found == nil || r.grant.Subject.below(found.grant.Subject)) {
			found = r
		}
	}
	return found
}

// paths are the sorted paths of one kind.
func (m index) paths(kind pathKind) (out []string) {
	for at := range m {
		if at.kind == kind {
			out = append(out, at.path)
		}
	}
	slices.Sort(out)
	return out
}

// askedPath is the path by which a grant was asked for, as it is opened; "" if
// that is where the root lies.
func askedPath(g *Grant) string {
	if g.Dir == "" {
		return ""
	}
	abs, err := filepath.Abs(g.Dir)
	if err != nil || abs == g.Resolved {
		return ""
	}
	return abs
}

// find returns the innermost live root of a subject that holds the absolute, clean
// path, and the path below it. A root holds what lies below the path it was asked for as
// what lies below the one that led to. Names are compared, nothing is looked up.
func (s *snapshot) find(who Subject, p string) (r *root, rel string, ok bool) {
	_, at := s.innermost(byDir, who, p)
	if r, asked := s.innermost(byAsked, who, p); len(asked) > len(at) {
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
		p = above(p[:s.longest+1])
	}
	for {
		if r := s.index.live(indexKey{kind, p}, who); r != nil {
			return r, p
		}
		if p == "/" {
			return nil, ""
		}
		p = above(p)
	}
}

// above is the directory of an absolute, clean path, for which filepath.Dir
// would read the whole path again.
func above(p string) string { return p[:max(1, strings.LastIndexByte(p, '/'))] }
