package vfs

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// Attrs are the attributes that Setattr changes. A nil field leaves its attribute as it is.
type Attrs struct {
	Mode         *uint32 // permission bits
	UID, GID     *uint32
	Size         *int64
	Atime, Mtime *time.Time // nanoseconds
	AtimeNow     bool       // by the source's clock, not this machine's
	MtimeNow     bool
	KillPriv     bool // with Size and without Mode: the change of size clears set-id bits
}

// Setattr changes attributes and returns the new ones. It changes the open file f, which may
// have no name any more, or, if f is nil, the file at a path. With the right to create,
// but not to write, Setattr changes the size only through an open file f that created its file, and
// only lengthens the file. It changes other attributes only of files that were created in the same
// lifetime of the root, see guard.Lease.MayChange.
func (t *Tree) Setattr(ctx context.Context, c guard.Caller, at At, f *File, a Attrs) (Info, error) {
	req := at.request(c, names.OpSetattr, at.Path)
	own := f != nil && f.created
	if a.Size != nil {
		req.Op, req.Size = names.OpTruncate, *a.Size
		if !own {
			req.Need = guard.Write
		}
	}
	return onNode(ctx, t, req, at, f, func(l *guard.Lease, n *node) (Info, error) {
		var err error
		switch {
		case !own:
			err = l.MayChange(n.info.ID())
		case a.Size != nil:
			err = refuseOverwriting(l, n.fd, *a.Size) // lengthening is allowed: cp and tar do it for a hole at the end
		}
		if err != nil {
			return Info{}, err
		}
		if a.Size == nil {
			return n.setattr(l, a)
		}
		if *a.Size == 0 && !own {
			rel := at.Path.Rel()
			if f != nil {
				rel = f.at.Path.Rel()
			}
			if err := t.trash.KeepEmptied(ctx, l, n.fd, rel); err != nil {
				return Info{}, err
			}
		}
		// A change of size counts as writing: the file must not be replaced meanwhile.
		if f != nil {
			done, err := f.countWhileUsed(ctx, l)
			if err != nil {
				return Info{}, err
			}
			defer done()
		} else {
			if err := t.claims.ResumeWriting(ctx, l, n.info.ID()); err != nil {
				return Info{}, err
			}
			defer t.claims.EndWriting(n.info.ID())
		}
		return n.setattr(l, a)
	})
}

// requireNameless refuses a file that has a name.
func requireNameless(info *Info) error {
	if info.Nlink != 0 {
		return unix.ESTALE
	}
	return nil
}

// node is the file of an operation on a path or on an open file.
type node struct {
	fd   int
	info Info
	f    *File        // nil: the operation is on a path
	d    *beneath.Dir // the file at the path
}

// changeable returns a descriptor of the node that may be changed. In a staged root it copies the
// file up first; n.fd then refers to the copy.
func (n *node) changeable(l *guard.Lease) (w beneath.Changeable, err error) {
	if n.f != nil {
		w, err = n.f.changeable(l)
	} else {
		w, err = n.d.Change(l)
	}
	if err == nil {
		n.fd = w.FD()
	}
	return w, err
}

// onNode runs an operation on the descriptor of the file at a path, or of an open file.
func onNode[T any](ctx context.Context, t *Tree, req guard.Request, at At, f *File,
	g func(l *guard.Lease, n *node) (T, error),
) (T, error) {
	return onNodeUnless(ctx, t, req, at, f, func(*guard.Lease) error { return nil }, g)
}

// onNodeUnless is onNode, but for an operation on a path it calls refuse first. refuse's error
// counts only if the front end knows the file (At.ID) and the root has no nested roots. Then the
// file is not opened. The result is the error of JudgePath for the path or, if the path is allowed,
// refuse's error.
func onNodeUnless[T any](ctx context.Context, t *Tree, req guard.Request, at At, f *File,
	refuse func(l *guard.Lease) error, g func(l *guard.Lease, n *node) (T, error),
) (T, error) {
	if f != nil {
		return onFile(ctx, f, req, func(l *guard.Lease, fd int) (none T, n int64, err error) {
			info, err := f.h.Stat(l)
			if err == nil && at.Nameless {
				err = requireNameless(&info)
			}
			if err != nil {
				return none, 0, err
			}
			v, err := g(l, &node{fd: fd, info: info, f: f})
			return v, 0, err
		})
	}
	return gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (none T, n int64, err error) {
		if err := refuse(l); err != nil && at.ID != anyFile && !l.HasNested() {
			return none, 0, cmp.Or(beneath.JudgePath(l, at.Path, l.Judge().Access()), err)
		}
		d, info, err := nodeAt(l, at, l.Judge().Access())
		if err != nil {
			return none, 0, err
		}
		defer d.Close()
		v, err := g(l, &node{fd: d.FD(), info: info, d: &d})
		return v, 0, err
	})
}

// setattr changes attributes. It sets the owner before the mode, because a change of owner clears
// the set-id bits that the mode may set. It sets times last, because a change of size changes them.
func (n *node) setattr(l *guard.Lease, a Attrs) (Info, error) {
	w, err := n.changeable(l)
	if err != nil {
		return Info{}, err
	}
	if a.UID != nil || a.GID != nil {
		if err := beneath.Chown(l, w, id(a.UID), id(a.GID)); err != nil {
			return Info{}, err
		}
	}
	if a.Mode != nil {
		mode := *a.Mode & 07777
		if !n.info.IsDir() {
			mode = safeMode(l, mode)
		}
		if n.info.Type() == unix.S_IFSOCK && !l.PosixFull() {
			mode |= walk.SocketMark
		}
		if err := beneath.Chmod(l, w, mode); err != nil {
			return Info{}, err
		}
	}
	if a.Size != nil {
		truncate := beneath.TruncatePath
		if n.f != nil && !n.f.ref {
			truncate = beneath.Truncate
		}
		if a.KillPriv && a.Mode == nil {
			if err := killPriv(l, w, &n.info); err != nil {
				return Info{}, err
			}
		}
		if err := truncate(l, w, *a.Size); err != nil {
			return Info{}, err
		}
	}
	if a.Atime != nil || a.Mtime != nil || a.AtimeNow || a.MtimeNow {
		if err := beneath.Utimes(l, w, stamp(a.Atime, a.AtimeNow), stamp(a.Mtime, a.MtimeNow)); err != nil {
			return Info{}, err
		}
	}
	info, err := beneath.Stat(l, n.fd)
	walk.Present(l, &info)
	return info, err
}

func id(p *uint32) int {
	if p == nil {
		return -1
	}
	return int(*p)
}

func stamp(t *time.Time, now bool) beneath.Stamp {
	switch {
	case now:
		return beneath.Now
	case t == nil:
		return beneath.Omit
	}
	return beneath.At(*t)
}
