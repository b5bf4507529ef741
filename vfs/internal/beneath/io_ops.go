package beneath

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// Close closes a descriptor that this package opened.
func Close(fd int) { _ = unix.Close(fd) }

// Pread reads until buf is full, the file ends, or an error.
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
func Pwritev(l *guard.Lease, fd int, bufs [][]byte, off int64, appending bool) (int, error) {
	flags := 0
	if appending {
		flags = unix.RWF_APPEND
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
		err := change(l, func() (err error) { n, err = unix.Pwritev2(fd, bufs, off+int64(total), flags); return err })
		if err != nil {
			return total, err
		}
		total += n
		bufs = advance(bufs, n)
	}
}

// advance drops the first n bytes without changing the caller's slices.
func advance(bufs [][]byte, n int) [][]byte {
	for n > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		rest := append([][]byte{bufs[0][n:]}, bufs[1:]...)
		return rest
	}
	return bufs
}

// Fsync writes a file's data to the disk, and its attributes unless dataOnly.
func Fsync(l *guard.Lease, fd int, dataOnly bool) error {
	return change(l, func() error {
		if dataOnly {
			return unix.Fdatasync(fd)
		}
		return unix.Fsync(fd)
	})
}

// Fallocate is fallocate(2).
func Fallocate(l *guard.Lease, fd int, mode uint32, off, length int64) error {
	return change(l, func() error { return unix.Fallocate(fd, mode, off, length) })
}

// Lseek finds data and holes (SEEK_DATA, SEEK_HOLE).
func Lseek(fd int, off int64, whence int) (int64, error) { return unix.Seek(fd, off, whence) }

// CopyFileRange is copy_file_range(2).
func CopyFileRange(l *guard.Lease, in int, offIn int64, out int, offOut int64, n int) (int, error) {
	var done int
	err := change(l, func() (err error) {
		done, err = unix.CopyFileRange(in, &offIn, out, &offOut, n, 0)
		return err
	})
	return done, err
}

// OpenDirFD opens a directory for reading its entries.
func OpenDirFD(d Dir) (int, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(d.FD, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// OpenChild takes a reference (O_PATH) to one name of a directory, not following
// a link.
func OpenChild(d Dir, base string) (int, error) {
	return open(d.FD, base, unix.O_PATH|unix.O_NOFOLLOW, d.resolve())
}

// Getdents reads directory entries in the kernel's form.
func Getdents(fd int, buf []byte) (n int, err error) {
	err = retry(func() (err error) { n, err = unix.Getdents(fd, buf); return err })
	return n, err
}

// SeekDir sets the position in a directory to an offset that an entry carried.
func SeekDir(fd int, off int64) error {
	_, err := unix.Seek(fd, off, unix.SEEK_SET)
	return err
}
