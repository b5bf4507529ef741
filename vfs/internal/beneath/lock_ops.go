package beneath

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// OFDLock sets or clears an open-file-description lock (F_OFD_SETLK), which
// conflicts with POSIX locks of the host's processes; it does not wait.
func OFDLock(l *guard.Lease, fd int, typ int16, start, length int64) error {
	lk := unix.Flock_t{Type: typ, Whence: unix.SEEK_SET, Start: start, Len: length}
	return change(l, func() error { return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lk) })
}

// OFDConflict returns the lock that would conflict, or F_UNLCK.
func OFDConflict(fd int, typ int16, start, length int64) (unix.Flock_t, error) {
	lk := unix.Flock_t{Type: typ, Whence: unix.SEEK_SET, Start: start, Len: length}
	err := retry(func() error { return unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lk) })
	return lk, err
}

// Flock is flock(2) without waiting; how is LOCK_SH, LOCK_EX or LOCK_UN.
func Flock(l *guard.Lease, fd, how int) error {
	return change(l, func() error { return unix.Flock(fd, how|unix.LOCK_NB) })
}
