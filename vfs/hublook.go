package vfs

import (
	"context"
	"maps"
	"slices"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// place is a name in a watched directory.
type place struct {
	dir  *hubDir
	name string
}

// asked is what is to be looked at: the latest event of a place.
type asked struct {
	last int
	have guard.Identity // of the directory that is watched there already
}

// seen is what was found at a place.
type seen struct {
	exists, hidden, isDir bool

	id    guard.Identity
	kid   *hubDir // a directory that is watched now
	paths []string
	over  bool
}

// look is what one operation found.
type look struct {
	gone  bool // the watched path is not what it was
	at    map[place]*seen
	full  bool
	watch *Watch
}

// drop ends the watching of what was found and not adopted.
func (x *look) drop() {
	for _, s := range x.at {
		s.kid.kill()
		s.kid = nil
	}
}

func (x *look) run(ctx context.Context, l *guard.Lease, base *hubDir, order map[*hubDir][]string, ask map[place]asked) error {
	err := x.stillThere(l, base)
	if err != nil || x.gone {
		return err
	}
	refused := map[guard.Identity]error{}
	// Those above first: what lies below a directory that is watched anew has
	// been looked at with it.
	dirs := slices.SortedFunc(maps.Keys(order), func(a, b *hubDir) int { return a.depth() - b.depth() })
	for _, d := range dirs {
		if x.renewed(d) {
			continue
		}
		sc := &scan{w: x.watch, l: l, refused: refused}
		if err := x.dir(ctx, sc, d, order[d], ask); err != nil && !walk.Passable(err) {
			return err
		}
		x.full = x.full || sc.full != nil
	}
	return nil
}

// renewed reports whether a directory above d, or d itself, has been entered
// anew, so that d is about to be given up.
func (x *look) renewed(d *hubDir) bool {
	for ; d.parent != nil; d = d.parent {
		if s := x.at[place{d.parent, d.name}]; s != nil && s.kid != nil {
			return true
		}
	}
	return false
}

// stillThere checks that the watch's directory is at its place: it may have been
// moved out of the root, and inotify would not stop telling of it.
func (x *look) stillThere(l *guard.Lease, base *hubDir) error {
	d, err := hubBase(l, base)
	if err != nil {
		x.gone = walk.Passable(err)
		if names.Reason(err).Refusal() || !x.gone {
			return err
		}
		return nil
	}
	defer d.Close()
	info, err := beneath.Stat(d.FD)
	x.gone = err == nil && info.ID() != base.id
	return err
}

// hubBase resolves the directory a watch begins at.
func hubBase(l *guard.Lease, base *hubDir) (beneath.Dir, error) {
	if l.File() != "" {
		return beneath.Dir{FD: l.Dir()}, nil
	}
	return beneath.OpenDir(l, base.name)
}

// dir looks at names in one directory.
func (x *look) dir(ctx context.Context, sc *scan, d *hubDir, list []string, ask map[place]asked) error {
	if d.only != "" {
		b, err := hubBase(sc.l, d)
		if err != nil {
			return err
		}
		defer b.Close()
		for _, name := range list {
			x.at[place{d, name}] = sc.see(b.FD, d.name, name)
		}
		return nil
	}
	rel := d.rel()
	wk := sc.walker(ctx)
	defer wk.Close()
	if err := wk.Start(rel); err != nil {
		return err
	}
	info, err := beneath.Stat(wk.FD())
	if err != nil {
		return err
	}
	if info.ID() != d.id {
		return nil // it has moved; its events are on their way
	}
	for _, name := range list {
		at := place{d, name}
		s := sc.see(wk.FD(), rel, name)
		x.at[at] = s
		if !s.isDir || !sc.w.o.Recursive || ask[at].have == s.id {
			continue
		}
		if err := s.enter(sc, wk, d, name); err != nil {
			return err
		}
	}
	return nil
}

// see looks at one name.
func (s *scan) see(fd int, rel, name string) *seen {
	info, err := beneath.StatAt(s.l, fd, name)
	if err != nil {
		return &seen{}
	}
	hidden := walk.Visible(s.l, &info) != nil || s.l.File() == "" && s.l.Judge(rel, name) != nil || s.fenced(fd, name, &info)
	return &seen{exists: true, hidden: hidden, isDir: info.IsDir() && !hidden, id: info.ID()}
}

// fenced reports whether a name is a single-file root that the caller may not
// watch. The name of a nested directory may be seen, what is in it is not.
func (s *scan) fenced(fd int, name string, info *Info) bool {
	if info.IsDir() {
		return false
	}
	_, err := beneath.CrossEntry(s.l, beneath.In(s.l, fd), name, info)
	return err != nil
}

// enter watches a directory that has appeared, and what is in it by now.
func (s *seen) enter(sc *scan, wk *walk.Walker, d *hubDir, name string) error {
	if ok, err := wk.Enter(name); err != nil || !ok {
		return err
	}
	sc.report, sc.paths, sc.over = true, nil, false
	kid, err := sc.tree(wk, d, name)
	if err != nil {
		return err
	}
	s.kid, s.paths, s.over = kid, sc.paths, sc.over
	for wk.Depth() > 1 {
		if _, err := wk.Leave(); err != nil {
			return err
		}
	}
	return nil
}
