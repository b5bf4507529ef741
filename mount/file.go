package mount

import (
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// handle is a file that the kernel has opened. Its descriptor is never passed through to the
// kernel: a passed-through descriptor cannot be revoked.
type handle struct {
	node *node
	file *vfs.File
}

// newHandle creates a handle and returns its number.
func (fs *fileSystem) newHandle(n *node, f *vfs.File) uint64 {
	h := &handle{node: n, file: f}
	e := n.extra()
	e.mu.Lock()
	e.open = append(e.open, h)
	e.mu.Unlock()
	return fs.files.add(h)
}

// Release closes a handle: the last descriptor and mapping are gone.
func (fs *fileSystem) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	h := fs.files.remove(in.Fh)
	if h == nil {
		return
	}
	if in.ReleaseFlags&fuse.FUSE_RELEASE_FLOCK_UNLOCK != 0 {
		h.node.unlockAll(lockOwner{in.LockOwner, true})
	}
	e := h.node.extra()
	e.mu.Lock()
	e.open = slices.DeleteFunc(e.open, func(o *handle) bool { return o == h })
	e.mu.Unlock()
	e.unlockHandle(h)
	h.file.Close()
}

// isOpenForWriting reports whether the file may be open for writing, and so may have a
// writable mapping: a mapping keeps its file open.
func (n *node) isOpenForWriting() bool {
	if n.view.m.opt.Level == Max && !n.view.m.opt.ReadOnly && n.isRegular() {
		return true // the kernel does not report opens
	}
	e := n.ext.Load()
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.open, func(h *handle) bool { return h.file.Writable() })
}

// anyOpen returns an open file of the node, or the directory if it is open, or nil.
func (n *node) anyOpen() *vfs.File {
	e := n.ext.Load()
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case len(e.open) > 0:
		return e.open[0].file
	case len(e.openDirs) > 0:
		return e.openDirs[0].dir.File()
	}
	return nil
}

// anyFile returns an open file or directory of the node, a writable file if there is one.
// Without any it returns the node's cached descriptor (level Max), else the reference to a
// file without a name, else nil.
func (n *node) anyFile() *vfs.File {
	e := n.ext.Load()
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var found *vfs.File
	for _, h := range e.open {
		if found == nil || h.file.Writable() {
			found = h.file
		}
	}
	if found == nil && len(e.openDirs) > 0 {
		found = e.openDirs[0].dir.File()
	}
	if found == nil {
		k := &n.view.m.fileCache
		k.mu.Lock()
		found = e.cached
		k.mu.Unlock()
	}
	if found == nil {
		found = e.ref.Load()
	}
	return found
}

// onFile does what onNode does, for a request with a handle. At level Max the kernel opens existing
// files by itself, without a handle, and the node has a descriptor of its own.
func (fs *fileSystem) onFile(cancel <-chan struct{}, header *fuse.InHeader, fh uint64, write bool, do func(r *request, n *node, f *vfs.File) error) fuse.Status {
	return fs.answer(cancel, header, func(r *request) error {
		n, f, err := r.openFile(header.NodeId, fh, write)
		if err != nil {
			return err
		}
		return do(r, n, f)
	})
}

// openFile returns the node and the open file that a request with a handle is about.
func (r *request) openFile(id, fh uint64, write bool) (*node, *vfs.File, error) {
	n, err := r.resolveFile(id)
	if err != nil {
		return nil, nil, err
	}
	if h := r.fs.files.get(fh); h != nil {
		return n, h.file, nil
	}
	if r.m.opt.Level != Max {
		return nil, nil, syscall.EBADF
	}
	f, err := r.cachedFile(n, write)
	return n, f, err
}

// openFlags returns what the kernel may do with an opened file. watched reports whether the
// source's watch will report changes of the file.
func (m *Mount) openFlags(watched bool) uint32 {
	var flags uint32
	if m.opt.Level != Strict && watched {
		flags |= fuse.FOPEN_KEEP_CACHE
	}
	if m.opt.Locks == LocksLocal {
		// Otherwise every close(2) would send a useless FLUSH: the kernel keeps the locks
		// itself, and writes have reached the source already.
		flags |= fuse.FOPEN_NOFLUSH
	}
	return flags
}

// noPages returns the flag that keeps the kernel from caching pages, for a file that was opened
// to append or without the right to overwrite data. For other files it returns 0. With the flag
// each write goes straight to the gate, and the kernel refuses a shared mapping (ENODEV), whose
// stores the gate could not check. With pages the kernel would split a write(2) at page
// boundaries, and what the host appends meanwhile would land between the parts.
func noPages(f *vfs.File) uint32 {
	if f.NoOverwriting() || f.Writable() && f.Appending() {
		return fuse.FOPEN_DIRECT_IO
	}
	return 0
}

