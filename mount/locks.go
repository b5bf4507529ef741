package mount

import (
	"context"
	"math"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// With --locks host the kernel sends locks to us, each with a number for its
// owner. Every owner gets an open file description of its own on the source, so
// that owners exclude one another and the host's processes, and closing the
// description clears the owner's locks. The kernel asks for that in FLUSH (POSIX
// locks end when their process closes the file, anywhere) and in RELEASE (flock
// ends with the open file). For an open file description's own locks it asks
// for nothing (fuse_setlk drops unlocks at close), so an owner also ends with
// the last handle it has locked through.

// lockOwner names an owner; POSIX and flock numbers are drawn from one range.
type lockOwner struct {
	owner uint64
	flock bool
}

// lockHolder is an owner's description and the handles it was used through.
type lockHolder struct {
	file *vfs.File
	via  map[*handle]struct{}
}

// lockFile returns the owner's description, opening it if create.
func (n *node) lockFile(ctx context.Context, c guard.Caller, fh fs.FileHandle, o lockOwner, create bool) (*vfs.File, syscall.Errno) {
	h, ok := fh.(*handle)
	if !ok {
		return nil, syscall.ENOTSUP
	}
	e := n.extra()
	e.mu.Lock()
	have := e.locks[o]
	if have != nil {
		have.via[h] = struct{}{}
	}
	e.mu.Unlock()
	if have != nil {
		return have.file, 0
	}
	if !create {
		return nil, 0
	}
	// A write lock takes a description open for writing; POSIX owners may come
	// with another descriptor next time, so the widest that can be had.
	f, err := h.file.Reopen(ctx, c, unix.O_RDWR, vfs.Reopening{Quiet: true})
	if err != nil {
		mode := unix.O_RDONLY
		if !h.file.Readable() {
			mode = unix.O_WRONLY
		}
		if f, err = h.file.Reopen(ctx, c, mode, vfs.Reopening{Quiet: true}); err != nil {
			return nil, names.Errno(err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if have := e.locks[o]; have != nil {
		f.Close()
		have.via[h] = struct{}{}
		return have.file, 0
	}
	if e.locks == nil {
		e.locks = map[lockOwner]*lockHolder{}
	}
	e.locks[o] = &lockHolder{file: f, via: map[*handle]struct{}{h: {}}}
	return f, 0
}

// released ends the owners that have locked through no other handle than h.
func (e *nodeExt) released(h *handle) {
	var ended []*vfs.File
	e.mu.Lock()
	for o, l := range e.locks {
		delete(l.via, h)
		if len(l.via) == 0 {
			ended = append(ended, l.file)
			delete(e.locks, o)
		}
	}
	e.mu.Unlock()
	for _, f := range ended {
		f.Close()
	}
}

// unlockAll closes an owner's description, and with it all its locks.
func (n *node) unlockAll(o lockOwner) {
	e := n.ext.Load()
	if e == nil {
		return
	}
	e.mu.Lock()
	l := e.locks[o]
	delete(e.locks, o)
	e.mu.Unlock()
	if l != nil {
		l.file.Close()
	}
}

// dropLocks closes every owner's description.
func (n *node) dropLocks() {
	e := n.ext.Load()
	if e == nil {
		return
	}
	e.mu.Lock()
	locks := e.locks
	e.locks = nil
	e.mu.Unlock()
	for _, l := range locks {
		l.file.Close()
	}
}

func lockOf(lk *fuse.FileLock, flags uint32) vfs.Lock {
	l := vfs.Lock{Type: int16(lk.Typ), Start: int64(lk.Start), Flock: flags&fuse.FUSE_LK_FLOCK != 0}
	if lk.End < math.MaxInt64 {
		l.Length = int64(lk.End-lk.Start) + 1
	}
	return l
}

// Getlk tells which lock stands in the way.
func (n *node) Getlk(ctx context.Context, fh fs.FileHandle, owner uint64, lk *fuse.FileLock, flags uint32, out *fuse.FileLock) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	f, errno := n.lockFile(ctx, c, fh, lockOwner{owner, flags&fuse.FUSE_LK_FLOCK != 0}, true)
	if errno != 0 {
		return errno
	}
	got, err := f.Conflict(ctx, c, lockOf(lk, flags))
	if err != nil {
		return names.Errno(err)
	}
	*out = fuse.FileLock{Start: uint64(got.Start), End: math.MaxInt64, Typ: uint32(got.Type)}
	if got.Len > 0 {
		out.End = uint64(got.Start + got.Len - 1)
	}
	if got.Pid > 0 {
		out.Pid = uint32(got.Pid)
	}
	return 0
}

// Setlk sets or clears a lock without waiting.
func (n *node) Setlk(ctx context.Context, fh fs.FileHandle, owner uint64, lk *fuse.FileLock, flags uint32) syscall.Errno {
	return n.setlk(ctx, fh, owner, lk, flags, (*vfs.File).TryLock)
}

// Setlkw waits for the lock.
func (n *node) Setlkw(ctx context.Context, fh fs.FileHandle, owner uint64, lk *fuse.FileLock, flags uint32) syscall.Errno {
	return n.setlk(ctx, fh, owner, lk, flags, (*vfs.File).WaitLock)
}

func (n *node) setlk(ctx context.Context, fh fs.FileHandle, owner uint64, lk *fuse.FileLock, flags uint32,
	lock func(*vfs.File, context.Context, guard.Caller, vfs.Lock) error,
) syscall.Errno {
	_, _, c := n.enter(ctx) // fcntl(2), flock(2): a signal ends the waiting
	l := lockOf(lk, flags)
	f, errno := n.lockFile(ctx, c, fh, lockOwner{owner, l.Flock}, l.Type != unix.F_UNLCK)
	if errno != 0 || f == nil {
		return errno
	}
	return names.Errno(lock(f, ctx, c, l))
}
