//go:build linux

package posix

import (
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// testCopy: copy_file_range and sendfile, which copy inside the kernel.
func testCopy(s *scene) {
	s.sub("whole", func(s *scene) {
		data := strings.Repeat("0123456789abcdef", 20000)
		from, to := s.openLocal("from"), s.openLocal("to")
		_, err := unix.Pwrite(from, []byte(data), 0)
		s.must(err, "pwrite")
		for {
			n, err := unix.CopyFileRange(from, nil, to, nil, 1<<20, 0)
			s.must(err, "copy_file_range")
			if n == 0 {
				break
			}
		}
		s.yes(s.read("to") == data, "the copy differs")
		pos, err := unix.Seek(from, 0, io.SeekCurrent)
		s.ok(err, "seek")
		eq(s, pos, int64(len(data)), "position of the source")
		pos, err = unix.Seek(to, 0, io.SeekCurrent)
		s.ok(err, "seek")
		eq(s, pos, int64(len(data)), "position of the copy")
	})
	s.sub("offsets", func(s *scene) {
		from, to := s.openLocal("from"), s.openLocal("to")
		_, err := unix.Pwrite(from, []byte("0123456789"), 0)
		s.must(err, "pwrite")
		_, err = unix.Pwrite(to, []byte("abcdefghij"), 0)
		s.must(err, "pwrite")
		off, at := int64(2), int64(5)
		n, err := unix.CopyFileRange(from, &off, to, &at, 3, 0)
		s.ok(err, "copy_file_range")
		eq(s, n, 3, "copied")
		eq(s, off, 5, "offset in the source")
		eq(s, at, 8, "offset in the copy")
		eq(s, s.read("to"), "abcde234ij", "content")
		off, at = 8, 9
		n, err = unix.CopyFileRange(from, &off, to, &at, 100, 0)
		s.ok(err, "copy_file_range across the end")
		eq(s, n, 2, "copied")
		eq(s, s.read("to"), "abcde234i89", "content")
		off, at = 0, 6
		n, err = unix.CopyFileRange(from, &off, from, &at, 3, 0)
		s.ok(err, "copy_file_range within a file")
		eq(s, n, 3, "copied")
		eq(s, s.read("from"), "0123450129", "content")
	})
	s.sub("errors", func(s *scene) {
		from, to := s.openLocal("from"), s.openLocal("to")
		_, err := unix.Pwrite(from, []byte("0123456789"), 0)
		s.must(err, "pwrite")
		off, at := int64(0), int64(2)
		_, err = unix.CopyFileRange(from, &off, from, &at, 5, 0)
		s.errno(unix.EINVAL, err, "ranges that overlap")
		_, err = unix.CopyFileRange(from, nil, to, nil, 5, 1)
		s.errno(unix.EINVAL, err, "a flag that does not exist")
		ro, err := unix.Open(s.path("to"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		s.must(err, "open")
		defer unix.Close(ro)
		_, err = unix.CopyFileRange(from, nil, ro, nil, 5, 0)
		s.errno(unix.EBADF, err, "to a descriptor for reading")
		ap, err := unix.Open(s.path("to"), unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0)
		s.must(err, "open")
		defer unix.Close(ap)
		_, err = unix.CopyFileRange(from, nil, ap, nil, 5, 0)
		s.errno(unix.EBADF, err, "to a descriptor for appending")
		_, err = unix.CopyFileRange(ap, nil, to, nil, 5, 0)
		s.errno(unix.EBADF, err, "from a descriptor for writing")
		dir, err := unix.Open(s.dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		s.must(err, "open")
		defer unix.Close(dir)
		_, err = unix.CopyFileRange(dir, nil, to, nil, 5, 0)
		s.errno(unix.EISDIR, err, "from a directory")
	})
	s.sub("sendfile", func(s *scene) {
		from, to := s.openLocal("from"), s.openLocal("to")
		_, err := unix.Pwrite(from, []byte("0123456789"), 0)
		s.must(err, "pwrite")
		off := int64(3)
		n, err := unix.Sendfile(to, from, &off, 100)
		s.ok(err, "sendfile")
		eq(s, n, 7, "sent")
		eq(s, off, 10, "offset")
		eq(s, s.read("to"), "3456789", "content")
	})
}
