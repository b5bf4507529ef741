package apply

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// Recover finishes or takes back the steps of an Apply whose process was killed.
func (e Env) Recover(ctx context.Context, l *guard.Lease) error {
	a := e.begin(ctx, l)
	for _, pl := range a.store.Placings() {
		if err := a.recover(pl); err != nil {
			return err
		}
		if err := a.store.Placed(pl.Path); err != nil {
			return err
		}
	}
	return nil
}

// NeedsRecovery reports whether an Apply was interrupted.
func NeedsRecovery(l *guard.Lease) bool {
	st, ok := beneath.StageOf(l)
	return ok && len(st.Store().Placings()) > 0
}

// recover finishes one step or takes it back. The file under the temporary name shows how far
// the step got.
func (a *applier) recover(pl draft.Placing) error {
	parent, base := splitRel(pl.Path)
	d, err := a.st.Source(a.l).Below(parent, true)
	if err == unix.ELOOP || beneath.IsAbsent(err) { //nolint:errorlint // bare errno
		return nil // the owner has moved the directory, with the temporary file
	}
	if err != nil {
		return err
	}
	defer d.Close()
	temp, err := beneath.StatIn(d, pl.Temp)
	if err != nil {
		return beneath.IgnoreAbsent(err)
	}
	p := placement{applier: *a, c: &Change{Path: names.Foreign(pl.Path)}, d: d, base: base, made: pl.New}
	switch at := beneath.BaseOf(&temp); {
	case pl.Making:
		return p.unmake(pl.Temp)
	case isFile(&at, &pl.New):
		return p.dropNew(pl) // not exchanged, or exchanged back
	case isUnchanged(&at, &pl.Old) && !p.isUsed(pl.Temp, &pl.Old):
		return p.retire(pl.Temp, &temp)
	default:
		return p.restore(pl)
	}
}

// dropNew removes the new file from its temporary name, unless the owner has changed it while it
// had the path.
func (p *placement) dropNew(pl draft.Placing) error {
	if p.isUsed(pl.Temp, &pl.New) {
		return p.tell(pl)
	}
	err := p.unmake(pl.Temp)
	if errors.Is(err, unix.ENOTEMPTY) {
		return p.tell(pl)
	}
	return err
}

// tell records the temporary name under which a file of the owner is left.
func (p *placement) tell(pl draft.Placing) error {
	p.l.Notes().Remark("what was at " + names.Quote(pl.Path) + " lies in " + tempPath(pl.Path, pl.Temp))
	return nil
}

// isFile reports whether two bases are of one file.
func isFile(a, b *draft.Base) bool { return a.Kind == b.Kind && a.Ino == b.Ino && a.Birth == b.Birth }

// isUnchanged reports whether a file is unchanged, apart from its names.
func isUnchanged(now, then *draft.Base) bool {
	return isFile(now, then) && now.Mode == then.Mode && (now.Kind == draft.Dir || now.Size == then.Size && now.Mtime == then.Mtime)
}

// restore gives the owner's file its path again, where the new file is by now, or none.
func (p *placement) restore(pl draft.Placing) error {
	now, err := beneath.StatIn(p.d, p.base)
	if beneath.IsAbsent(err) {
		return beneath.RenameNew(p.l, p.d, pl.Temp, p.d, p.base)
	}
	if err != nil {
		return err
	}
	if at := beneath.BaseOf(&now); isFile(&at, &pl.New) {
		if err := beneath.Rename(p.l, p.d, pl.Temp, p.d, p.base, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
		if p.isOurs(pl.Temp) {
			return p.dropNew(pl)
		}
	}
	return p.tell(pl)
}

// Clear drops changes from the stage that the source has by now, because they were applied or
// are the same. It first writes them to the disk.
func (e Env) Clear(ctx context.Context, l *guard.Lease, list []Change) error {
	a := e.begin(ctx, l)
	if err := a.syncPlaces(list); err != nil {
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

// syncPlaces writes the names to the disk that were changed in the source.
func (a *applier) syncPlaces(list []Change) error {
	if len(list) > fewFiles {
		return a.st.Source(a.l).SyncAll(a.l)
	}
	for i := range list {
		parent, _ := splitRel(list[i].Path.Raw())
		d, err := a.st.Source(a.l).Below(parent, true)
		if err == unix.ELOOP || beneath.IsAbsent(err) { //nolint:errorlint // bare errno
			continue // the owner has moved it
		}
		if err == nil {
			err = beneath.SyncDir(a.l, d)
			d.Close()
		}
		if errors.Is(err, unix.EACCES) { // a directory that was applied with a mode that closes it
			return a.st.Source(a.l).SyncAll(a.l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Discard drops changes from the stage, the contents of a directory before the directory.
// Programs then see the source's files again. left has the changes that cannot be dropped,
// because the stage has removed or moved a directory above them.
func (e Env) Discard(ctx context.Context, l *guard.Lease, paths []string) (done, left []Change, err error) {
	a := e.begin(ctx, l)
	list, same, err := e.Plan(ctx, l, Asked{Paths: paths})
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

// removedAbove returns a directory above a path that only the source has.
func (a *applier) removedAbove(path string) string {
	for above, _ := splitRel(path); above != ""; above, _ = splitRel(above) {
		rec, _ := a.store.Has(above)
		if !rec.Whiteout {
			continue
		}
		if up, err := a.lookUpper(above); err != nil || !up.isDir() {
			return above
		}
	}
	return ""
}
