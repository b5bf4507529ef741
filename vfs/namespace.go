package vfs

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

func owner(c guard.Caller) beneath.Owner {
	if c.Makes != nil {
		return beneath.Owner{UID: c.Makes.UID, GID: c.Makes.GID}
	}
	return beneath.Owner{UID: c.UID, GID: c.GID}
}

// safeMode drops the set-id bits of anything but a directory, unless the grant
// is one of full POSIX: our mount is nosuid, but the source is not.
func safeMode(l *guard.Lease, mode uint32) uint32 {
	if l.PosixFull() {
		return mode
	}
	return mode &^ (unix.S_ISUID | unix.S_ISGID)
}

// umasked takes the caller's umask out of a mode, unless the directory has a
// default ACL, which takes the umask's place (acl(5), "Object creation").
func umasked(c guard.Caller, d beneath.Dir, mode uint32) uint32 {
	if c.Umask == 0 || mode&c.Umask == 0 || beneath.HasDefaultACL(d) {
		return mode
	}
	return mode &^ c.Umask
}

// make runs one operation that makes a name.
func (t *Tree) make(ctx context.Context, c guard.Caller, op guard.Op, dir At, name string,
	f func(l *guard.Lease, d beneath.Dir) (Info, error),
) (Info, error) {
	p, err := t.child(op, dir, name)
	if err != nil {
		return Info{}, err
	}
	req := guard.Request{Caller: c, Op: op, Path: p, Epoch: dir.Epoch, Names: 1}
	return gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (Info, int64, error) {
		unlock, err := l.Making(ctx)
		if err != nil {
			return Info{}, 0, err
		}
		defer unlock()
		d, err := parentAt(l, dir, name)
		if err != nil {
			return Info{}, 0, err
		}
		defer d.Close()
		start := time.Now()
		info, err := f(l, d)
		if err == nil && bornSince(l, &info, start) {
			l.NoteCreated(info.ID())
			l.NoteName(d.Rel(dir.Path.Rel()), name, info.ID(), info.IsDir())
		}
		return info, 0, err
	})
}

// bornSince reports whether the file that was found under a name just made is
// the one that was made: another may have been renamed to it in between. Local
// file systems take birth times from this machine's clock, which may lag by a
// tick; others are believed.
func bornSince(l *guard.Lease, info *Info, start time.Time) bool {
	birth := info.ID().Birth
	return birth == 0 || l.Remote() || birth > start.Add(-time.Second).UnixNano()
}

// Mkdir makes a directory.
func (t *Tree) Mkdir(ctx context.Context, c guard.Caller, dir At, name string, mode uint32) (Info, error) {
	return t.make(ctx, c, names.OpMkdir, dir, name, func(l *guard.Lease, d beneath.Dir) (Info, error) {
		return beneath.Mkdir(l, d, name, umasked(c, d, mode&07777), owner(c))
	})
}

// Mknod makes a regular file; with full POSIX also FIFOs, sockets and devices,
// which are otherwise refused: they would be hidden, and a device made here
// would work on the source.
func (t *Tree) Mknod(ctx context.Context, c guard.Caller, dir At, name string, mode, dev uint32) (Info, error) {
	return t.make(ctx, c, names.OpMknod, dir, name, func(l *guard.Lease, d beneath.Dir) (Info, error) {
		if mode&unix.S_IFMT != unix.S_IFREG && mode&unix.S_IFMT != 0 && !l.PosixFull() {
			return Info{}, &guard.Error{Kind: names.Permission, Err: unix.EPERM}
		}
		return beneath.Mknod(l, d, name, mode&unix.S_IFMT|umasked(c, d, safeMode(l, mode&07777)), dev, owner(c))
	})
}

// Unlink removes a file's name. A file that is itself a root is busy.
func (t *Tree) Unlink(ctx context.Context, c guard.Caller, dir At, name string) error {
	return t.remove(ctx, c, names.OpUnlink, dir, name, func(l *guard.Lease, d beneath.Dir, name string) error {
		b, err := t.bin(ctx, l)
		if err != nil {
			return err
		}
		defer b.close()
		return b.unlink(l, d, name, relIn(d, dir.Path, name))
	})
}

