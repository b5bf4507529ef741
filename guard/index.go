package guard

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rootsfs/rootsfs/guard/names"
)

// A directory can have several paths: a bind mount shows it, or one above it, a
// second time. What lies in what is therefore judged by paths and also by
// places: a place is the file system and the path in it, written as a path
// ("/8:1/home/u"), and is the same by whatever mount one gets there.
//
// What this does not notice: a system directory (Rules) under another path; a
// root on a network or FUSE file system (their
// places are not reliable; paths alone are judged); one file system that the
// kernel knows as two, such as the layers of an overlay and the overlay; and a
// bind mount that is made after the grant, which only shows what was granted
// already under another path, or lies on another mount and is not entered.

// checkLocation is the part of Rules.Check about the owner's plane, by place.
func (g *Registry) checkLocation(r Rules, resolved, place string) error {
	if place == "" {
		return nil
	}
	for _, k := range r.Keep {
		kept := g.cfg.Opener.LocationOf(k.Path)
		if kept == "" || !inside(place, kept) && !inside(kept, place) {
			continue
		}
		return &Error{Kind: names.Permission, Err: fmt.Errorf(
			"%s shows, through a mount, what holds %s (%s) or lies in it; choose a directory that does not",
			names.Quote(resolved), k.What, names.Quote(k.Path))}
	}
	return nil
}

// eachOuter calls f for every root of the snapshot that something lies in, by its
// path or by its place; some twice.
func (s *snapshot) eachOuter(dir, place string, f func(*root)) {
	for _, from := range [...]indexKey{{byDir, dir}, {byLocation, place}} {
		for at := from; at.path != ""; {
			at.path = filepath.Dir(at.path)
			for _, o := range s.index[at] {
				f(o)
			}
			if at.path == "/" || at.path == "." {
				break
			}
		}
	}
}

// eachAt calls f for every root of the snapshot that is the very directory or
// file; some twice.
func (s *snapshot) eachAt(dir, place string, f func(*root)) {
	for _, at := range [...]indexKey{{byDir, dir}, {byLocation, place}} {
		for _, o := range s.index[at] { // none has the place ""
			f(o)
		}
	}
}

// put and drop change a snapshot that is being made.
func (s *snapshot) put(r *root) {
	s.byName[r.name] = r
	if have := s.index.of(indexKey{byRequested, r.requestedDir}, r.grant.Subject); have != nil {
		s.index.drop(indexKey{byRequested, r.requestedDir}, have) // a link that leads elsewhere by now
	}
	for _, at := range r.keys() {
		s.index.put(at, r)
	}
	s.longest = max(s.longest, len(r.grant.Resolved), len(r.requestedDir))
}

func (s *snapshot) drop(r *root) {
	if s.byName[r.name] == r {
		delete(s.byName, r.name)
	}
	for _, at := range r.keys() {
		s.index.drop(at, r)
	}
}

// relativePath returns the path from o to something inside it, by path or by place.
func (o *root) relativePath(dir, place string) (rel string, ok bool) {
	switch {
	case dir != o.grant.Resolved && inside(o.grant.Resolved, dir):
		rel, _ = filepath.Rel(o.grant.Resolved, dir)
	case o.location != "" && place != o.location && inside(o.location, place):
		rel = strings.TrimPrefix(place, o.location+"/")
	default:
		return "", false
	}
	return rel, true
}

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
	byDir       pathKind = iota // the resolved path (of a file root: the file's)
	byLocation                  // the place
	byRequested                 // the path it was asked for, where that is another one
)

// keys are under what a root is found.
func (r *root) keys() [3]indexKey {
	return [...]indexKey{{byDir, r.grant.Resolved}, {byLocation, r.location}, {byRequested, r.requestedDir}}
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
		if State(r.state.Load()) == Live && r.grant.Subject.Covers(who) && (found == nil || r.grant.Subject.isNarrowerThan(found.grant.Subject)) {
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

// requestedDir is the path by which a grant was asked for, as it is opened; "" if
// that is where the root lies.
func requestedDir(g *Grant) string {
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
