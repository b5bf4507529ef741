package apply

import (
	"context"
	"errors"

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
	p := placement{applier: *a, c: &Change{Path: names.Foreign(pl.Path)}, d: d, base: base, newBase: pl.New}
	switch at := beneath.BaseOf(&temp); {
	case pl.Making:
		return p.unmake(pl.Temp)
	case isSameFile(&at, &pl.New):
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
		return p.recordLeft(pl)
	}
	err := p.unmake(pl.Temp)
	if errors.Is(err, unix.ENOTEMPTY) {
		return p.recordLeft(pl)
	}
	return err
}

// recordLeft records the temporary name under which a file of the owner is left.
func (p *placement) recordLeft(pl draft.Placing) error {
	p.l.Notes().Remark("what was at " + names.Quote(pl.Path) + " lies in " + tempPath(pl.Path, pl.Temp))
	return nil
}

// isSameFile reports whether two bases describe one file.
func isSameFile(a, b *draft.Base) bool {
	return a.Kind == b.Kind && a.Ino == b.Ino && a.Birth == b.Birth
}

// isUnchanged reports whether a file is unchanged, apart from its names.
func isUnchanged(now, then *draft.Base) bool {
	return isSameFile(now, then) && now.Mode == then.Mode && (now.Kind == draft.Dir || now.Size == then.Size && now.Mtime == then.Mtime)
}

// restore gives the owner's file its path again. At the path, there is now the new file or none.
func (p *placement) restore(pl draft.Placing) error {
	now, err := beneath.StatIn(p.d, p.base)
	if beneath.IsAbsent(err) {
		return beneath.RenameNew(p.l, p.d, pl.Temp, p.d, p.base)
	}
	if err != nil {
		return err
	}
	if at := beneath.BaseOf(&now); isSameFile(&at, &pl.New) {
		if err := beneath.Rename(p.l, p.d, pl.Temp, p.d, p.base, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
		if p.isOurs(pl.Temp) {
			return p.dropNew(pl)
		}
	}
	return p.recordLeft(pl)
}
