package policy

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// foldNode is a directory or file of a file system that folds names, as APFS and ext4 with casefold
// do: spellings that differ only in case or Unicode form are one name. A directory entry keeps the
// spelling with which it was created. The file system shows a directory of the host. The tests need
// it because the kernel of a test machine may have no such file system to mount.
type foldNode struct {
	fs.Inode
	path string
}

// foldGen counts the nodes. Every node gets another generation, so that go-fuse never reuses an
// older node, whose path may be old.
var foldGen atomic.Uint64

var (
	_ fs.NodeLookuper  = (*foldNode)(nil)
	_ fs.NodeGetattrer = (*foldNode)(nil)
	_ fs.NodeSetattrer = (*foldNode)(nil)
	_ fs.NodeReaddirer = (*foldNode)(nil)
	_ fs.NodeOpener    = (*foldNode)(nil)
	_ fs.NodeCreater   = (*foldNode)(nil)
	_ fs.NodeMkdirer   = (*foldNode)(nil)
	_ fs.NodeUnlinker  = (*foldNode)(nil)
	_ fs.NodeRmdirer   = (*foldNode)(nil)
	_ fs.NodeRenamer   = (*foldNode)(nil)
	_ fs.NodeFsyncer   = (*foldNode)(nil)
)

func folded(name string) string { return norm.NFC.String(cases.Fold().String(norm.NFD.String(name))) }

// at returns the path of name in the directory n. If the directory has an entry for name, the path
// has the spelling of this entry.
func (n *foldNode) at(name string) string {
	list, _ := os.ReadDir(n.path)
	for _, e := range list {
		if folded(e.Name()) == folded(name) {
			return filepath.Join(n.path, e.Name())
		}
	}
	return filepath.Join(n.path, name)
}

// child returns a new node for a path, and sets out to the path's attributes.
func (n *foldNode) child(ctx context.Context, path string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return nil, fs.ToErrno(err)
	}
	out.FromStat(&st)
	return n.NewInode(ctx, &foldNode{path: path}, fs.StableAttr{Mode: st.Mode, Ino: st.Ino, Gen: foldGen.Add(1)}), 0
}

func (n *foldNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.child(ctx, n.at(name), out)
}

func (n *foldNode) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if open, ok := f.(fs.FileGetattrer); ok { // the file may have been renamed
		return open.Getattr(ctx, out)
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(n.path, &st); err != nil {
		return fs.ToErrno(err)
	}
	out.FromStat(&st)
	return 0
}

func (n *foldNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if open, ok := f.(fs.FileSetattrer); ok {
		return open.Setattr(ctx, in, out)
	}
	if size, ok := in.GetSize(); ok {
		if err := os.Truncate(n.path, int64(size)); err != nil {
			return fs.ToErrno(err)
		}
	}
	return n.Getattr(ctx, f, out)
}

func (n *foldNode) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	return fs.NewLoopbackDirStream(n.path)
}

func (n *foldNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	fd, err := syscall.Open(n.path, int(flags)&^unix.O_APPEND, 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	return fs.NewLoopbackFile(fd), fuse.FOPEN_DIRECT_IO, 0
}

func (n *foldNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	path := n.at(name)
	fd, err := syscall.Open(path, int(flags)|os.O_CREATE, mode)
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	child, errno := n.child(ctx, path, out)
	return child, fs.NewLoopbackFile(fd), fuse.FOPEN_DIRECT_IO, errno
}

func (n *foldNode) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	path := n.at(name)
	if err := unix.Mkdir(path, mode); err != nil {
		return nil, fs.ToErrno(err)
	}
	return n.child(ctx, path, out)
}

func (n *foldNode) Unlink(_ context.Context, name string) syscall.Errno {
	return fs.ToErrno(unix.Unlink(n.at(name)))
}

func (n *foldNode) Rmdir(_ context.Context, name string) syscall.Errno {
	return fs.ToErrno(unix.Rmdir(n.at(name)))
}

func (n *foldNode) Rename(_ context.Context, name string, to fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	return fs.ToErrno(unix.Renameat2(unix.AT_FDCWD, n.at(name), unix.AT_FDCWD, to.(*foldNode).at(newName), uint(flags)))
}

// Fsync does nothing, because the files need not survive a crash of the machine.
func (n *foldNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// mountFolding mounts a new, empty file system that folds names, and returns its mount point.
func mountFolding(t *testing.T) (point string) {
	t.Helper()
	point = t.TempDir()
	mountFoldingAt(t, point)
	return point
}

func mountFoldingAt(t *testing.T, point string) {
	t.Helper()
	needFUSE(t)
	none := time.Duration(0)
	srv, err := fs.Mount(point, &foldNode{path: t.TempDir()}, &fs.Options{
		EntryTimeout: &none, AttrTimeout: &none,
		MountOptions: fuse.MountOptions{FsName: "folding", Name: "folding", DirectMount: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Unmount(); err != nil {
			t.Error(err)
		}
	})
}
