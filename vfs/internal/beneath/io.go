package beneath

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// Close closes a descriptor that this package opened.
func Close(fd int) { _ = unix.Close(fd) }

// OpenFile opens the regular file called base, and no file of another type. flags are those of
// open(2). O_TRUNC and O_CREAT have no effect: the caller must truncate or create the file.
// OpenFile checks the type before it opens the file, and then checks that it has opened the same
// file. If the name was exchanged in between, OpenFile opens the file by a reference (O_PATH),
// which cannot be exchanged. In a staged root, OpenFile tries again instead. O_NONBLOCK keeps the
// opening from hanging on a FIFO.
func OpenFile(l *guard.Lease, d Dir, base string, flags int) (Handle, Info, error) {
	if d.union != nil {
		return d.union.openFile(l, d, base, flags, nil)
	}
	fd, info, err := openFileOnce(l, d, base, flags)
	if err == unix.ESTALE { //nolint:errorlint // bare errno
		fd, info, err = openByReference(l, d, base, flags)
	}
	return Handle{fd: fd}, info, err
}

// OpenToEmpty is OpenFile for a file that is about to be truncated to nothing. In a staged root, a
// file of the source is copied up without its contents, and the error is ESTALE if the name has
// another file than expected; the zero identity accepts any file. In other roots expected is not
// used: the caller compares the identity of the opened file.
func OpenToEmpty(l *guard.Lease, d Dir, base string, flags int, expected rules.Identity) (Handle, Info, error) {
	if d.union == nil {
		return OpenFile(l, d, base, flags)
	}
	if err := checkRoom(); err != nil { // while the contents are still there
		return Handle{}, Info{}, err
	}
	return d.union.openFile(l, d, base, flags, &expected)
}

// openByReference is openFileOnce with one more system call, and no exchange of the name can
// make it fail.
func openByReference(l *guard.Lease, d Dir, base string, flags int) (fd int, info Info, err error) {
	ref, err := openChild(d, base)
	if err != nil {
		return -1, Info{}, err
	}
	defer unix.Close(ref)
	if info, err = Stat(l, ref); err == nil {
		err = openable(&info)
	}
	if err != nil {
		return -1, Info{}, err
	}
	fd, err = Reopen(ref, flags)
	return fd, info, err
}

func openFileOnce(l *guard.Lease, d Dir, base string, flags int) (int, Info, error) {
	before, err := StatIn(d, base)
	if err != nil {
		return -1, Info{}, err
	}
	if err := openable(&before); err != nil {
		return -1, Info{}, err
	}
	fd, err := openPlain(d, base, flags)
	if err != nil {
		return -1, Info{}, err
	}
	info, err := Stat(l, fd)
	if err == nil && info.ID() != before.ID() {
		err = unix.ESTALE
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, Info{}, err
	}
	return fd, info, nil
}

// openPlain opens a name with the same flags of resolution as the directories before it, because a
// file, too, can be a mount point (mount --bind FILE FILE).
func openPlain(d Dir, base string, flags int) (fd int, err error) {
	flags |= unix.O_NOFOLLOW | unix.O_NOCTTY | unix.O_NONBLOCK | unix.O_LARGEFILE
	return open(d.fd, base, uint64(flags), d.resolve())
}

func openable(i *Info) error {
	switch i.Type() {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return unix.EISDIR
	case unix.S_IFLNK:
		return unix.ELOOP
	}
	return unix.ENXIO
}

// Pread reads until buf is full, the file ends, or a read fails.
func Pread(fd int, buf []byte, off int64) (int, error) {
	total := 0
	for total < len(buf) {
		var n int
		err := retry(func() (err error) { n, err = unix.Pread(fd, buf[total:], off+int64(total)); return err })
		if err != nil {
			return total, err
		}
		if n == 0 {
			break
		}
		total += n
	}
	return total, nil
}

// Pwritev writes all of bufs at off; with appending, at the end of the file as
// it is at that moment, whatever off says (RWF_APPEND, Linux 4.16).
func Pwritev(l *guard.Lease, w Changeable, bufs [][]byte, off int64, appending bool) (int, error) {
	flags := 0
	if appending {
		flags = unix.RWF_APPEND
	}
	if err := charge(l, bufs); err != nil {
		return 0, err
	}
	total := 0
	for {
		for len(bufs) > 0 && len(bufs[0]) == 0 {
			bufs = bufs[1:]
		}
		if len(bufs) == 0 {
			return total, nil
		}
		var n int
		err := w.write(l, func() (err error) { n, err = unix.Pwritev2(w.FD(), bufs, off+int64(total), flags); return err })
		if err != nil {
			return total, err
		}
		total += n
		bufs = advance(bufs, n)
	}
}

