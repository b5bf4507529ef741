package beneath

import (
	"context"
	"crypto/sha256"
	"io"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// copyContents copies a regular file and returns the hash of the contents, or zero if the file is
// larger than maxHashed. from is a reference (O_PATH) to the file to copy; to is open for reading and
// writing. The error is ESTALE if the file was changed meanwhile.
func copyContents(l *guard.Lease, from, to int, info *Info) (sum [sha256.Size]byte, err error) {
	in, err := reopenQuietly(from)
	if err != nil {
		return sum, err
	}
	defer unix.Close(in)
	if err := change(l, func() error { return unix.IoctlFileClone(to, in) }); err != nil {
		if err := copyData(l, in, to, info.Size); err != nil {
			return sum, err
		}
	}
	now, err := stat(in)
	if err == nil && (now.Size != info.Size || now.Mtime != info.Mtime || now.Ctime != info.Ctime) {
		err = unix.ESTALE
	}
	if err == nil && info.Size <= maxHashed {
		sum, err = hashOf(to)
	}
	return sum, err
}

// hashOf returns the hash of an open file's contents.
func hashOf(fd int) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	_, err = io.Copy(h, io.NewSectionReader(readerAt(fd), 0, 1<<62))
	h.Sum(sum[:0])
	return sum, err
}

// readerAt reads an open file.
type readerAt int

func (r readerAt) ReadAt(buf []byte, off int64) (int, error) {
	n, err := Pread(int(r), buf, off)
	if err == nil && n < len(buf) {
		err = io.EOF
	}
	return n, err
}

// copyData copies size bytes, and leaves the holes out.
func copyData(l *guard.Lease, in, to int, size int64) error {
	if err := change(l, func() error { return unix.Ftruncate(to, size) }); err != nil {
		return err
	}
	buf := []byte(nil)
	for off := int64(0); off < size; {
		if l != nil {
			if err := l.Life().Ended(context.Background()); err != nil {
				return err
			}
		}
		from, end := dataAt(in, off, size)
		if from >= size {
			return nil
		}
		want := int(min(copyPiece, end-from))
		n, err := copyRange(l, in, from, changeable(to), from, want)
		if err == unix.EXDEV || err == unix.EINVAL || err == unix.EOPNOTSUPP || err == unix.ENOSYS { //nolint:errorlint // bare errnos
			if buf == nil {
				buf = make([]byte, min(copyPiece, size))
			}
			if n, err = Pread(in, buf[:min(want, len(buf))], from); err == nil {
				_, err = Pwritev(l, changeable(to), [][]byte{buf[:n]}, from, false)
			}
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return nil // the file has become shorter: copyContents notices that afterwards
		}
		off = from + int64(n)
	}
	return nil
}

// dataAt returns the next piece of a file, from off on, that is no hole.
func dataAt(fd int, off, size int64) (from, end int64) {
	from, err := Lseek(fd, off, unix.SEEK_DATA)
	if err == unix.ENXIO { //nolint:errorlint // bare errno
		return size, size
	}
	if err != nil {
		from = off // the file system does not report holes
	}
	if end, err = Lseek(fd, from, unix.SEEK_HOLE); err != nil {
		end = size
	}
	return from, min(end, size)
}
