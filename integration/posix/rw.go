//go:build linux

package posix

import (
	"bytes"
	"io"
	"math"

	"golang.org/x/sys/unix"
)

func testReadWrite(s *scene) {
	s.sub("positions", func(s *scene) {
		fd := s.openLocal("f")
		n, err := unix.Write(fd, []byte("0123456789"))
		s.ok(err, "write")
		eq(s, n, 10, "written")
		buf := make([]byte, 4)
		for _, c := range []struct {
			off  int64
			want string
		}{{0, "0123"}, {3, "3456"}, {8, "89"}, {10, ""}, {1 << 40, ""}} {
			n, err := unix.Pread(fd, buf, c.off)
			s.ok(err, "pread at %d", c.off)
			eq(s, string(buf[:max(n, 0)]), c.want, "pread at %d", c.off)
		}
		pos, err := unix.Seek(fd, 0, io.SeekCurrent)
		s.ok(err, "seek")
		eq(s, pos, 10, "pread must not move the position")
		_, err = unix.Pwrite(fd, []byte("ab"), 4)
		s.ok(err, "pwrite")
		eq(s, s.read("f"), "0123ab6789", "content after pwrite")
		_, err = unix.Pwrite(fd, []byte("end"), 15)
		s.ok(err, "pwrite beyond the end")
		eq(s, s.read("f"), "0123ab6789\x00\x00\x00\x00\x00end", "content after pwrite beyond the end")
		pos, err = unix.Seek(fd, -3, io.SeekEnd)
		s.ok(err, "seek")
		eq(s, pos, 15, "position from the end")
		_, err = unix.Seek(fd, -100, io.SeekCurrent)
		s.errno(unix.EINVAL, err, "seek before the start")
		_, err = unix.Seek(fd, 0, 99)
		s.errno(unix.EINVAL, err, "seek with a whence that does not exist")
		_, err = unix.Pread(fd, buf, -1)
		s.errno(unix.EINVAL, err, "pread at a negative offset")
		_, err = unix.Pwrite(fd, buf, -1)
		s.errno(unix.EINVAL, err, "pwrite at a negative offset")
		_, err = unix.Pwrite(fd, []byte("x"), math.MaxInt64)
		s.oneOf([]unix.Errno{unix.EFBIG, unix.EINVAL, unix.EOVERFLOW}, err, "pwrite at the last offset")
	})
	s.sub("vectors", readWriteVectors)
	s.sub("sizes", readWriteSizes)
	s.sub("coherent", func(s *scene) { // bytes written through one descriptor are read through others
		a := s.openLocal("f")
		b := s.openLocal("f")
		other := s.start()
		ofd, err := other.Open("f", unix.O_RDONLY, 0)
		s.must(err, "open")
		for i := range 100 {
			rec := bytes.Repeat([]byte{byte('a' + i%26)}, 97)
			_, err := unix.Pwrite(a, rec, int64(i*97))
			s.ok(err, "pwrite")
			buf := make([]byte, 97)
			_, err = unix.Pread(b, buf, int64(i*97))
			s.ok(err, "pread")
			s.yes(bytes.Equal(buf, rec), "record %d through another descriptor", i)
			got, err := other.Read(ofd, 97)
			s.ok(err, "read by another process")
			eq(s, got, string(rec), "record %d in another process", i)
		}
		eq(s, s.lstat("f").Size, 9700, "size")
	})
	s.sub("dup", func(s *scene) { // duplicated descriptors share a position; descriptors of two opens do not
		fd := s.openLocal("f")
		d, err := unix.Dup(fd)
		s.must(err, "dup")
		defer unix.Close(d)
		_, err = unix.Write(fd, []byte("one"))
		s.ok(err, "write")
		_, err = unix.Write(d, []byte("two"))
		s.ok(err, "write to the duplicate")
		eq(s, s.read("f"), "onetwo", "content")
		e := s.openLocal("f")
		_, err = unix.Write(e, []byte("ONE"))
		s.ok(err, "write to another opening")
		eq(s, s.read("f"), "ONEtwo", "content")
	})
}

func readWriteVectors(s *scene) {
	fd := s.openLocal("f")
	n, err := unix.Writev(fd, [][]byte{[]byte("abc"), {}, []byte("defg"), []byte("h")})
	s.ok(err, "writev")
	eq(s, n, 8, "written")
	eq(s, s.read("f"), "abcdefgh", "content")
	n, err = unix.Pwritev(fd, [][]byte{[]byte("XY"), []byte("Z")}, 2)
	s.ok(err, "pwritev")
	eq(s, n, 3, "written")
	eq(s, s.read("f"), "abXYZfgh", "content")
	a, b := make([]byte, 3), make([]byte, 10)
	n, err = unix.Preadv(fd, [][]byte{a, b}, 1)
	s.ok(err, "preadv")
	eq(s, n, 7, "read")
	eq(s, string(a)+string(b[:4]), "bXYZfgh", "read")
	_, err = unix.Seek(fd, 0, io.SeekStart)
	s.must(err, "seek")
	n, err = unix.Readv(fd, [][]byte{a, b})
	s.ok(err, "readv")
	eq(s, n, 8, "read")
	eq(s, string(a)+string(b[:5]), "abXYZfgh", "read")
	var many [][]byte
	for i := range 1024 {
		many = append(many, []byte{byte(i)})
	}
	n, err = unix.Pwritev(fd, many, 0)
	s.ok(err, "pwritev of 1024 pieces")
	eq(s, n, 1024, "written")
	eq(s, len(s.read("f")), 1024, "size")
}

// readWriteSizes writes and reads around the sizes at which requests are split:
// pages, and the largest write and read of a FUSE connection.
func readWriteSizes(s *scene) {
	for _, size := range []int{1, 4095, 4096, 4097, 65535, 65536, 65537, 131071, 131072, 131073, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 + 12345} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i ^ i>>8 ^ i>>16)
		}
		for _, off := range []int64{0, 1, 4095} {
			fd, err := unix.Open(s.path("f"), unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
			s.must(err, "open")
			n, err := unix.Pwrite(fd, data, off)
			s.ok(err, "pwrite of %d at %d", size, off)
			eq(s, n, size, "written at %d", off)
			buf := make([]byte, size+10)
			n, err = unix.Pread(fd, buf, off)
			s.ok(err, "pread of %d at %d", size, off)
			eq(s, n, size, "read at %d", off)
			s.yes(bytes.Equal(buf[:max(n, 0)], data), "content of %d bytes at %d", size, off)
			s.must(unix.Close(fd), "close")
			eq(s, s.lstat("f").Size, int64(size)+off, "size")
			s.must(s.root.Unlink("f"), "unlink")
		}
	}
}
