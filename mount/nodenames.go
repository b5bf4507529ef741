package mount

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// made answers a request that made a name in directory n.
func (n *node) made(ctx context.Context, name string, out *fuse.EntryOut, make func(ctx context.Context, c guard.Caller, at vfs.At) (vfs.Info, error)) (*fs.Inode, syscall.Errno) {
	ctx, f, c := n.enter(ctx)
	at, ok := n.place()
	if !ok {
		return nil, n.gone()
	}
	watched := n.watched()
	n.own(name, true)
	info, err := make(ctx, c, at)
	if err != nil {
		n.disown(name, true)
		return nil, names.Errno(err)
	}
	child := n.child(f, &info, true)
	child.Operations().(*node).fillEntryIn(out, &info, watched)
	return child, 0
}

// Mkdir makes a directory.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.made(ctx, name, out, func(ctx context.Context, c guard.Caller, at vfs.At) (vfs.Info, error) {
		return n.tree().Mkdir(ctx, c, at, name, mode)
	})
}

// Mknod makes a file that is not opened.
func (n *node) Mknod(ctx context.Context, name string, mode uint32, dev uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.made(ctx, name, out, func(ctx context.Context, c guard.Caller, at vfs.At) (vfs.Info, error) {
		return n.tree().Mknod(ctx, c, at, name, mode, dev)
	})
}

// Symlink makes a symbolic link.
func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.made(ctx, name, out, func(ctx context.Context, c guard.Caller, at vfs.At) (vfs.Info, error) {
		return n.tree().Symlink(ctx, c, target, at, name)
	})
}

// Link gives a file another name.
func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	old, ok := target.(*node)
	if !ok || old.view != n.view {
		return nil, syscall.EXDEV
	}
	ctx, f, c := n.enter(ctx)
	at, ok := n.place()
	if !ok {
		return nil, n.gone()
	}
	oldAt, file, errno := old.target(nil)
	if errno != 0 {
		return nil, errno
	}
	n.own(name, true)
	info, err := n.tree().Link(ctx, c, oldAt, file, at, name)
	if err != nil {
		n.disown(name, true)
		return nil, names.Errno(err)
	}
	child := n.child(f, &info, false)
	child.Operations().(*node).fillEntryIn(out, &info, n.watched())
	return child, 0
}

// Unlink removes a file's name.
func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	at, ok := n.place()
	if !ok {
		return n.gone()
	}
	return n.removed(&at, name, func() error { return n.tree().Unlink(ctx, c, at, name) })
}

// Rmdir removes an empty directory.
func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	at, ok := n.place()
	if !ok {
		return n.gone()
	}
	return n.removed(&at, name, func() error { return n.tree().Rmdir(ctx, c, at, name) })
}

// removed runs the removal of a name at the place of n.
func (n *node) removed(at *vfs.At, name string, remove func() error) syscall.Errno {
	done := n.removing(at, name)
	n.own(name, false)
	err := remove()
	if err != nil {
		n.disown(name, false)
	}
	done(err == nil)
	return names.Errno(err)
}

// Rename moves a name within the root.
func (n *node) Rename(ctx context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	to, ok := nodeOf(ctx, newParent)
	if !ok || to.view != n.view {
		return syscall.EXDEV
	}
	ctx, _, c := n.enter(ctx)
	from, ok1 := n.place()
	dest, ok2 := to.place()
	if !ok1 || !ok2 {
		return n.gone()
	}
	exchange := flags&vfs.RenameExchange != 0
	done := func(bool) {}
	if flags == 0 {
		done = to.removing(&dest, newName)
	}
	moves := func(by func(n *node, name string, created bool)) {
		by(n, name, false)
		by(to, newName, true)
		if exchange {
			by(n, name, true)
			by(to, newName, false)
		}
	}
	moves((*node).own)
	err := n.tree().Rename(ctx, c, from, name, dest, newName, flags)
	if err != nil {
		moves((*node).disown)
	}
	done(err == nil)
	return names.Errno(err)
}
