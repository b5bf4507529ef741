package vfs

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Lock is a request for a lock on an open file. Whole-file locks (Flock) are
// those of flock(2); the others are ranges as fcntl(2) has them.
type Lock struct {
	Type          int16 // unix.F_RDLCK, F_WRLCK or F_UNLCK
	Start, Length int64 // Length 0 reaches to the end of any file
	Flock         bool
}

// Locks are set in the source as locks of the open file description, so each File is one owner of
// locks. The kernel reports a conflict as EAGAIN.

// Locker returns the File whose open file description has an owner's locks. It may call open
// for a new File, within the operation that calls the Locker. If it returns neither a File nor
// an error, the owner has no locks. With a nil Locker, the locks are on the File itself.
type Locker func(open func() (*File, error)) (*File, error)

// TryLock sets or clears a lock, and does not wait.
func (f *File) TryLock(ctx context.Context, c guard.Caller, lk Lock, by Locker) error {
	req := guard.Request{Caller: c, Op: names.OpSetlk}
	_, err := f.onLockOwner(ctx, req, by, func(l *guard.Lease, own *File) (unix.Flock_t, error) {
		w, err := own.changeable(l)
		if err != nil {
			return unix.Flock_t{}, err
		}
		if lk.Flock {
			return unix.Flock_t{}, beneath.Flock(l, w, flockHow(lk.Type))
		}
		return unix.Flock_t{}, beneath.OFDLock(l, w, lk.Type, lk.Start, lk.Length)
	})
	return err
}

// onLockOwner runs g on the File that has the locks of an owner, see Locker.
func (f *File) onLockOwner(ctx context.Context, req guard.Request, by Locker, g func(l *guard.Lease, own *File) (unix.Flock_t, error)) (unix.Flock_t, error) {
	return onFile(ctx, f, req, func(l *guard.Lease, fd int) (unix.Flock_t, int64, error) {
		if by == nil {
			got, err := g(l, f)
			return got, 0, err
		}
		own, err := by(func() (*File, error) { return f.openForLocks(l, fd, req.Caller) })
		if own == nil || err != nil {
			return unix.Flock_t{Type: unix.F_UNLCK}, 0, err
		}
		if _, err := own.enter(); err != nil {
			return unix.Flock_t{}, 0, err
		}
		defer own.leave()
		got, err := g(l, own)
		return got, 0, err
	})
}

// openForLocks opens the file once more, with the widest access that the caller can have. A
// write lock needs a description that is open for writing, and a POSIX owner may ask for a
// write lock later, through another descriptor.
func (f *File) openForLocks(l *guard.Lease, fd int, c guard.Caller) (*File, error) {
	room, err := f.t.shares.reserve(c)
	if err != nil {
		return nil, err
	}
	defer room.release()
	modes := []int{unix.O_RDONLY, unix.O_WRONLY}
	if !f.Readable() {
		modes = []int{unix.O_WRONLY}
	}
	if l.Narrowest()&guard.Write != 0 && f.judgeNow(l, fd, rules.ToChange) == nil {
		modes = append([]int{unix.O_RDWR}, modes...)
	}
	for _, mode := range modes {
		again, openErr := f.h.Reopen(l, mode)
		if err = openErr; err != nil {
			continue
		}
		if err := again.KeepOrClose(); err != nil {
			return nil, err
		}
		own := newFile(f.t, l, again, f.at, c, mode, room)
		own.quiet = true
		return own, nil
	}
	return nil, err
}

// lockPollMin and lockPollMax are the shortest and longest pause between two tries of
// WaitLock. They are needed because a system call that waits for a lock cannot be cancelled,
// and would keep the root from ending.
const (
	lockPollMin = time.Millisecond
	lockPollMax = 50 * time.Millisecond
)

// WaitLock tries until it has the lock, interrupted is closed, ctx ends, or the root ends.
// Each try is an operation of its own: one operation that waited for the lock would keep
// the root's rights from being changed. interrupted does not end a try in progress, so a caller
// whose waiting was interrupted does not have the lock.
func (f *File) WaitLock(ctx context.Context, interrupted <-chan struct{}, c guard.Caller, lk Lock, by Locker) error {
	pause := lockPollMin
	for {
		err := f.TryLock(ctx, c, lk, by)
		if names.Reason(err) != names.Locked {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, lockPollMax)
			continue
		case <-interrupted:
		case <-ctx.Done():
		case <-f.Dead():
			timer.Stop()
			return &guard.Error{Op: names.OpSetlk, Path: f.at.Path, Kind: names.Revoked}
		}
		timer.Stop()
		return &guard.Error{Op: names.OpSetlk, Path: f.at.Path, Kind: names.IO, Err: unix.EINTR}
	}
}

// Conflict returns a lock that conflicts with lk. Its Type is F_UNLCK if there is none. Its PID
// is that of the holder, or -1 if an open file description holds the lock.
func (f *File) Conflict(ctx context.Context, c guard.Caller, lk Lock, by Locker) (unix.Flock_t, error) {
	req := guard.Request{Caller: c, Op: names.OpGetlk}
	return f.onLockOwner(ctx, req, by, func(_ *guard.Lease, own *File) (unix.Flock_t, error) {
		return beneath.OFDConflict(own.h.FD(), lk.Type, lk.Start, lk.Length)
	})
}

func flockHow(typ int16) int {
	switch typ {
	case unix.F_RDLCK:
		return unix.LOCK_SH
	case unix.F_WRLCK:
		return unix.LOCK_EX
	}
	return unix.LOCK_UN
}

// Locks are advisory: the kernel renames, removes and replaces a locked file. For peers locks
// do count: a peer cannot remove or replace a locked file.

// withFileLock runs f while no other program holds a lock on the file of that name, or returns
// Locked. Meanwhile it holds the lock of flock(2) itself. Only locks of regular files matter
// here. If the daemon may neither read nor write the file, it cannot look up the locks, and
// runs f.
func withFileLock(l *guard.Lease, d beneath.Dir, base string, old *Info, f func() error) error {
	if !old.IsRegular() {
		return f()
	}
	h, info, err := beneath.OpenFile(l, d, base, unix.O_RDONLY)
	if err == unix.EACCES { //nolint:errorlint // bare errno
		if h, info, err = beneath.OpenFile(l, d, base, unix.O_WRONLY); err == unix.EACCES { //nolint:errorlint // bare errno
			return f()
		}
	}
	if err != nil {
		return err
	}
	defer h.Close()
	if info.ID() != old.ID() {
		return &guard.Error{Kind: names.Conflict}
	}
	if err := lockFile(l, &h); err != nil {
		return err
	}
	return f()
}

// lockFile acquires the whole-file lock of flock(2) on an open file, for as long as the file is
// open, and checks that no program holds a lock of fcntl(2). On a file system without locks it
// does nothing and returns nil.
func lockFile(l *guard.Lease, h *beneath.Handle) error {
	if lk, err := beneath.OFDConflict(h.FD(), unix.F_WRLCK, 0, 0); err == nil && lk.Type != unix.F_UNLCK {
		return &guard.Error{Kind: names.Locked}
	}
	if !h.InPlace() {
		return nil // the file of a staged root's source, which is neither changed nor locked
	}
	w, err := h.Change(l)
	if err != nil {
		return err
	}
	if err := beneath.Flock(l, w, unix.LOCK_EX); err == unix.EAGAIN { //nolint:errorlint // bare errno
		return &guard.Error{Kind: names.Locked}
	}
	return nil
}
