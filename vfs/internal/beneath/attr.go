package beneath

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// Chmod changes the mode of a file. For Chmod, Chown and Utimes the descriptor may be O_PATH.
func Chmod(l *guard.Lease, w Changeable, mode uint32) error {
	fd := w.FD()
	if st := w.stage(); st != nil && mode&0o700 != 0o700 && unix.Geteuid() != 0 && st.isTop(fd) {
		// The owner's commands run as the daemon's user. They need access to the upper directory.
		mode |= 0o700
	}
	err := w.change(l, func() error { return unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH) })
	if err == unix.ENOSYS || err == unix.EOPNOTSUPP || err == unix.EINVAL {
		// fchmodat2 is Linux 6.6.
		return w.change(l, func() error { return unix.Chmod(procPath(fd), mode) })
	}
	return err
}

// isTop reports whether a file is the top of the upper directory.
func (st *staged) isTop(fd int) bool {
	info, err := stat(fd)
	top, terr := stat(st.up)
	return err == nil && terr == nil && info.ID() == top.ID()
}

// Chown changes owner and group; an id of -1 stays as it is.
func Chown(l *guard.Lease, w Changeable, uid, gid int) error {
	fd := w.FD()
	return w.change(l, func() error {
		return unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	})
}

// Stamp says what to set a time to: a given time, the file system's current time, or no change.
type Stamp struct{ ts unix.Timespec }

// Now and Omit are UTIME_NOW and UTIME_OMIT of utimensat(2).
var (
	Now  = Stamp{unix.Timespec{Nsec: unix.UTIME_NOW}}
	Omit = Stamp{unix.Timespec{Nsec: unix.UTIME_OMIT}}
)

// At returns the Stamp of a given time, with nanosecond precision.
func At(t time.Time) Stamp {
	return Stamp{unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}}
}

// Utimes sets access and modification time.
func Utimes(l *guard.Lease, w Changeable, atime, mtime Stamp) error {
	fd := w.FD()
	ts := []unix.Timespec{atime.ts, mtime.ts}
	err := w.change(l, func() error {
		return unix.UtimesNanoAt(fd, "", ts, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW)
	})
	if err == unix.EINVAL {
		// AT_EMPTY_PATH needs Linux 5.8. The name in /proc leads to the file of fd. If that file is
		// a link, the call does not follow it.
		return w.change(l, func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, procPath(fd), ts, 0) })
	}
	return err
}

// Truncate sets the length of an open file.
func Truncate(l *guard.Lease, w Changeable, size int64) error {
	err := w.write(l, func() error { return unix.Ftruncate(w.FD(), size) })
	if st := stageOf(l); st != nil {
		st.store.Freed()
	}
	return err
}

// TruncatePath sets the length of a regular file whose descriptor is O_PATH.
func TruncatePath(l *guard.Lease, w Changeable, size int64) error {
	return w.whileCurrent(l, func() error {
		fd, err := Reopen(w.FD(), unix.O_WRONLY)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return Truncate(l, changeable(fd), size)
	})
}

// Getxattr reads one attribute. For all calls about attributes fd may be O_PATH. fgetxattr(2)
// refuses such descriptors, so the calls use the name of fd in /proc/self/fd.
func Getxattr(fd int, name string, buf []byte) (n int, err error) {
	err = retry(func() (err error) { n, err = unix.Getxattr(procPath(fd), name, buf); return err })
	return n, err
}

// Listxattr returns the names, each ending in NUL.
func Listxattr(fd int) ([]byte, error) {
	for size := 1024; ; size *= 4 {
		buf := make([]byte, size)
		var n int
		err := retry(func() (err error) { n, err = unix.Listxattr(procPath(fd), buf); return err })
		if err == unix.ERANGE && size < 1<<17 {
			continue
		}
		if err != nil {
			return nil, err
		}
		return buf[:n], nil
	}
}

// Setxattr sets one attribute; flags are those of setxattr(2).
func Setxattr(l *guard.Lease, w Changeable, name string, value []byte, flags int) error {
	return w.change(l, func() error { return unix.Setxattr(procPath(w.FD()), name, value, flags) })
}

// Removexattr removes one attribute.
func Removexattr(l *guard.Lease, w Changeable, name string) error {
	return w.change(l, func() error { return unix.Removexattr(procPath(w.FD()), name) })
}

// Statfs describes the file system on which fd lies. For a staged root it describes the source's
// file system, but reports no more free space than the store has left.
func Statfs(l *guard.Lease, fd int) (unix.Statfs_t, error) {
	st := stageOf(l)
	if st == nil {
		return statfs(fd)
	}
	low, err := statfs(st.fd)
	if err != nil {
		return low, err
	}
	up, err := statfs(st.up)
	room := uint64(min(int64(up.Bavail)*up.Bsize, st.store.Room()) / low.Bsize)
	low.Bavail, low.Bfree = min(low.Bavail, room), min(low.Bfree, room)
	return low, err
}

func statfs(fd int) (unix.Statfs_t, error) {
	var st unix.Statfs_t
	err := retry(func() error { return unix.Fstatfs(fd, &st) })
	return st, err
}

// HasDefaultACL reports whether a directory has a default ACL.
func HasDefaultACL(d Dir) bool {
	_, err := Getxattr(d.fd, "system.posix_acl_default", nil)
	return err == nil
}

// CopyXattr copies one attribute; one that has vanished meanwhile is left out.
func CopyXattr(l *guard.Lease, from int, to Changeable, name string) error {
	for size := 256; ; size *= 8 {
		buf := make([]byte, size)
		n, err := Getxattr(from, name, buf)
		switch err {
		case nil:
			return Setxattr(l, to, name, buf[:n], 0)
		case unix.ENODATA:
			return nil
		case unix.ERANGE:
			if size <= 1<<17 {
				continue
			}
		}
		return err
	}
}