// chargedStore returns the store to which an operation writes, nil if there is none: the root is not
// staged, or an apply writes to the source.
func chargedStore(l *guard.Lease) *draft.Store {
	st := stageOf(l)
	if st == nil || l.Op() == names.OpApply {
		return nil
	}
	return st.store
}

func charge(l *guard.Lease, bufs [][]byte) error {
	store := chargedStore(l)
	if store == nil {
		return nil
	}
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	return store.WillWrite(int64(n))
}

// advance drops the first n bytes without changing the caller's slices.
func advance(bufs [][]byte, n int) [][]byte {
	for n > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		return append([][]byte{bufs[0][n:]}, bufs[1:]...)
	}
	return bufs
}

// Fsync writes a file's data to the disk, and its attributes unless dataOnly.
func Fsync(l *guard.Lease, w Changeable, dataOnly bool) error {
	if st := stageOf(l); st != nil {
		if err := st.store.Sync(); err != nil {
			return err
		}
	}
	return change(l, func() error {
		if dataOnly {
			return unix.Fdatasync(w.FD())
		}
		return unix.Fsync(w.FD())
	})
}

// Fallocate is fallocate(2).
func Fallocate(l *guard.Lease, w Changeable, mode uint32, off, length int64) error {
	st := stageOf(l)
	if st != nil && mode&unix.FALLOC_FL_PUNCH_HOLE == 0 {
		if err := st.store.WillWrite(length); err != nil {
			return err
		}
	}
	err := w.write(l, func() error { return unix.Fallocate(w.FD(), mode, off, length) })
	if st != nil {
		st.store.Freed()
	}
	return err
}

// Lseek finds data and holes (SEEK_DATA, SEEK_HOLE).
func Lseek(fd int, off int64, whence int) (int64, error) { return unix.Seek(fd, off, whence) }

// CopyFileRange is copy_file_range(2).
func CopyFileRange(l *guard.Lease, in int, offIn int64, out Changeable, offOut int64, n int) (int, error) {
	if store := chargedStore(l); store != nil {
		info, err := stat(in)
		if err != nil {
			return 0, err
		}
		n = int(min(int64(n), max(0, info.Size-offIn))) // programs ask for more than there is
		if err := store.WillWrite(int64(n)); err != nil {
			return 0, err
		}
	}
	return copyRange(l, in, offIn, out, offOut, n)
}

// copyRange is CopyFileRange for bytes that are charged already.
func copyRange(l *guard.Lease, in int, offIn int64, out Changeable, offOut int64, n int) (int, error) {
	var done int
	err := out.write(l, func() (err error) {
		done, err = unix.CopyFileRange(in, &offIn, out.FD(), &offOut, n, 0)
		return err
	})
	return max(0, done), err // -1 with an errno would refund a byte that was never charged
}

// OFDLock sets or clears an open-file-description lock (F_OFD_SETLK), which
// conflicts with POSIX locks of the host's processes; it does not wait.
func OFDLock(l *guard.Lease, w Changeable, typ int16, start, length int64) error {
	lk := unix.Flock_t{Type: typ, Whence: unix.SEEK_SET, Start: start, Len: length}
	return change(l, func() error { return unix.FcntlFlock(uintptr(w.FD()), unix.F_OFD_SETLK, &lk) })
}

// OFDConflict returns a lock that conflicts with the given one. If there is none, the type of the
// result is F_UNLCK.
func OFDConflict(fd int, typ int16, start, length int64) (unix.Flock_t, error) {
	lk := unix.Flock_t{Type: typ, Whence: unix.SEEK_SET, Start: start, Len: length}
	err := retry(func() error { return unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lk) })
	return lk, err
}

// Flock is flock(2) without waiting; how is LOCK_SH, LOCK_EX or LOCK_UN.
func Flock(l *guard.Lease, w Changeable, how int) error {
	return change(l, func() error { return unix.Flock(w.FD(), how|unix.LOCK_NB) })
}
