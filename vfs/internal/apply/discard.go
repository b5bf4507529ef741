package apply

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Clear drops changes from the stage that the source has by now: they were applied, or the source
// was the same without an apply. Before that, Clear syncs the names of the
// changes in the source.
func (e Env) Clear(ctx context.Context, l *guard.Lease, list []Change) error {
	a := e.begin(ctx, l)
	if err := a.syncNames(list); err != nil {
		return err
	}
	SortPaths(list)
	for i := range slices.Backward(list) { // the contents of a directory before the directory
		if err := a.st.Clear(l, list[i].applied()); err != nil {
			return err
		}
	}
	return nil
}

// syncNames writes the changed names of the source to the disk.
func (a *applier) syncNames(list []Change) error {
	if len(list) > fewFiles {
		return a.st.Source(a.l).SyncAll(a.l)
	}
	for i := range list {
		parent, _ := splitRel(list[i].Path.Raw())
		d, err := a.st.Source(a.l).Below(parent, true)
		if err == unix.ELOOP || beneath.IsAbsent(err) { //nolint:errorlint // bare errno
			continue // the owner has moved the directory
		}
		if err == nil {
			err = beneath.SyncDir(a.l, d)
			d.Close()
		}
		if errors.Is(err, unix.EACCES) { // an applied directory whose mode forbids opening it
			return a.st.Source(a.l).SyncAll(a.l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Discard drops the changes that paths select from the stage. It drops the contents of a directory
// before the directory. Programs then see the source's files again. left has the changes that
// cannot be dropped: the stage has removed or moved a directory above them that is not selected, or
// the file system refuses to drop them.
func (e Env) Discard(ctx context.Context, l *guard.Lease, paths []string) (done, left []Change, err error) {
	a := e.begin(ctx, l)
	list, same, err := e.Plan(ctx, l, Request{Paths: paths})
	if err != nil {
		return nil, nil, err
	}
	for i := range same {
		if selects(paths, same[i].Path.Raw()) {
			list = append(list, Change{Path: same[i].Path})
		}
	}
	SortPaths(list)
	for i := len(list) - 1; i >= 0; i-- {
		c := list[i]
		if above := a.removedAbove(c.Path.Raw()); above != "" && !selects(paths, above) {
			_ = c.conflict("the stage has removed or moved %[1]s: discard %[1]s, which holds it", names.Quote(above))
			left = append(left, c)
			continue
		}
		if err := a.st.Discard(l, c.Path.Raw()); isRefused(err) {
			c.Class, c.Why = Refused, names.Text("it cannot be dropped: "+err.Error())
			left = append(left, c)
			continue
		} else if err != nil {
			return done, left, err
		}
		if c.Class != Same {
			done = append(done, c)
		}
	}
	SortPaths(done)
	SortPaths(left)
	return done, left, nil
}

// removedAbove returns the innermost directory above path that the stage has removed or moved, and
// not made again. It returns "" if there is no such directory.
func (a *applier) removedAbove(path string) string {
	for above, _ := splitRel(path); above != ""; above, _ = splitRel(above) {
		rec, _ := a.store.RecordOf(above)
		if !rec.Whiteout {
			continue
		}
		if up, err := a.lookUpper(above); err != nil || !up.isDir() {
			return above
		}
	}
	return ""
}
