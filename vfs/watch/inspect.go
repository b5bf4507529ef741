package watch

import (
	"context"
	"slices"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// inspection is one look at the files that pending names have now. Until the inspecting operation
// has returned, only that operation uses the inspection, apart from drop.
type inspection struct {
	w     *Watch
	base  *watchedDir
	names []pendingName
	found []observation // of each of names

	entered map[place]bool // whether the directory at a place is watched anew
	gone    bool           // the watched path leads to another file, or to none
	full    bool           // there was no room for all directories
}

// observation is the result of inspecting a place. The zero observation means that the name
// does not exist or could not be inspected.
type observation struct {
	watched rules.Identity // of the directory that is watched there already and was not removed

	exists, hidden bool
	id             rules.Identity

	kid        *watchedDir // a directory that is watched now
	below      []string    // the paths in kid, relative to kid
	incomplete bool        // there were too many paths
}

// newInspection returns an inspection of the names in batch. It leaves out names in directories
// that are not watched any more.
func newInspection(w *Watch, batch []pendingName) *inspection {
	batch = slices.DeleteFunc(batch, func(p pendingName) bool { return p.dir.unwatched })
	x := &inspection{w: w, base: w.base, names: batch, found: make([]observation, len(batch)), entered: map[place]bool{}}
	for i := range batch {
		p := &batch[i]
		if kid := p.dir.kids[p.name]; kid != nil && !p.removed {
			x.found[i].watched = kid.id
		}
	}
	return x
}

// drop stops watching the directories that were found and not adopted.
func (x *inspection) drop() {
	for i := range x.found {
		x.found[i].kid.unwatch()
		x.found[i].kid = nil
	}
	x.w.returnSpare()
}

func (x *inspection) run(ctx context.Context, l *guard.Lease) error {
	sc := &scan{w: x.w, l: l, refused: map[rules.Identity]error{}}
	if err := x.findBase(sc); err != nil || x.gone {
		return err
	}
	inDir := map[*watchedDir][]int{}
	var dirs []*watchedDir
	for i := range x.names {
		d := x.names[i].dir
		if inDir[d] == nil {
			dirs = append(dirs, d)
		}
		inDir[d] = append(inDir[d], i)
	}
	// Sort a directory after those above it: if one of them is watched anew, the names below it
	// have been inspected.
	slices.SortFunc(dirs, func(a, b *watchedDir) int { return a.depth() - b.depth() })
	for _, d := range dirs {
		if x.isRenewed(d) {
			continue
		}
		if err := x.lookInto(ctx, sc, d, inDir[d]); err != nil && !walk.Passable(err) {
			return err
		}
	}
	x.full = sc.full != nil
	return nil
}

// isRenewed reports whether d, or a directory above it, is watched anew, so that d is
// about to be given up.
func (x *inspection) isRenewed(d *watchedDir) bool {
	for ; d.parent != nil; d = d.parent {
		if x.entered[place{d.parent, d.name}] {
			return true
		}
	}
	return false
}

// findBase checks that the directory at which the watch begins is at its path. A directory that
// was moved out of the root still has its inotify watch.
func (x *inspection) findBase(sc *scan) error {
	d, ok, err := sc.open(x.base)
	switch {
	case ok:
		d.Close()
		return nil
	case err == nil || walk.Passable(err) && !names.Reason(err).Refusal():
		x.gone = true
		return nil
	}
	return err
}

// open opens a watched directory by its path; ok is false without an error if another
// directory is there now.
func (s *scan) open(d *watchedDir) (dir beneath.Dir, ok bool, err error) {
	if s.l.Source().File() != "" {
		dir = beneath.Root(s.l)
	} else if dir, err = beneath.OpenDir(s.l, d.rel()); err != nil {
		return dir, false, err
	}
	info, err := dir.Stat(s.l)
	if err != nil || info.ID() != d.id {
		dir.Close()
		return dir, false, err
	}
	return dir, true, nil
}

// lookInto looks at names of one directory, by their indexes in x.names. If the directory was
// moved, lookInto finds nothing: the events of the move are still to come.
func (x *inspection) lookInto(ctx context.Context, sc *scan, d *watchedDir, indexes []int) error {
	dir, ok, err := sc.open(d)
	if !ok {
		return err
	}
	defer dir.Close()
	rel := d.rel()
	for _, i := range indexes {
		at, o := x.names[i].place, &x.found[i]
		isDir := sc.look(dir, rel, at.name, o)
		if !isDir || !sc.w.o.Recursive || o.watched == o.id {
			continue
		}
		if err := o.enter(ctx, sc, at); err != nil && !walk.Passable(err) {
			return err
		}
		x.entered[at] = o.kid != nil
	}
	return nil
}

// look looks at one name, and reports whether it is a directory that may be seen.
func (s *scan) look(d beneath.Dir, rel, name string, o *observation) (isDir bool) {
	if name == "" {
		return false
	}
	info, err := beneath.StatAt(d, name)
	if err != nil {
		return false
	}
	o.exists, o.id = true, info.ID()
	o.hidden = walk.Visible(s.l, &info) != nil || s.l.Source().File() == "" && s.l.Judge().Name(rel, name) != nil || s.isClosed(d, name, &info)
	return info.IsDir() && !o.hidden
}

// isClosed reports whether a name is a single-file root that the caller may not watch. (The
// name of a nested directory may be seen, but not its contents.)
func (s *scan) isClosed(d beneath.Dir, name string, info *beneath.Info) bool {
	if info.IsDir() {
		return false
	}
	_, err := beneath.CrossEntry(s.l, d, name, info)
	return err != nil
}

// enter watches a directory that has appeared, and the directories in it.
func (o *observation) enter(ctx context.Context, sc *scan, at place) error {
	wk := sc.walker(ctx)
	defer wk.Close()
	if err := wk.Start(at.dir.rel()); err != nil {
		return err
	}
	kid, err := sc.enter(wk, at.dir, at.name)
	if kid == nil {
		return err
	}
	sc.found = &o.below
	err = sc.watchBelow(wk, kid)
	sc.found = nil
	if err == nil {
		o.kid, o.incomplete = kid, len(o.below) >= maxPending
	}
	return err
}