// Rmdir removes an empty directory. One that is itself a root is busy.
func (t *Tree) Rmdir(ctx context.Context, c guard.Caller, dir At, name string) error {
	return t.remove(ctx, c, names.OpRmdir, dir, name, func(l *guard.Lease, d beneath.Dir, name string) error {
		return beneath.Rmdir(l, d, name)
	})
}

func (t *Tree) remove(ctx context.Context, c guard.Caller, op guard.Op, dir At, name string,
	f func(*guard.Lease, beneath.Dir, string) error,
) error {
	p, err := t.child(op, dir, name)
	if err != nil {
		return err
	}
	req := dir.request(c, op, p)
	return gate.Run(ctx, t.reg, req, func(l *guard.Lease) error {
		d, err := parentAt(l, dir, name)
		if err != nil {
			return err
		}
		defer d.Close()
		if err := movable(l, d, name); err != nil {
			return err
		}
		t.keepLosing(l, c, dir, d, name)
		if err := f(l, d, name); err != nil {
			return err
		}
		l.NoteRemoved(relIn(d, dir.Path, name))
		return nil
	})
}

// relIn is the path of a name in the open directory that dir was resolved to.
func relIn(d beneath.Dir, dir guard.Path, name string) string {
	if at := d.Rel(dir.Rel()); at != "" {
		return at + "/" + name
	}
	return name
}

// movable refuses names that may not be moved or removed: what is hidden, and
// directories and files that are roots themselves.
func movable(l *guard.Lease, d beneath.Dir, name string) error {
	if l.PosixFull() && !l.HasNested() {
		return nil
	}
	info, err := beneath.StatIn(d, name)
	if err != nil {
		return err
	}
	if err := walk.Visible(l, &info); err != nil {
		return err
	}
	domain, err := beneath.CrossEntry(l, d, name, &info)
	if err != nil {
		return err
	}
	if domain != 0 {
		return unix.EBUSY
	}
	return nil
}

// Flags of Rename, as of renameat2(2).
const (
	RenameNoReplace = unix.RENAME_NOREPLACE
	RenameExchange  = unix.RENAME_EXCHANGE
)

// Rename moves a name within one root. Without the right to delete nothing is
// replaced. Across two roots, or the boundary of a nested one, it is EXDEV.
func (t *Tree) Rename(ctx context.Context, c guard.Caller, oldDir At, oldName string, newDir At, newName string, flags uint32) error {
	from, err := t.child(names.OpRename, oldDir, oldName)
	if err != nil {
		return err
	}
	to, err := t.child(names.OpRename, newDir, newName)
	if err != nil {
		return err
	}
	if flags&^(RenameNoReplace|RenameExchange) != 0 {
		return &guard.Error{Op: names.OpRename, Path: from, Kind: names.Invalid, Err: unix.EINVAL}
	}
	req := guard.Request{Caller: c, Op: names.OpRename, Path: from, Epoch: oldDir.Epoch, Path2: to}
	return gate.Run(ctx, t.reg, req, func(l *guard.Lease) error {
		m := &move{ctx: ctx, l: l, c: c, oldDir: oldDir.Path, oldName: oldName, newDir: newDir.Path, newName: newName,
			exchange: flags&RenameExchange != 0}
		return t.renameAt(m, oldDir, newDir, flags)
	})
}

// renameAt is Rename, admitted.
func (t *Tree) renameAt(m *move, oldDir, newDir At, flags uint32) error {
	return t.rename(m, func() (err error) {
		if m.src, err = parentFor(m.l, oldDir, m.oldName, guard.ToChange); err != nil {
			return err
		}
		// The new name is judged with what comes to it (judge).
		if m.dst, err = dirAt(m.l, newDir); err != nil {
			return err
		}
		return beneath.Enter(m.l, &m.dst, m.newName)
	}, func() error {
		t.keepLosing(m.l, m.c, newDir, m.dst, m.newName)
		if m.l.Narrowest()&guard.Delete == 0 && flags == 0 {
			return beneath.RenameNew(m.l, m.src, m.oldName, m.dst, m.newName)
		}
		k, err := t.keepReplaced(m, flags == 0)
		if err != nil {
			return err
		}
		return k.end(beneath.Rename(m.l, m.src, m.oldName, m.dst, m.newName, uint(flags)))
	})
}
