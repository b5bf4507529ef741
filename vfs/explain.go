package vfs

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// Explain returns the answer that an operation by path would get, and the reason. It is a dry
// run (see guard.DryRun), resolved and judged by the code that runs the operation. Links are
// followed as for peers that send paths. For the move of a directory it reads the names in the
// directory. Apart from that it opens only references (O_PATH), which are closed when it
// returns.
//
// Explain ignores req.Held and req.HeldTarget. For operations on open files, Explain returns the
// gate's answer for a file that is opened at the path now. Without a Path2, a rename is judged as
// one to another name in the same directory, to which the same rules apply as to Path.
//
// Explain knows only the decision of the gate: an allowed operation may still fail, for example
// because a file exists already, is in use, or its permissions forbid the operation.
func (t *Tree) Explain(ctx context.Context, req guard.Request) guard.Explanation {
	req.Dry, req.Held, req.HeldTarget = &guard.DryRun{}, nil, nil
	switch req.Op { //nolint:exhaustive // the others need nothing more than the caller says
	case names.OpCreate, names.OpTmpfile, names.OpMkdir, names.OpMknod, names.OpSymlink, names.OpLink:
		req.Names = max(req.Names, 1)
	case names.OpTruncate:
		// Setattr needs no such right to lengthen a file through the File that created it, but
		// Explain has no File.
		req.Need |= guard.Write
	}
	var missing atomic.Bool // atomic: the operation may go on after it was answered early
	_, err := gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (none struct{}, n int64, err error) {
		err = t.tryDry(ctx, l, &req)
		if isMissing(err) {
			missing.Store(true)
			err = judgeMissing(ctx, l, &req)
		}
		if err != nil && !names.Reason(err).Refusal() && names.Reason(err) != names.Internal {
			err = nil // the gate does not refuse it
		}
		return none, 0, err
	})
	out := req.Dry.Explanation(req.Path, err)
	out.Missing = missing.Load()
	return out
}

// isMissing reports whether a resolution failed because there is no such file.
func isMissing(err error) bool {
	var refused *rules.Refusal
	errno := names.Errno(err)
	return err != nil && !errors.As(err, &refused) && !names.Reason(err).Refusal() && (errno == unix.ENOENT || errno == unix.ENOTDIR)
}

// tryDry resolves and judges the paths of an operation as the operation does.
func (t *Tree) tryDry(ctx context.Context, l *guard.Lease, req *guard.Request) error {
	p := req.Path
	switch req.Op { //nolint:exhaustive // the default is an operation on the file that the path leads to
	case names.OpRename:
		return t.renamePath(ctx, l, req.Caller, p, req.Path2, true, "")
	case names.OpUnlink, names.OpRmdir:
		return doFollowed(ctx, l, p, false, func(q guard.Path) error { return t.removePath(ctx, l, q, RemoveOptions{}) })
	case names.OpCreate, names.OpMkdir, names.OpMknod, names.OpSymlink:
		return doFollowed(ctx, l, p, false, func(q guard.Path) error { return tryMaking(l, q) })
	case names.OpLink:
		return t.tryLink(ctx, l, req)
	case names.OpReplace, names.OpWrite:
		return doFollowed(ctx, l, p, true, func(q guard.Path) error { return tryWriting(l, q, req) })
	case names.OpCopyFileRange:
		if req.Path2.Root != "" {
			err := doFollowed(ctx, l, req.Path2, true, func(q guard.Path) error { return tryWriting(l, q, req) })
			if err != nil {
				return withPath(req.Path2, err)
			}
		}
	case names.OpOpen:
		if req.Need.Mutating() {
			return doFollowed(ctx, l, p, true, func(q guard.Path) error { return tryOpening(l, q) })
		}
	case names.OpTmpfile, names.OpOpendir, names.OpReaddir:
		return doFollowed(ctx, l, p, true, func(q guard.Path) error { return tryDir(l, q) })
	case names.OpReadlink:
		return doFollowed(ctx, l, p, false, func(q guard.Path) error { return tryReadlink(ctx, l, q) })
	case names.OpTrash, names.OpRestore, names.OpEmpty, names.OpStage, names.OpApply, names.OpDiscard, names.OpUndo:
		return nil // the owner's operations, on the whole root
	}
	last := req.Op != names.OpLookup && req.Op != names.OpStatfs
	return doFollowed(ctx, l, p, last, func(q guard.Path) error {
		d, info, err := nodeAt(l, At{Path: q}, l.Judge().Access())
		if err != nil {
			return err
		}
		d.Close()
		switch {
		case last && info.Type() == unix.S_IFLNK:
			return unix.ELOOP
		case req.Op == names.OpSetattr:
			return l.MayChange(info.ID())
		}
		return nil
	})
}

