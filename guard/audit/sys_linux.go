package audit

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Allocate promises that the file can grow to size bytes. It returns errors.ErrUnsupported if the
// file system cannot promise that.
func (f logFile) Allocate(size int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return errors.ErrUnsupported
	}
	return err
}

// Trim gives back the promised room beyond size bytes.
func (f logFile) Trim(size int64) error { return f.Truncate(size) }
