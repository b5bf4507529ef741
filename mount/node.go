package mount

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// enter begins a handler: it says which root the flight is about, before the
// gate is asked, and who asks. The context it returns ends with the caller and not
// with a signal that the caller survives (flight.Done); only Setlkw, which waits for
// others, is interrupted by one.
func (n *node) enter(ctx context.Context) (context.Context, *flight, guard.Caller) {
	f := n.view.m.raw.flights.of(ctx)
	in := f.enter(ctx, n.view)
	return in, f, n.view.m.caller(ctx) // after it counts as one about the view: see Shut
}

func (n *node) tree() *vfs.Tree { return n.view.m.tree }

// orphan is the answer for a node that lies in no directory any more and has
// no open file to go by: on ESTALE the kernel looks the path up again.
const orphan = syscall.ESTALE

// Lookup finds a name in the directory.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if inner := n.innerRoot(name); inner != "" {
		return n.view.m.lookupRoot(ctx, &n.Inode, name, inner, out)
	}
	ctx, f, c := n.enter(ctx)
	at, ok := n.place()
	if !ok {
		return nil, n.gone()
	}
	watched := n.watched()
	info, err := n.tree().Lookup(ctx, c, at, name)
	if err != nil {
		if !watched || n.nameless() || names.Reason(err) != names.NotExist {
			out.SetEntryTimeout(notKept) // not kept: the bridge keeps ENOENT only without a timeout of ours
		}
		return nil, names.Errno(err)
	}
	child := n.child(f, &info, false)
	found := child.Operations().(*node)
	found.met(n, name)
	found.hasOwnName()
	found.awaitLetGo()
	found.fillEntryIn(out, &info, watched)
	return child, 0
}

// child returns the node for a file found or made in directory n.
func (n *node) child(f *flight, info *vfs.Info, fresh bool) *fs.Inode {
	return n.view.node(f, &n.Inode, info, fresh)
}

// fillEntry fills the answer for a node in a directory that is not watched.
func (n *node) fillEntry(out *fuse.EntryOut, info *vfs.Info) { n.fillEntryIn(out, info, false) }

// fillEntryIn fills the answer to a request that yields an entry.
func (n *node) fillEntryIn(out *fuse.EntryOut, info *vfs.Info, watched bool) {
	n.fillAttr(&out.Attr, info)
	entry, attr := n.view.timeouts(info, watched)
	out.SetEntryTimeout(entry)
	out.SetAttrTimeout(attr)
}

// timeouts are how long the kernel may keep a name and attributes.
func (v *view) timeouts(info *vfs.Info, watched bool) (entry, attr time.Duration) {
	switch {
	case v.m.opt.Level == Strict:
		return 0, 0
	case !watched:
		return looseTimeout, looseTimeout
	case info.Nlink > 1 && !info.IsDir():
		// Another name of the file may lie where we do not watch.
		return keepTimeout, looseTimeout
	}
	return keepTimeout, keepTimeout
}

func (n *node) fillAttr(out *fuse.Attr, info *vfs.Info) {
	out.Ino = n.StableAttr().Ino
	out.Size = uint64(info.Size)
	out.Blocks = info.Blocks
	out.Atime, out.Atimensec = uint64(info.Atime.Sec), info.Atime.Nsec
	out.Mtime, out.Mtimensec = uint64(info.Mtime.Sec), info.Mtime.Nsec
	out.Ctime, out.Ctimensec = uint64(info.Ctime.Sec), info.Ctime.Nsec
	out.Mode = info.Mode
	out.Nlink = info.Nlink
	out.Uid, out.Gid = info.UID, info.GID
	if own := n.view.m.opt.Owner; own != nil {
		out.Uid, out.Gid = own.UID, own.GID
	}
	out.Rdev = info.Rdev
	out.Blksize = info.Blksize
}

func (n *node) fillAttrOut(out *fuse.AttrOut, info *vfs.Info) {
	n.fillAttr(&out.Attr, info)
	_, attr := n.view.timeouts(info, n.parentWatched())
	out.SetTimeout(attr)
}

// Getattr reads the attributes, by an open file if there is one: the file may
// have no name any more.
func (n *node) Getattr(ctx context.Context, fh fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	info, err := n.stat(ctx, c, fh)
	if err != nil {
		return names.Errno(err)
	}
	n.fillAttrOut(out, &info)
	return 0
}

func (n *node) stat(ctx context.Context, c guard.Caller, fh fs.FileHandle) (vfs.Info, error) {
	if h, ok := fh.(*handle); ok && h.file != nil {
		return h.file.Stat(ctx, c)
	}
	var info vfs.Info
	errno := n.anyhow(func(at vfs.At, f *vfs.File) (err error) {
		if f != nil {
			info, err = f.Stat(ctx, c)
		} else {
			info, err = n.tree().Lstat(ctx, c, at)
		}
		return err
	})
	if errno != 0 {
		return info, errno
	}
	return info, nil
}

// Setattr changes attributes.
func (n *node) Setattr(ctx context.Context, fh fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	at, file, errno := n.target(fh)
	if errno != 0 {
		return errno
	}
	own := n.writing()
	info, err := n.tree().Setattr(ctx, c, at, file, n.view.m.attrsOf(in))
	n.written(own, vfs.Touch{After: info.ChangeNanos()})
	if err != nil {
		return names.Errno(err)
	}
	n.fillAttrOut(out, &info)
	return 0
}

