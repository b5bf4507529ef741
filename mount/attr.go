package mount

import (
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func (n *node) fillAttr(out *fuse.Attr, info *vfs.Info) {
	out.Ino = n.shownIno()
	out.Size = uint64(info.Size)
	out.Blocks = info.Blocks
	out.Atime, out.Atimensec = uint64(info.Atime.Sec), info.Atime.Nsec
	out.Mtime, out.Mtimensec = uint64(info.Mtime.Sec), info.Mtime.Nsec
	out.Ctime, out.Ctimensec = uint64(info.Ctime.Sec), info.Ctime.Nsec
	out.Mode = uint32(n.kind) | info.Mode&0o7777
	out.Nlink = info.Nlink
	out.Uid, out.Gid = info.UID, info.GID
	if owner := n.view.m.opt.Owner; owner != nil {
		out.Uid, out.Gid = owner.UID, owner.GID
	}
	out.Rdev = info.Rdev
	out.Blksize = info.Blksize
}

// fillAttrOut fills the answer to a request for attributes. A fixed directory keeps its
// inode number, whatever root it shows.
func (r *request) fillAttrOut(n *node, info *vfs.Info, out *fuse.AttrOut) {
	n.fillAttr(&out.Attr, info)
	if r.alias != nil {
		out.Ino = r.alias.ino
	}
	_, attr := n.view.timeouts(info, n.hasWatchedParent())
	out.SetTimeout(attr)
}

// GetAttr reads the attributes, through an open file if there is one: the file may have no
// name any more.
func (fs *fileSystem) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return fs.onNode(cancel, &in.InHeader, func(r *request, n *node) error {
		if in.Flags()&fuse.FUSE_GETATTR_FH != 0 {
			if err := r.refuseRead(n, in.Fh()); err != nil {
				return err
			}
		}
		return r.getattr(n, in.Fh(), out)
	})
}

// refuseRead checks a GETATTR that names an open file. The kernel sends such a GETATTR before it
// reads pages of the file. If the root's rights do not allow reading, refuseRead returns the error
// that the READ would get. Since Linux 6.19 the kernel turns every error of the READ itself into
// EIO, and programs would not get EACCES. A handle that can write is exempt, because the kernel
// sends the same GETATTR in lseek(2). The GETATTR of fstat(2) names no handle.
func (r *request) refuseRead(n *node, fh uint64) error {
	if !n.isRegular() || n.ownFile() != nil || !n.view.unreadable.Load() {
		return nil
	}
	if h := r.fs.files.get(fh); h != nil && h.file.Writable() {
		return nil
	}
	_, f, err := r.openFile(n.id, fh, false)
	if err == nil {
		_, err = f.ReadAt(r, r.caller, nil, 0)
	}
	return err
}

func (r *request) getattr(n *node, fh uint64, out *fuse.AttrOut) error {
	if n.ownFile() != nil {
		r.m.fillOwn(n, &out.Attr)
		if r.m.opt.Level != Strict && n.isDir() {
			out.SetTimeout(keepTimeout)
		}
		return nil
	}
	info, err := r.stat(n, fh)
	if err == nil {
		r.fillAttrOut(n, &info, out)
	}
	return err
}

// stat reads the attributes through the handle fh. If the request names no handle, stat uses any
// open file of the node or, for a directory, any open handle of the directory. (The kernel asks
// for the attributes of a directory after each name that a program removes from the directory.)
// If there is no open handle, stat reads the attributes by path.
func (r *request) stat(n *node, fh uint64) (info vfs.Info, err error) {
	var open *vfs.File
	if h := r.fs.files.get(fh); h != nil {
		open = h.file
	} else {
		open = n.anyOpen()
	}
	if open != nil && r.borrow(open) {
		return open.Stat(r, r.caller)
	}
	err = r.byPathOrHandle(n, func(at vfs.At, f *vfs.File) (err error) {
		if f != nil {
			info, err = f.Stat(r, r.caller)
		} else {
			info, err = r.m.tree.Lstat(r, r.caller, at)
		}
		return err
	})
	if names.Errno(err) == errNoPath {
		// The path leads elsewhere: use any descriptor of the node.
		if f := n.anyFile(); f != nil && r.borrow(f) {
			return f.Stat(r, r.caller)
		}
	}
	return info, err
}

// Statx returns ENOSYS: the kernel then sends GETATTR.
func (fs *fileSystem) Statx(cancel <-chan struct{}, in *fuse.StatxIn, _ *fuse.StatxOut) fuse.Status {
	return fs.answer(cancel, &in.InHeader, func(*request) error { return syscall.ENOSYS })
}

// Access returns ENOSYS: the kernel itself checks the modes (default_permissions).
func (fs *fileSystem) Access(cancel <-chan struct{}, in *fuse.AccessIn) fuse.Status {
	return fs.answer(cancel, &in.InHeader, func(*request) error { return syscall.ENOSYS })
}

