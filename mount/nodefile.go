package mount

import (
	"context"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// handle is an open file as the kernel knows it. It has no PassthroughFd, and
// must never have: what is passed through cannot be revoked.
type handle struct {
	node *node
	file *vfs.File
}

func (n *node) newHandle(f *vfs.File) *handle {
	h := &handle{node: n, file: f}
	e := n.extra()
	e.mu.Lock()
	e.open = append(e.open, h)
	e.mu.Unlock()
	return h
}

// Release implements fs.FileReleaser: the last descriptor and mapping are gone.
func (h *handle) Release(ctx context.Context) syscall.Errno {
	if f := h.node.view.m.raw.flights.of(ctx); f != nil && f.unlock {
		h.node.unlockAll(lockOwner{f.lockOwner, true})
	}
	e := h.node.extra()
	e.mu.Lock()
	e.open = slices.DeleteFunc(e.open, func(o *handle) bool { return o == h })
	e.mu.Unlock()
	e.released(h)
	h.file.Close()
	return 0
}

// openForWriting reports whether the node may have a writable mapping: those
// keep their file open.
func (n *node) openForWriting() bool {
	if n.view.m.opt.Level == Max && !n.view.m.opt.ReadOnly && n.isRegular() {
		return true // the kernel does not say who opened it how
	}
	e := n.ext.Load()
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.open, func(h *handle) bool { return h.file.Writable() })
}

// anyFile returns an open file of the node, a writable one if there is one; if
// there is none, the reference kept of a file without a name, or nil.
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
	if found == nil {
		k := &n.view.m.keptFiles
		k.mu.Lock()
		found = e.keep
		k.mu.Unlock()
	}
	if found == nil {
		found = e.ref.Load()
	}
	return found
}

// file returns what a request with handle fh works on.
func (n *node) file(ctx context.Context, c guard.Caller, fh fs.FileHandle, write bool) (*vfs.File, syscall.Errno) {
	if h, ok := fh.(*handle); ok {
		return h.file, 0
	}
	return n.kept(ctx, c, write)
}

// openFlags tell the kernel what it may do with the opened file.
func (n *node) openFlags() uint32 {
	var flags uint32
	if n.view.m.opt.Level != Strict && n.parentWatched() {
		flags |= fuse.FOPEN_KEEP_CACHE
	}
	if n.view.m.opt.Locks == LocksLocal {
		// Without it every close(2) is a round trip for nothing: locks are
		// the kernel's own and writes are through already.
		flags |= fuse.FOPEN_NOFLUSH
	}
	return flags
}

// Open opens the file.
func (n *node) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if n.view.m.opt.Level == Max {
		return nil, 0, syscall.ENOSYS // the kernel then stops asking, for the whole mount
	}
	ctx, _, c := n.enter(ctx)
	f, err := n.openAnyhow(ctx, c, int(flags))
	if err != nil {
		return nil, 0, names.Errno(err)
	}
	return n.newHandle(f), n.openFlags() | noPages(f), 0
}

// noPages keeps the kernel from making pages of a file through a descriptor that
// must not overwrite any: writes go straight to the gate, and a shared mapping is
// refused (ENODEV) instead of every store to it.
func noPages(f *vfs.File) uint32 {
	if f.NoOverwriting() {
		return fuse.FOPEN_DIRECT_IO
	}
	return 0
}

// Create makes a file and opens it.
func (n *node) Create(ctx context.Context, name string, flags uint32, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	ctx, fl, c := n.enter(ctx)
	at, ok := n.place()
	if !ok {
		return nil, nil, 0, n.gone()
	}
	watched := n.watched()
	n.own(name, true)
	f, info, created, err := n.tree().Create(ctx, c, at, name, int(flags), mode)
	if err != nil || !created {
		n.disown(name, true)
	}
	if err != nil {
		return nil, nil, 0, names.Errno(err)
	}
	return n.opened(fl, f, &info, created, watched, out)
}

// Tmpfile makes a file without a name and opens it.
func (n *node) Tmpfile(ctx context.Context, flags uint32, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	ctx, fl, c := n.enter(ctx)
	at, ok := n.place()
	if !ok {
		return nil, nil, 0, n.gone()
	}
	f, info, err := n.tree().Tmpfile(ctx, c, at, int(flags), mode)
	if err != nil {
		return nil, nil, 0, names.Errno(err)
	}
	return n.opened(fl, f, &info, true, false, out)
}

func (n *node) opened(fl *flight, f *vfs.File, info *vfs.Info, created, watched bool, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	child := n.child(fl, info, created)
	cn := child.Operations().(*node)
	cn.fillEntryIn(out, info, watched)
	h := cn.newHandle(f)
	flags := noPages(f)
	if n.view.m.opt.Level != Strict && watched {
		flags |= fuse.FOPEN_KEEP_CACHE
	}
	if n.view.m.opt.Locks == LocksLocal {
		flags |= fuse.FOPEN_NOFLUSH
	}
	return child, h, flags, 0
}

