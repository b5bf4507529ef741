package vfs

import (
	"context"
	"fmt"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/trash"
)

// This file has the owner's operations on a trash. They check neither a caller nor the rights of the
// root, so a front end must not offer them to anybody but the owner.

type (
	// Trashed is one kept file.
	Trashed = trash.Entry
	// Emptied counts the files that TrashEmpty removed.
	Emptied = trash.Emptied
)

// asOwner runs an operation of the owner on a root's trash. f gets a nil Bin if the trash does not
// exist yet.
func asOwner[T any](ctx context.Context, t *Tree, op guard.Op, root guard.RootName, f func(l *guard.Lease, b *trash.Bin) (T, error)) (T, error) {
	var none T
	p, err := guard.NewPath(root, "")
	if err != nil {
		return none, err
	}
	return gate.Do(ctx, t.reg, guard.Request{Caller: t.ownerOf(root), Op: op, Path: p}, nil, func(l *guard.Lease) (T, int64, error) {
		if _, _, _, ok := l.Trash(); !ok {
			return none, 0, noTrash(op, root)
		}
		b, err := t.trash.OpenExisting(ctx, l)
		if err != nil {
			return none, 0, err
		}
		defer b.Close()
		v, err := f(l, b)
		return v, 0, err
	})
}

// noTrash returns the error for a root that keeps no trash.
func noTrash(op guard.Op, root guard.RootName) error {
	return &guard.Error{Op: op, Kind: names.Invalid, Err: fmt.Errorf(
		"root %s keeps no trash; it does with: rootsfs mount --trash, or trash = { on = true } in its [[root]] block", names.Quote(string(root)))}
}

// TrashList lists the files in a root's trash, the oldest first.
func (t *Tree) TrashList(ctx context.Context, root guard.RootName) ([]Trashed, error) {
	return asOwner(ctx, t, names.OpTrash, root, func(_ *guard.Lease, b *trash.Bin) ([]Trashed, error) {
		return b.List(root)
	})
}

// TrashRestore moves a kept file out of the trash. The new path of the file is to, which is
// relative to the root, or, if to is "", the path where the file was. The directory of the new path
// must exist (else Conflict), and its name must be free (else Exist). id is the entry's id, or the
// part of the id after the dash. TrashRestore returns the new path.
func (t *Tree) TrashRestore(ctx context.Context, root guard.RootName, id, to string) (guard.Path, error) {
	return asOwner(ctx, t, names.OpRestore, root, func(_ *guard.Lease, b *trash.Bin) (guard.Path, error) {
		return b.Restore(root, id, to)
	})
}

// TrashEmpty removes kept files for good: the files with the given ids, or, without ids, all files
// that were put into the trash before the given time.
func (t *Tree) TrashEmpty(ctx context.Context, root guard.RootName, ids []string, before time.Time) (Emptied, error) {
	return asOwner(ctx, t, names.OpEmpty, root, func(l *guard.Lease, b *trash.Bin) (Emptied, error) {
		e, err := b.Empty(root, ids, before)
		if err == nil {
			l.Notes().Remark(fmt.Sprintf("%d files, %d bytes, removed from the trash for good", e.Files, e.Bytes))
		}
		return e, err
	})
}

// TrashPrune removes the files that are too old from a root's trash, and the oldest files if the
// trash is too large. TrashPrune leaves no record.
func (t *Tree) TrashPrune(ctx context.Context, root guard.RootName) error {
	_, err := asOwner(ctx, t, names.OpTrash, root, func(_ *guard.Lease, b *trash.Bin) (int64, error) {
		return b.Prune()
	})
	return err
}