// Open opens a file.
func (fs *fileSystem) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return fs.answer(cancel, &in.InHeader, func(r *request) error {
		if fs.m.opt.Level == Max {
			return syscall.ENOSYS // the kernel then stops asking, for the whole mount
		}
		n, err := r.resolveFile(in.NodeId)
		if err != nil {
			return err
		}
		f, err := r.openByPathOrHandle(n, int(in.Flags))
		if err != nil {
			return err
		}
		out.Fh = fs.newHandle(n, f)
		out.OpenFlags = noPages(f) | fs.m.openFlags(n.hasWatchedParent())
		return nil
	})
}

// Read reads through the gate into the reply's buffer.
func (fs *fileSystem) Read(cancel <-chan struct{}, in *fuse.ReadIn, dest []byte) (result fuse.ReadResult, status fuse.Status) {
	status = fs.onFile(cancel, &in.InHeader, in.Fh, false, func(r *request, _ *node, f *vfs.File) error {
		size, err := f.ReadAt(r, r.caller, dest, int64(in.Offset))
		if err == nil {
			result = fuse.ReadResultData(dest[:size])
		}
		return err
	})
	return result, status
}

// Write is Writev with one buffer.
func (fs *fileSystem) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return fs.Writev(cancel, in, [][]byte{data})
}

// Writev writes the buffers of a WRITE request.
func (fs *fileSystem) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	begin, cached := fs.begin, in.WriteFlags&fuse.WRITE_CACHE != 0
	if cached {
		begin = fs.beginUnobserved
	}
	r := begin(cancel, &in.InHeader)
	defer r.end()
	n, f, err := r.openFile(in.NodeId, in.Fh, true)
	switch {
	case err != nil:
		return 0, fuse.Status(names.Errno(err))
	case cached && n.isOrphan():
		return 0, fuse.EROFS // a mapping may have stored the data while the root was read-only
	}
	var touch vfs.Touch
	appends := vfs.AppendNever
	if in.Flags&unix.O_APPEND != 0 {
		appends = vfs.AppendAlways
	}
	change := n.beginChange()
	size, err := f.WriteAt(r, r.caller, data, int64(in.Offset), vfs.WriteAtOptions{
		Append: appends, Cached: cached, KillPriv: in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0, Touch: touchFor(change, &touch)})
	n.endChange(change, touch)
	return uint32(size), fuse.Status(names.Errno(err))
}

// touchFor returns t if change needs the change times of a write, else nil.
func touchFor(change *ownChange, t *vfs.Touch) *vfs.Touch {
	if change == nil {
		return nil
	}
	return t
}

// Flush answers the request that the kernel sends at close(2), unless FOPEN_NOFLUSH is set.
func (fs *fileSystem) Flush(cancel <-chan struct{}, in *fuse.FlushIn) fuse.Status {
	return fs.answer(cancel, &in.InHeader, func(r *request) error {
		n, err := r.resolveFile(in.NodeId)
		if err != nil {
			return err
		}
		h := fs.files.get(in.Fh)
		if h == nil {
			return syscall.ENOSYS
		}
		n.unlockAll(lockOwner{in.LockOwner, false})
		return h.file.Flush(r, r.caller)
	})
}

// Fsync writes a file to the disk.
func (fs *fileSystem) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return fs.onFile(cancel, &in.InHeader, in.Fh, false, func(r *request, _ *node, f *vfs.File) error {
		return f.Fsync(r, r.caller, in.FsyncFlags&1 != 0)
	})
}

// Fallocate changes the allocated space of a file, see fallocate(2).
func (fs *fileSystem) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	return fs.onFile(cancel, &in.InHeader, in.Fh, true, func(r *request, n *node, f *vfs.File) error {
		change := n.beginChange()
		defer n.endChange(change, vfs.Touch{})
		return f.Allocate(r, r.caller, in.Mode, int64(in.Offset), int64(in.Length))
	})
}

// Lseek finds data or a hole from an offset on.
func (fs *fileSystem) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	return fs.onFile(cancel, &in.InHeader, in.Fh, false, func(r *request, _ *node, f *vfs.File) error {
		at, err := f.Lseek(r, r.caller, int64(in.Offset), int(in.Whence))
		out.Offset = uint64(at)
		return err
	})
}

// CopyFileRange copies on the source, if both files are in the same root.
func (fs *fileSystem) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (copied uint32, status fuse.Status) {
	status = fs.onFile(cancel, &in.InHeader, in.FhIn, false, func(r *request, from *node, src *vfs.File) error {
		if to := r.m.nodes.find(in.NodeIdOut); to == nil || to.view != from.view {
			return syscall.EXDEV
		}
		to, dst, err := r.openFile(in.NodeIdOut, in.FhOut, true)
		if err != nil {
			return err
		}
		change := to.beginChange()
		defer to.endChange(change, vfs.Touch{})
		// The answer is 32 bits wide.
		size, err := src.CopyTo(r, r.caller, int64(in.OffIn), dst, int64(in.OffOut), int64(min(in.Len, 1<<30)))
		copied = uint32(size)
		return err
	})
	return copied, status
}

// Ioctl returns ENOTTY: an ioctl on the source could do anything.
func (fs *fileSystem) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return fuse.Status(syscall.ENOTTY)
}