// Read reads through the gate into the reply's buffer.
func (n *node) Read(ctx context.Context, fh fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	ctx, _, c := n.enter(ctx)
	f, errno := n.file(ctx, c, fh, false)
	if errno != 0 {
		return nil, errno
	}
	sz, err := f.ReadAt(ctx, c, dest, off)
	if err != nil {
		return nil, names.Errno(err)
	}
	return fuse.ReadResultData(dest[:sz]), 0
}

// Writev writes the request's pages.
func (n *node) Writev(ctx context.Context, fh fs.FileHandle, data [][]byte, off int64) (uint32, syscall.Errno) {
	ctx, fl, c := n.enter(ctx)
	f, errno := n.file(ctx, c, fh, true)
	if errno != 0 {
		return 0, errno
	}
	if fl != nil && fl.writeCache && n.isOrphan() {
		return 0, syscall.EROFS // stored, it may be, while the root was read-only
	}
	var touch vfs.Touch
	own := n.writing()
	w := vfs.Writing{Touch: touchFor(own, &touch)}
	if fl != nil {
		w.Cached, w.KillPriv = fl.writeCache, fl.killPriv
	}
	sz, err := f.WriteAt(ctx, c, data, off, w)
	n.written(own, touch)
	return uint32(sz), names.Errno(err)
}

// touchFor asks for change times only where somebody wants to know.
func touchFor(own *ownChange, t *vfs.Touch) *vfs.Touch {
	if own == nil {
		return nil
	}
	return t
}

// Write is Writev for one piece.
func (n *node) Write(ctx context.Context, fh fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	return n.Writev(ctx, fh, [][]byte{data}, off)
}

// Flush answers close(2), when it is asked at all.
func (n *node) Flush(ctx context.Context, fh fs.FileHandle) syscall.Errno {
	ctx, fl, c := n.enter(ctx)
	h, ok := fh.(*handle)
	if !ok {
		return syscall.ENOSYS
	}
	if fl != nil {
		n.unlockAll(lockOwner{fl.lockOwner, false})
	}
	return names.Errno(h.file.Flush(ctx, c))
}

// Fsync writes a file, or a directory, to the disk.
func (n *node) Fsync(ctx context.Context, fh fs.FileHandle, flags uint32) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	f, errno := n.file(ctx, c, fh, false)
	if errno != 0 {
		return errno
	}
	return names.Errno(f.Fsync(ctx, c, flags&1 != 0))
}

// Allocate is fallocate(2).
func (n *node) Allocate(ctx context.Context, fh fs.FileHandle, off uint64, size uint64, mode uint32) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	f, errno := n.file(ctx, c, fh, true)
	if errno != 0 {
		return errno
	}
	own := n.writing()
	err := f.Allocate(ctx, c, mode, int64(off), int64(size))
	n.written(own, vfs.Touch{})
	return names.Errno(err)
}

// Lseek finds data and holes.
func (n *node) Lseek(ctx context.Context, fh fs.FileHandle, off uint64, whence uint32) (uint64, syscall.Errno) {
	ctx, _, c := n.enter(ctx)
	f, errno := n.file(ctx, c, fh, false)
	if errno != 0 {
		return 0, errno
	}
	pos, err := f.Lseek(ctx, c, int64(off), int(whence))
	return uint64(pos), names.Errno(err)
}

// CopyFileRange copies within the source, where both files are of one root.
func (n *node) CopyFileRange(ctx context.Context, fhIn fs.FileHandle, offIn uint64, out *fs.Inode, fhOut fs.FileHandle, offOut uint64, length uint64, _ uint64) (uint32, syscall.Errno) {
	ctx, _, c := n.enter(ctx)
	to, ok := out.Operations().(*node)
	if !ok || to.view != n.view {
		return 0, syscall.EXDEV
	}
	src, errno := n.file(ctx, c, fhIn, false)
	if errno != 0 {
		return 0, errno
	}
	dst, errno := to.file(ctx, c, fhOut, true)
	if errno != 0 {
		return 0, errno
	}
	own := to.writing()
	// The answer is 32 bits wide.
	sz, err := src.CopyTo(ctx, c, int64(offIn), dst, int64(offOut), int64(min(length, 1<<30)))
	to.written(own, vfs.Touch{})
	return uint32(sz), names.Errno(err)
}

// isRegular reports whether the node is a regular file.
func (n *node) isRegular() bool { return typeBits(n.Mode()) == unix.S_IFREG }