// target is what an operation on the node works on: its place, or, when it has
// none or the request came with an open file that can do it, that file.
func (n *node) target(fh fs.FileHandle) (vfs.At, *vfs.File, syscall.Errno) {
	if h, ok := fh.(*handle); ok && h.file != nil && h.file.Writable() {
		at, ok := n.place()
		if !ok {
			at = vfs.At{Path: h.file.Path(), Epoch: n.view.epoch}
		}
		return at, h.file, 0
	}
	if at, ok := n.place(); ok {
		return at, nil, 0
	}
	if f := n.anyFile(); f != nil {
		return vfs.At{Path: f.Path(), ID: n.id(), Epoch: n.view.epoch, Nameless: true}, f, 0
	}
	return vfs.At{}, nil, orphan
}

func (m *Mount) attrsOf(in *fuse.SetAttrIn) vfs.Attrs {
	var a vfs.Attrs
	if mode, ok := in.GetMode(); ok {
		a.Mode = &mode
	}
	// With an Owner the kernel lets nobody ask for another one's.
	if uid, ok := in.GetUID(); ok && m.opt.Owner == nil {
		a.UID = &uid
	}
	if gid, ok := in.GetGID(); ok && m.opt.Owner == nil {
		a.GID = &gid
	}
	if size, ok := in.GetSize(); ok {
		s := int64(size)
		a.Size = &s
	}
	a.KillPriv = in.Valid&fuse.FATTR_KILL_SUIDGID != 0
	// Not in.GetATime: it loses times before 1970 by way of unsigned numbers.
	if in.Valid&fuse.FATTR_ATIME != 0 {
		a.AtimeNow = in.Valid&fuse.FATTR_ATIME_NOW != 0
		t := time.Unix(int64(in.Atime), int64(in.Atimensec))
		a.Atime = &t
	}
	if in.Valid&fuse.FATTR_MTIME != 0 {
		a.MtimeNow = in.Valid&fuse.FATTR_MTIME_NOW != 0
		t := time.Unix(int64(in.Mtime), int64(in.Mtimensec))
		a.Mtime = &t
	}
	return a
}

// Readlink returns a link's target, if it stays in the root or leads to what is visible.
func (n *node) Readlink(ctx context.Context) ([]byte, syscall.Errno) {
	ctx, _, c := n.enter(ctx)
	var target string
	errno := n.anyhow(func(at vfs.At, f *vfs.File) (err error) {
		target, err = n.tree().ReadlinkWhere(ctx, c, at, f, n.view.m.shows())
		return err
	})
	return []byte(target), errno
}

// anyhow runs an operation on the node by its place, and, where that is no
// longer the node's, through what we hold of the file.
func (n *node) anyhow(f func(at vfs.At, file *vfs.File) error) syscall.Errno {
	errno := orphan
	if at, ok := n.place(); ok {
		if errno = names.Errno(f(at, nil)); errno != orphan {
			return errno
		}
	}
	if have := n.anyFile(); have != nil {
		again := names.Errno(f(vfs.At{Path: have.Path(), ID: n.id(), Epoch: n.view.epoch, Nameless: true}, have))
		if again != syscall.EBADF { // closed meanwhile: there is nothing to go by
			return again
		}
	}
	return errno
}

// Statfs describes the source's file system.
func (n *node) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	return n.anyhow(func(at vfs.At, f *vfs.File) error {
		st, err := n.tree().Statfs(ctx, c, at, f)
		out.Blocks, out.Bfree, out.Bavail = st.Blocks, st.Bfree, st.Bavail
		out.Files, out.Ffree = st.Files, st.Ffree
		out.Bsize, out.Frsize, out.NameLen = uint32(st.Bsize), uint32(st.Frsize), uint32(st.Namelen)
		return err
	})
}

// Getxattr reads one extended attribute.
func (n *node) Getxattr(ctx context.Context, attr string, dest []byte) (uint32, syscall.Errno) {
	ctx, _, c := n.enter(ctx)
	sz := 0
	errno := n.anyhow(func(at vfs.At, f *vfs.File) (err error) {
		sz, err = n.tree().Getxattr(ctx, c, at, f, attr, dest)
		return err
	})
	return uint32(sz), errno
}

// Listxattr lists the extended attributes.
func (n *node) Listxattr(ctx context.Context, dest []byte) (uint32, syscall.Errno) {
	ctx, _, c := n.enter(ctx)
	var list []byte
	errno := n.anyhow(func(at vfs.At, f *vfs.File) (err error) {
		list, err = n.tree().Listxattr(ctx, c, at, f)
		return err
	})
	if errno != 0 {
		return 0, errno
	}
	if len(dest) < len(list) {
		return uint32(len(list)), syscall.ERANGE
	}
	return uint32(copy(dest, list)), 0
}

// Setxattr sets one extended attribute.
func (n *node) Setxattr(ctx context.Context, attr string, data []byte, flags uint32) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	own := n.writing()
	errno := n.anyhow(func(at vfs.At, f *vfs.File) error {
		return n.tree().Setxattr(ctx, c, at, f, attr, data, int(flags))
	})
	n.written(own, vfs.Touch{})
	return errno
}

// Removexattr removes one extended attribute.
func (n *node) Removexattr(ctx context.Context, attr string) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	return n.anyhow(func(at vfs.At, f *vfs.File) error {
		return n.tree().Removexattr(ctx, c, at, f, attr)
	})
}

// typeBits is the file type of a mode.
func typeBits(mode uint32) uint32 { return mode & unix.S_IFMT }
