package guard

import (
	"path/filepath"
	"strings"
)

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

// find returns the innermost live root that holds the absolute, clean path, and
// the path below it. A root holds what lies below the path it was asked for as
// what lies below the one that led to. Names are compared, nothing is looked up.
func (s *snapshot) find(p string) (r *root, rel string, ok bool) {
	_, at := s.innermost(s.byDir, p)
	if r, asked := s.innermost(s.byAsked, p); len(asked) > len(at) {
		p = filepath.Join(r.grant.Resolved, p[len(asked):])
	}
	return s.lookUp(p)
}

// lookUp is find for a path without links.
func (s *snapshot) lookUp(p string) (r *root, rel string, ok bool) {
	r, at := s.innermost(s.byDir, p)
	if r == nil || r.src.File() != "" && at != p {
		return nil, "", false
	}
	return r, strings.TrimPrefix(p[len(at):], "/"), true
}

// innermost returns the live root with the longest path that p is or lies below,
// and that path. The cost grows with the depth of the roots, not with their
// number nor with what a peer may make p.
func (s *snapshot) innermost(m map[string]*root, p string) (r *root, at string) {
	if len(p) > s.longest {
		p = above(p[:s.longest+1])
	}
	for {
		if r := m[p]; r != nil && State(r.state.Load()) == Live {
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
