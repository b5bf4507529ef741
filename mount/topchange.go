package mount

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// What a directory of ours answers to requests that would change it: no, unless
// it is one that shows a root (see shown.go), which then decides.

// Statfs describes no file system: the roots may lie on different ones.
func (t *topNode) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	switch n, errno := t.shown(ctx); {
	case errno != 0:
		return errno
	case n != nil:
		return n.Statfs(ctx, out)
	}
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, names.MaxElement
	return 0
}

// makes is or for what makes a name.
func (t *topNode) makes(ctx context.Context, op guard.Op, name string, f func(n *node) (*fs.Inode, syscall.Errno)) (child *fs.Inode, errno syscall.Errno) {
	errno = t.or(ctx, op, name, func(n *node) (errno syscall.Errno) {
		child, errno = f(n)
		return errno
	})
	return child, errno
}

// Mkdir makes a directory in the root.
func (t *topNode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return t.makes(ctx, names.OpMkdir, name, func(n *node) (*fs.Inode, syscall.Errno) { return n.Mkdir(ctx, name, mode, out) })
}

// Mknod makes a file in the root.
func (t *topNode) Mknod(ctx context.Context, name string, mode uint32, dev uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return t.makes(ctx, names.OpMknod, name, func(n *node) (*fs.Inode, syscall.Errno) { return n.Mknod(ctx, name, mode, dev, out) })
}

// Symlink makes a link in the root.
func (t *topNode) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return t.makes(ctx, names.OpSymlink, name, func(n *node) (*fs.Inode, syscall.Errno) { return n.Symlink(ctx, target, name, out) })
}

// Link gives a file another name in the root.
func (t *topNode) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return t.makes(ctx, names.OpLink, name, func(n *node) (*fs.Inode, syscall.Errno) { return n.Link(ctx, target, name, out) })
}

// Create makes a file in the root and opens it.
func (t *topNode) Create(ctx context.Context, name string, flags uint32, mode uint32, out *fuse.EntryOut) (child *fs.Inode, fh fs.FileHandle, how uint32, errno syscall.Errno) {
	child, errno = t.makes(ctx, names.OpCreate, name, func(n *node) (c *fs.Inode, e syscall.Errno) {
		c, fh, how, e = n.Create(ctx, name, flags, mode, out)
		return c, e
	})
	return child, fh, how, errno
}

// Tmpfile makes a file without a name in the root and opens it.
func (t *topNode) Tmpfile(ctx context.Context, flags uint32, mode uint32, out *fuse.EntryOut) (child *fs.Inode, fh fs.FileHandle, how uint32, errno syscall.Errno) {
	child, errno = t.makes(ctx, names.OpTmpfile, "", func(n *node) (c *fs.Inode, e syscall.Errno) {
		c, fh, how, e = n.Tmpfile(ctx, flags, mode, out)
		return c, e
	})
	return child, fh, how, errno
}

// Unlink removes a name of the root (the bridge's default would succeed silently).
func (t *topNode) Unlink(ctx context.Context, name string) syscall.Errno {
	return t.or(ctx, names.OpUnlink, name, func(n *node) syscall.Errno { return n.Unlink(ctx, name) })
}

// Rmdir removes a directory of the root.
func (t *topNode) Rmdir(ctx context.Context, name string) syscall.Errno {
	return t.or(ctx, names.OpRmdir, name, func(n *node) syscall.Errno { return n.Rmdir(ctx, name) })
}

// Rename moves a name within the root.
func (t *topNode) Rename(ctx context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	return t.or(ctx, names.OpRename, name, func(n *node) syscall.Errno { return n.Rename(ctx, name, newParent, newName, flags) })
}

// Setattr changes the root's attributes.
func (t *topNode) Setattr(ctx context.Context, fh fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return t.or(ctx, names.OpSetattr, "", func(n *node) syscall.Errno {
		errno := n.Setattr(ctx, fh, in, out)
		out.Ino = t.ino
		return errno
	})
}

// Getxattr reads an extended attribute of the root; a directory of ours has none.
func (t *topNode) Getxattr(ctx context.Context, attr string, dest []byte) (uint32, syscall.Errno) {
	n, errno := t.shown(ctx)
	switch {
	case errno != 0:
		return 0, errno
	case n == nil:
		return 0, syscall.ENODATA
	}
	return n.Getxattr(ctx, attr, dest)
}

// Listxattr lists those of the root.
func (t *topNode) Listxattr(ctx context.Context, dest []byte) (uint32, syscall.Errno) {
	n, errno := t.shown(ctx)
	if errno != 0 || n == nil {
		return 0, errno
	}
	return n.Listxattr(ctx, dest)
}

// Setxattr sets one of the root's.
func (t *topNode) Setxattr(ctx context.Context, attr string, data []byte, flags uint32) syscall.Errno {
	return t.or(ctx, names.OpSetxattr, "", func(n *node) syscall.Errno { return n.Setxattr(ctx, attr, data, flags) })
}

// Removexattr removes one of the root's.
func (t *topNode) Removexattr(ctx context.Context, attr string) syscall.Errno {
	return t.or(ctx, names.OpRemovexattr, "", func(n *node) syscall.Errno { return n.Removexattr(ctx, attr) })
}
