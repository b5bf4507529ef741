package guard

import (
	"fmt"
	"path/filepath"
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

// checkPlace is the part of Rules.Check about the owner's plane, by place.
func (g *Registry) checkPlace(r Rules, resolved, place string) error {
	if place == "" {
		return nil
	}
	for _, k := range r.Keep {
		kept := g.cfg.Opener.PlaceOf(k.Path)
		if kept == "" || !inside(place, kept) && !inside(kept, place) {
			continue
		}
		return &Error{Kind: names.Permission, Err: fmt.Errorf(
			"%s shows, through a mount, what holds %s (%s) or lies in it; choose a directory that does not",
			names.Quote(resolved), k.What, names.Quote(k.Path))}
	}
	return nil
}

// around calls f for every root of the snapshot that something lies in, by its
// path or by its place; some twice.
func (s *snapshot) around(dir, place string, f func(*root)) {
	for _, from := range [...]indexKey{{byDir, dir}, {byPlace, place}} {
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

// beside calls f for every root of the snapshot that is the very directory or
// file; some twice.
func (s *snapshot) beside(dir, place string, f func(*root)) {
	for _, at := range [...]indexKey{{byDir, dir}, {byPlace, place}} {
		for _, o := range s.index[at] { // none has the place ""
			f(o)
		}
	}
}

// put and drop change a snapshot that is being made.
func (s *snapshot) put(r *root) {
	s.byName[r.name] = r
	if have := s.index.of(indexKey{byAsked, r.asked}, r.grant.Subject); have != nil {
		s.index.drop(indexKey{byAsked, r.asked}, have) // a link that leads elsewhere by now
	}
	for _, at := range r.keys() {
		s.index.put(at, r)
	}
	s.longest = max(s.longest, len(r.grant.Resolved), len(r.asked))
}

func (s *snapshot) drop(r *root) {
	if s.byName[r.name] == r {
		delete(s.byName, r.name)
	}
	for _, at := range r.keys() {
		s.index.drop(at, r)
	}
}

// lies returns the path from o to something inside it, by path or by place.
func (o *root) lies(dir, place string) (rel string, ok bool) {
	switch {
	case dir != o.grant.Resolved && inside(o.grant.Resolved, dir):
		rel, _ = filepath.Rel(o.grant.Resolved, dir)
	case o.place != "" && place != o.place && inside(o.place, place):
		rel = strings.TrimPrefix(place, o.place+"/")
	default:
		return "", false
	}
	return rel, true
}