// SetAttr changes attributes.
func (fs *fileSystem) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return fs.changeNode(cancel, &in.InHeader, names.OpSetattr, func(r *request, n *node) error {
		set := func(at vfs.At, file *vfs.File) error {
			change := n.beginChange()
			info, err := r.m.tree.Setattr(r, r.caller, at, file, r.m.attrsOf(in))
			n.endChange(change, vfs.Touch{After: info.ChangeNanos()})
			if err == nil {
				r.fillAttrOut(n, &info, out)
			}
			return err
		}
		fh, _ := in.GetFh()
		if h := fs.files.get(fh); h != nil && h.file.Writable() {
			at, ok := n.path()
			if !ok {
				at = vfs.At{Path: h.file.Path(), Epoch: n.view.epoch}
			}
			return set(at, h.file)
		}
		r.isTruncation = in.Valid&fuse.FATTR_SIZE != 0
		return r.byPathOrHandle(n, set)
	})
}

func (m *Mount) attrsOf(in *fuse.SetAttrIn) vfs.Attrs {
	var a vfs.Attrs
	if mode, ok := in.GetMode(); ok {
		a.Mode = &mode
	}
	// With an Owner the files keep their users and groups on the source: programs see the Owner's.
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
	// Not in.GetATime: it converts the time as an unsigned number and loses times before 1970.
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

// Readlink returns a link's target, if it stays in the root or Options.Visible allows it.
func (fs *fileSystem) Readlink(cancel <-chan struct{}, header *fuse.InHeader) (target []byte, status fuse.Status) {
	status = fs.onNode(cancel, header, func(r *request, n *node) error {
		if file := n.ownFile(); file != nil {
			target = []byte(file.target)
			return nil
		}
		return r.byPathOrHandle(n, func(at vfs.At, f *vfs.File) error {
			text, err := r.m.tree.ReadlinkFor(r, r.caller, at, f, r.m.linkUse(n))
			target = []byte(text)
			return err
		})
	})
	return target, status
}

// byPathOrHandle runs f, which is an operation on the node, with the path of the node. If the path
// no longer leads to the node, byPathOrHandle uses the reference that a look-up of the thread has
// taken (see retries), else an open file of the node. It runs f with the present path of that
// file, or with the file itself if the file has no name any more.
//
// If the node has a path, and the program seems to have named the file by a path, byPathOrHandle
// uses no open file. The program's request gets ESTALE, and the kernel then looks the path up
// again.
func (r *request) byPathOrHandle(n *node, f func(at vfs.At, file *vfs.File) error) error {
	err := error(errNoPath)
	at, ok := r.pathOf(n)
	if ok {
		if err = f(at, nil); names.Errno(err) != errNoPath {
			return err
		}
	}
	held := at.Held
	if held == nil {
		if held = n.anyFile(); held == nil || ok && r.isByPath(n) {
			return err
		}
		if at.Held = held; ok {
			if err = f(at, nil); names.Errno(err) != errNoPath {
				return err
			}
		}
	}
	handleErr := f(vfs.At{Path: held.Path(), ID: n.identity(), Epoch: n.view.epoch, Nameless: true}, held)
	if names.Errno(handleErr) != syscall.EBADF { // held was closed meanwhile
		return handleErr
	}
	return err
}

// GetXAttr reads one extended attribute.
func (fs *fileSystem) GetXAttr(cancel <-chan struct{}, header *fuse.InHeader, attr string, dest []byte) (size uint32, status fuse.Status) {
	status = fs.onNode(cancel, header, func(r *request, n *node) error {
		if n.ownFile() != nil {
			return syscall.ENODATA
		}
		return r.byPathOrHandle(n, func(at vfs.At, f *vfs.File) error {
			got, err := r.m.tree.Getxattr(r, r.caller, at, f, attr, dest)
			size = uint32(got)
			return err
		})
	})
	return size, status
}

// ListXAttr lists the extended attributes.
func (fs *fileSystem) ListXAttr(cancel <-chan struct{}, header *fuse.InHeader, dest []byte) (size uint32, status fuse.Status) {
	status = fs.onNode(cancel, header, func(r *request, n *node) error {
		if n.ownFile() != nil {
			return nil
		}
		return r.byPathOrHandle(n, func(at vfs.At, f *vfs.File) error {
			list, err := r.m.tree.Listxattr(r, r.caller, at, f)
			size = uint32(len(list))
			if err == nil && len(dest) < len(list) {
				return syscall.ERANGE
			}
			copy(dest, list)
			return err
		})
	})
	return size, status
}

// SetXAttr sets one extended attribute.
func (fs *fileSystem) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, attr string, data []byte) fuse.Status {
	return fs.changeNode(cancel, &in.InHeader, names.OpSetxattr, func(r *request, n *node) error {
		change := n.beginChange()
		defer n.endChange(change, vfs.Touch{})
		return r.byPathOrHandle(n, func(at vfs.At, f *vfs.File) error {
			return r.m.tree.Setxattr(r, r.caller, at, f, attr, data, int(in.Flags))
		})
	})
}

// RemoveXAttr removes one extended attribute.
func (fs *fileSystem) RemoveXAttr(cancel <-chan struct{}, header *fuse.InHeader, attr string) fuse.Status {
	return fs.changeNode(cancel, header, names.OpRemovexattr, func(r *request, n *node) error {
		return r.byPathOrHandle(n, func(at vfs.At, f *vfs.File) error {
			return r.m.tree.Removexattr(r, r.caller, at, f, attr)
		})
	})
}