// tryMaking judges a name that is to be made.
func tryMaking(l *guard.Lease, q guard.Path) error {
	if q.IsRoot() {
		return nil // it exists
	}
	dir, name := q.Split()
	d, err := parentAt(l, At{Path: dir}, name, l.Judge().Access())
	if err == nil {
		d.Close()
	}
	return err
}

// tryLink judges req.Path as another name for the file at req.Path2.
func (t *Tree) tryLink(ctx context.Context, l *guard.Lease, req *guard.Request) error {
	return doFollowed(ctx, l, req.Path, false, func(q guard.Path) error {
		if err := tryMaking(l, q); err != nil || req.Path2.Root == "" || q.IsRoot() {
			return err
		}
		return withPath(req.Path2, doFollowed(ctx, l, req.Path2, false, func(old guard.Path) error {
			src, info, err := nodeAt(l, At{Path: old}, rules.ToChange)
			if err != nil {
				return err
			}
			src.Close()
			if info.Type() != unix.S_IFLNK {
				return nil
			}
			dir, name := q.Split()
			return l.Judge().As(rules.ToMake, dir.Rel(), name, pattern.Link)
		}))
	})
}

// tryWriting judges new contents for the file at q. The file need not exist if the operation can
// create it.
func tryWriting(l *guard.Lease, q guard.Path, req *guard.Request) error {
	cond := IfMatch{Follow: true, MustExist: req.Need&guard.Write != 0 || req.Op == names.OpWrite && req.Names == 0}
	need := guard.Write
	if req.Op == names.OpWrite {
		need = 0 // the gate has checked the rights to write
	}
	d, base, err := beneath.Parent(l, q, cond.access())
	if err != nil {
		return err
	}
	defer d.Close()
	old, err := checkExisting(l, d, base, cond, need)
	if err != nil || req.Op != names.OpWrite {
		return err
	}
	size := req.Bytes // an append: the gate does not know how large the file becomes
	if old != nil {
		size += old.Size
	}
	return l.Charges().Add(0, size, 0)
}

// tryOpening judges a file that is to be opened for writing, as Open does.
func tryOpening(l *guard.Lease, q guard.Path) error {
	d, base, err := beneath.Parent(l, q, l.Judge().Access())
	if err != nil {
		return err
	}
	defer d.Close()
	info, err := beneath.StatIn(d, base)
	if err == nil {
		err = walk.Visible(l, &info)
	}
	if err == nil && info.Type() == unix.S_IFLNK {
		err = unix.ELOOP
	}
	return err
}

// tryDir judges a directory that is to be read, or is to get a file without a name.
func tryDir(l *guard.Lease, q guard.Path) error {
	d, err := dirAt(l, At{Path: q})
	if err != nil {
		return err
	}
	defer d.Close()
	if l.Op() != names.OpTmpfile {
		return nil
	}
	return l.Judge().As(rules.ToMake, d.Rel(q.Rel()), "", pattern.Other)
}

// tryReadlink judges a link's target.
func tryReadlink(ctx context.Context, l *guard.Lease, q guard.Path) error {
	d, info, err := nodeAt(l, At{Path: q}, l.Judge().Access())
	if err != nil {
		return err
	}
	defer d.Close()
	if info.Type() != unix.S_IFLNK {
		return unix.EINVAL
	}
	text, err := beneath.Readlink(d.FD())
	if err != nil {
		return err
	}
	dir, _ := q.Split()
	err = staysInside(ctx, l, dir, text)
	l.Notes().Link(guard.MetLink{At: q.Rel(), Target: text}, names.Reason(err) == names.Escaped)
	return err
}

// judgeMissing judges the names of a path that leads to no file as if the file existed: the
// rules are about names, whether a file has them or not.
func judgeMissing(ctx context.Context, l *guard.Lease, req *guard.Request) error {
	w := follower{ctx: ctx, l: l}
	defer func() { w.d.Close() }()
	if err := w.walk(req.Path, false); err != nil && !isMissing(err) {
		return err
	}
	q, err := guard.NewPath(req.Path.Root, strings.TrimPrefix(w.rel()+"/"+w.rest(), "/"))
	if err != nil || q.IsRoot() {
		return nil //nolint:nilerr // a link's target with ".." after a missing name leads nowhere
	}
	dir, base := q.Split()
	if err := l.Judge().Dir(dir.Rel()); err != nil {
		return err
	}
	return l.Judge().As(l.Judge().Access(), dir.Rel(), base, pattern.Unknown)
}
