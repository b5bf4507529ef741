package vfs

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Lock is a request for a lock on an open file. Whole-file locks (Flock) are
// those of flock(2); the others are ranges as fcntl(2) has them.
type Lock struct {
	Type          int16 // unix.F_RDLCK, F_WRLCK or F_UNLCK
	Start, Length int64 // Length 0 reaches to the end of any file
	Flock         bool
}

// Locks are forwarded as the locks of the open file description, so a File is
// one owner. The kernel reports a conflict as EAGAIN.

// TryLock sets or clears a lock without waiting.
func (f *File) TryLock(ctx context.Context, c guard.Caller, lk Lock) error {
	req := guard.Request{Caller: c, Op: names.OpSetlk}
	return f.simple(ctx, req, func(fd int) error {
		if lk.Flock {
			return beneath.Flock(fd, flockHow(lk.Type))
		}
		return beneath.OFDLock(fd, lk.Type, lk.Start, lk.Length)
	})
}

// lockPoll are the shortest and longest pause between two tries of WaitLock: a
// system call that waits for a lock could not be cancelled, and would keep the
// root from ending.
const (
	lockPollMin = time.Millisecond
	lockPollMax = 50 * time.Millisecond
)

// WaitLock tries until the lock is had, ctx ends, or the root does.
func (f *File) WaitLock(ctx context.Context, c guard.Caller, lk Lock) error {
	pause := lockPollMin
	for {
		err := f.TryLock(ctx, c, lk)
		if names.Reason(err) != names.Locked {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, lockPollMax)
		case <-ctx.Done():
			timer.Stop()
			return &guard.Error{Op: names.OpSetlk, Path: f.at.Path, Kind: names.IO, Err: unix.EINTR}
		case <-f.Dead():
			timer.Stop()
			return &guard.Error{Op: names.OpSetlk, Path: f.at.Path, Kind: names.Revoked}
		}
	}
}

// Conflict returns the lock that stands in the way of lk, Type F_UNLCK if none
// does. PID is the holder's, -1 when it is an open file description.
func (f *File) Conflict(ctx context.Context, c guard.Caller, lk Lock) (unix.Flock_t, error) {
	req := guard.Request{Caller: c, Op: names.OpGetlk}
	return onFile(ctx, f, req, func(_ *guard.Lease, fd int) (unix.Flock_t, int64, error) {
		got, err := beneath.OFDConflict(fd, lk.Type, lk.Start, lk.Length)
		return got, 0, err
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
