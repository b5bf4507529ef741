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
	for _, step := range a.store.OpenSteps() {
		if err := a.recover(step); err != nil {
			return err
		}
		if err := a.store.EndStep(step.Path); err != nil {
			return err
		}
	}
	return nil
}

// NeedsRecovery reports whether an Apply was interrupted.
func NeedsRecovery(l *guard.Lease) bool {
	st, ok := beneath.StageOf(l)
	return ok && len(st.Store().OpenSteps()) > 0
}

// recover finishes one step or takes it back. The file under the temporary name shows how far
// the step got.
func (a *applier) recover(step draft.Step) error {
	parent, base := splitRel(step.Path)
	d, err := a.st.Source(a.l).Below(parent, true)
	if err == unix.ELOOP || beneath.IsAbsent(err) { //nolint:errorlint // bare errno
		return nil // the owner has moved the directory, with the temporary file
	}
	if err != nil {
		return err
	}
	defer d.Close()
	temp, err := beneath.StatIn(d, step.Temp)
	if err != nil {
		return beneath.IgnoreAbsent(err)
	}
	p := placement{applier: *a, c: &Change{Path: names.Foreign(step.Path)}, d: d, base: base, newBase: step.New}
	switch at := beneath.BaseOf(&temp); {
	case step.Making:
		return p.unmake(step.Temp)
	case isSameFile(&at, &step.New):
		return p.dropNew(step) // not exchanged, or exchanged back
	case isUnchanged(&at, &step.Old) && !p.isUsed(step.Temp, &step.Old):
		return p.retire(step.Temp, &temp)
	default:
		return p.restore(step)
	}
}

// dropNew removes the new file from its temporary name, unless somebody has changed the file or has
// it open for writing. In that case the file stays, and dropNew records its temporary name.
func (p *placement) dropNew(step draft.Step) error {
	if p.isUsed(step.Temp, &step.New) {
		return p.recordLeft(step)
	}
	err := p.unmake(step.Temp)
	if errors.Is(err, unix.ENOTEMPTY) {
		return p.recordLeft(step)
	}
	return err
}

// recordLeft records the temporary name under which a file of the owner is left.
func (p *placement) recordLeft(step draft.Step) error {
	p.l.Notes().Remark("what was at " + names.Quote(step.Path) + " lies in " + tempPath(step.Path, step.Temp))
	return nil
}

// isSameFile reports whether two bases describe one file.
func isSameFile(a, b *draft.Base) bool {
	return a.Kind == b.Kind && a.Ino == b.Ino && a.Birth == b.Birth
}

// isUnchanged reports whether a file is unchanged. It ignores the file's names and ctime, and the
// contents of a directory.
func isUnchanged(now, then *draft.Base) bool {
	return isSameFile(now, then) && now.Mode == then.Mode && (now.Kind == draft.Dir || now.Size == then.Size && now.Mtime == then.Mtime)
}

// restore moves the owner's file from the temporary name back to its path, if the path is free or
// has the new file. Otherwise it records the temporary name.
func (p *placement) restore(step draft.Step) error {
	now, err := beneath.StatIn(p.d, p.base)
	if beneath.IsAbsent(err) {
		return beneath.RenameNew(p.l, p.d, step.Temp, p.d, p.base)
	}
	if err != nil {
		return err
	}
	if at := beneath.BaseOf(&now); isSameFile(&at, &step.New) {
		if err := beneath.Rename(p.l, p.d, step.Temp, p.d, p.base, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
		if p.isOurs(step.Temp) {
			return p.dropNew(step)
		}
	}
	return p.recordLeft(step)
}
