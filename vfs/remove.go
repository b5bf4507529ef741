package vfs

import (
	"context"
	"errors"
	"strings"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// RemoveHow says how RemovePath removes.
type RemoveHow struct {
	Recursive bool
	ETag      string // the path itself must be in this state; "": any
	// Progress, unless nil, is told how many names a recursive removal has removed
	// so far, one call at a time, and not after RemovePath has returned.
	Progress func(removed int64)
}

// RemovePath removes a file, a link (never what it leads to) or a directory;
// one that is not empty only if Recursive is set. Roots are not removed, nor
// directories that hold one; nor files that somebody holds locked (Locked).
//
// A recursive removal judges each name, follows no link, enters no other file
// system, and can be cancelled. It stops at the first name that cannot be
// removed, with a *Partial as the error's cause. What is hidden is left alone,
// and then the directory that holds it is not empty. A directory that somebody
// moves out of the root meanwhile is left as soon as that is noticed: before the
// next reading of names, or in very deep places one of the next.
func (t *Tree) RemovePath(ctx context.Context, c guard.Caller, p guard.Path, how RemoveHow) error {
	tell, mute := telling(how.Progress)
	defer mute()
	how.Progress = tell
	req := guard.Request{Caller: c, Op: names.OpUnlink, Path: p}
	if how.Recursive {
		req.Op = names.OpRmdir
	}
	return gate.Run(ctx, t.reg, req, func(l *guard.Lease) error {
		return followTo(ctx, l, p, false, func(q guard.Path) error { return t.removePath(ctx, l, q, how) })
	})
}

func (t *Tree) removePath(ctx context.Context, l *guard.Lease, q guard.Path, how RemoveHow) error {
	if q.IsRoot() {
		return isRoot()
	}
	d, base, err := beneath.Parent(l, q)
	if err != nil {
		return err
	}
	defer d.Close()
	key, err := keyOf(d, base)
	if err != nil {
		return err
	}
	unlock, err := t.locks.lock(ctx, l, key)
	if err != nil {
		return err
	}
	defer unlock()
	if err := movable(l, d, base); err != nil {
		return err
	}
	info, err := inState(d, base, how.ETag)
	if err != nil {
		return err
	}
	b, err := t.bin(ctx, l)
	if err != nil {
		return err
	}
	defer b.close()
	switch {
	case !info.IsDir():
		dir, _ := q.Split()
		err = whileUnlocked(l, d, base, &info, func() error { return b.unlink(l, d, base, relIn(d, dir, base)) })
	case !how.Recursive:
		err = beneath.Rmdir(l, d, base)
	default:
		return t.removeAll(ctx, l, q, d, base, b, how.Progress)
	}
	if err == nil {
		l.NoteRemoved(q.Rel())
	}
	return err
}

// removeAll removes a directory with all that is in it.
func (t *Tree) removeAll(ctx context.Context, l *guard.Lease, q guard.Path, d beneath.Dir, base string, b *bin, tell func(int64)) error {
	if err := t.holdsRoots(l, q); err != nil {
		return err
	}
	w := newWalker(ctx, l, q.Rel())
	defer w.close()
	r := remover{w: w, bin: b, tell: tell}
	return r.run(q.Root, d, base)
}

// holdsRoots refuses a directory that other roots lie in, before any of it is
// gone.
func (t *Tree) holdsRoots(l *guard.Lease, q guard.Path) error {
	st, ok := t.reg.Lookup(q.Root)
	if !ok || !l.HasNested() {
		return nil
	}
	for _, rel := range st.Nested {
		if strings.HasPrefix(rel, q.Rel()+"/") {
			return &guard.Error{Kind: names.Permission, Err: errors.New("the directory holds another root")}
		}
	}
	return nil
}
