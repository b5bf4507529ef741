package mount

import (
	"math"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
)

// With --locks host the kernel sends locks to us, each with a number for its
// owner. Every owner gets an open file description of its own on the source, so
// that owners exclude one another and the host's processes, and closing the
// description clears the owner's locks. The kernel asks us to clear POSIX locks in FLUSH (they
// end when their process closes any descriptor of the file), and flock locks in RELEASE (they end
// with the open file). The kernel does not ask us to clear locks of an open file description
// (F_OFD_SETLK): fuse_setlk drops unlocks at close. So an owner's description is also closed
// with the last handle that the owner has locked through.

// lockOwner identifies an owner of locks. The numbers of POSIX and flock owners are drawn from one
// range, so a number alone does not identify an owner.
type lockOwner struct {
	owner uint64
	flock bool
}

// lockHolder is an owner's description and the handles that the owner has locked through.
type lockHolder struct {
	file *vfs.File
	via  map[*handle]struct{}
}

// locker returns a function that finds the owner's description, or opens one if create is set.
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

// unlockHandle closes the descriptions of owners that have locked through no handle but h.
func (e *nodeExtra) unlockHandle(h *handle) {
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

// GetLk returns a lock that conflicts with the lock in the request.
func (fs *fileSystem) GetLk(cancel <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	return fs.onLock(cancel, in, true, func(r *request, f *vfs.File, l vfs.Lock, by vfs.Locker) error {
		got, err := f.Conflict(r, r.caller, l, by)
		if err != nil {
			return err
		}
		out.Lk = fuse.FileLock{Start: uint64(got.Start), End: math.MaxInt64, Typ: uint32(got.Type)}
		if got.Len > 0 {
			out.Lk.End = uint64(got.Start + got.Len - 1)
		}
		if got.Pid > 0 {
			out.Lk.Pid = uint32(got.Pid)
		}
		return nil
	})
}

// SetLk sets or clears a lock without waiting.
func (fs *fileSystem) SetLk(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return fs.onLock(cancel, in, in.Lk.Typ != unix.F_UNLCK, func(r *request, f *vfs.File, l vfs.Lock, by vfs.Locker) error {
		return f.TryLock(r, r.caller, l, by)
	})
}

// SetLkw waits for the lock. A signal ends the waiting (fcntl(2), flock(2)).
func (fs *fileSystem) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return fs.onLock(cancel, in, in.Lk.Typ != unix.F_UNLCK, func(r *request, f *vfs.File, l vfs.Lock, by vfs.Locker) error {
		return f.WaitLock(r, cancel, r.caller, l, by)
	})
}

// onLock does what answer does, for a request about a lock. If create is set, an owner without a
// description gets one.
func (fs *fileSystem) onLock(cancel <-chan struct{}, in *fuse.LkIn, create bool, do func(r *request, f *vfs.File, l vfs.Lock, by vfs.Locker) error) fuse.Status {
	return fs.answer(cancel, &in.InHeader, func(r *request) error {
		n, err := r.resolveFile(in.NodeId)
		if err != nil {
			return err
		}
		h := fs.files.get(in.Fh)
		if h == nil {
			return syscall.ENOTSUP
		}
		l := lockOf(&in.Lk, in.LkFlags)
		return do(r, h.file, l, n.locker(h, lockOwner{in.Owner, l.Flock}, create))
	})
}
