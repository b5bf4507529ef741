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

// locker finds the owner's description, and opens one if create.
func (n *node) locker(h *handle, o lockOwner, create bool) vfs.Locker {
	e := n.extra()
	find := func() *vfs.File {
		have := e.locks[o]
		if have == nil {
			return nil
		}
		have.via[h] = struct{}{}
		return have.file
	}
	return func(open func() (*vfs.File, error)) (*vfs.File, error) {
		e.mu.Lock()
		have := find()
		e.mu.Unlock()
		if have != nil || !create {
			return have, nil
		}
		f, err := open()
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if have := find(); have != nil {
			f.Close()
			return have, nil
		}
		if e.locks == nil {
			e.locks = map[lockOwner]*lockHolder{}
		}
		e.locks[o] = &lockHolder{file: f, via: map[*handle]struct{}{h: {}}}
		return f, nil
	}
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
	h, ok := fh.(*handle)
	if !ok {
		return syscall.ENOTSUP
	}
	by := n.locker(h, lockOwner{owner, flags&fuse.FUSE_LK_FLOCK != 0}, true)
	got, err := h.file.Conflict(ctx, c, lockOf(lk, flags), by)
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

// Setlkw waits for the lock. A signal ends the waiting (fcntl(2), flock(2)).
func (n *node) Setlkw(ctx context.Context, fh fs.FileHandle, owner uint64, lk *fuse.FileLock, flags uint32) syscall.Errno {
	interrupted := ctx.Done()
	return n.setlk(ctx, fh, owner, lk, flags, func(f *vfs.File, ctx context.Context, c guard.Caller, l vfs.Lock, by vfs.Locker) error {
		return f.WaitLock(ctx, interrupted, c, l, by)
	})
}

func (n *node) setlk(ctx context.Context, fh fs.FileHandle, owner uint64, lk *fuse.FileLock, flags uint32,
	lock func(*vfs.File, context.Context, guard.Caller, vfs.Lock, vfs.Locker) error,
) syscall.Errno {
	ctx, _, c := n.enter(ctx)
	l := lockOf(lk, flags)
	h, ok := fh.(*handle)
	if !ok {
		return syscall.ENOTSUP
	}
	return names.Errno(lock(h.file, ctx, c, l, n.locker(h, lockOwner{owner, l.Flock}, l.Type != unix.F_UNLCK)))
}
