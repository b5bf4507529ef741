//go:build linux

package posix

import (
	"bytes"
	"math"
	"strings"

	"golang.org/x/sys/unix"
)

// truncaters are the ways to set a size.
var truncaters = []struct {
	name string
	run  func(a *Actor, p string, size int64) error
}{
	{"truncate", (*Actor).Truncate},
	{"ftruncate", func(a *Actor, p string, size int64) error {
		return withFd(a, p, unix.O_RDWR, func(fd int) error { return a.Ftruncate(fd, size) })
	}},
}

func testTruncate(s *scene) {
	for _, c := range truncaters {
		s.sub("sizes_"+c.name, func(s *scene) {
			s.content("f", strings.Repeat("x", 5000))
			have := strings.Repeat("x", 5000)
			for _, size := range []int{5000, 4999, 4096, 4095, 123, 1, 0, 1, 4096, 4097, 70000, 10, 70000} {
				s.ok(c.run(s.root, "f", int64(size)), "%s to %d", c.name, size)
				eq(s, s.lstat("f").Size, int64(size), "size")
				if size < len(have) {
					have = have[:size]
				}
				have += strings.Repeat("\x00", size-len(have))
				s.yes(s.read("f") == have, "content after %s to %d: what was cut must come back as zeros", c.name, size)
			}
		})
		s.sub("large_"+c.name, func(s *scene) {
			s.file("f", 0o644)
			for _, size := range []int64{1<<31 - 1, 1 << 31, 1<<32 + 1, 1 << 40, 12345} {
				s.ok(c.run(s.root, "f", size), "%s to %d", c.name, size)
				eq(s, s.lstat("f").Size, size, "size")
				eq(s, s.lstat("f").Blocks, 0, "blocks of a hole")
			}
		})
		s.sub("errors_"+c.name, func(s *scene) {
			s.content("f", "kept")
			s.errno(unix.EINVAL, c.run(s.root, "f", -1), "%s to a negative size", c.name)
			s.errno(unix.EINVAL, c.run(s.root, "f", math.MinInt64), "%s to the most negative size", c.name)
			err := c.run(s.root, "f", math.MaxInt64)
			if err == nil { // tmpfs accepts this size
				eq(s, s.lstat("f").Size, math.MaxInt64, "size")
				s.ok(c.run(s.root, "f", 4), "%s back", c.name)
			} else {
				s.oneOf([]unix.Errno{unix.EFBIG, unix.EINVAL}, err, "%s to the largest size", c.name)
			}
			if eq(s, s.lstat("f").Size, 4, "size") {
				eq(s, s.read("f"), "kept", "content")
			}
		})
	}
	s.sub("kinds", func(s *scene) {
		for _, k := range s.kindsWithMode() {
			want := unix.EINVAL
			switch k.name {
			case regular.name:
				want = 0
			case directory.name:
				want = unix.EISDIR
			}
			s.create(k, k.name, 0o666)
			s.errno(want, s.root.Truncate(k.name, 0), "truncate of a %s", k.name)
			s.must(s.root.Symlink(k.name, "l"+k.name), "symlink")
			s.errno(want, s.root.Truncate("l"+k.name, 0), "truncate through a link to a %s", k.name)
		}
	})
	s.sub("permission", func(s *scene) {
		s.needRoot()
		s.createAs(regular, "f", 0o444, alice)
		a := s.as(alice)
		s.errno(unix.EACCES, a.Truncate("f", 0), "truncate by the owner without write permission")
		s.errno(unix.EACCES, s.as(bob).Truncate("f", 0), "truncate by another user")
		s.must(s.root.Chmod("f", 0o600), "chmod")
		fd, err := a.Open("f", unix.O_WRONLY, 0)
		s.must(err, "open")
		s.must(s.root.Chmod("f", 0), "chmod")
		s.ok(a.Ftruncate(fd, 10), "ftruncate after the mode was taken away")
		s.errno(unix.EACCES, a.Truncate("f", 0), "truncate after the mode was taken away")
		s.must(s.root.Lchown("f", bob.uid, bob.gid), "lchown")
		s.ok(a.Ftruncate(fd, 20), "ftruncate after the file was given away")
	})
	s.sub("EBADF", func(s *scene) {
		s.errno(unix.EBADF, s.root.Ftruncate(987, 0), "ftruncate of a descriptor that is not open")
	})
}

// falloc is one fallocate on a file of 64 KiB of 'x', and the result.
type falloc struct {
	name     string
	mode     uint32
	off, len int64
	size     int64 // expected size
	zeroed   bool  // the part of the range inside the file becomes zeros
}

func testFallocate(s *scene) {
	const kib = 1024
	for _, c := range []falloc{
		{"allocate_inside", 0, 0, 4 * kib, 64 * kib, false},
		{"allocate_beyond", 0, 64 * kib, 64 * kib, 128 * kib, false},
		{"allocate_across", 0, 60 * kib, 10*kib + 7, 70*kib + 7, false},
		{"keep_size", unix.FALLOC_FL_KEEP_SIZE, 60 * kib, 64 * kib, 64 * kib, false},
		{"punch_pages", unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 8 * kib, 16 * kib, 64 * kib, true},
		{"punch_bytes", unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 5000, 3, 64 * kib, true},
		{"punch_odd", unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 1001, 20003, 64 * kib, true},
		{"punch_beyond", unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, 60 * kib, 64 * kib, 64 * kib, true},
		{"zero_inside", unix.FALLOC_FL_ZERO_RANGE, 5000, 10000, 64 * kib, true},
		{"zero_beyond", unix.FALLOC_FL_ZERO_RANGE, 60 * kib, 8 * kib, 68 * kib, true},
		{"zero_keep", unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE, 60 * kib, 8 * kib, 64 * kib, true},
	} {
		s.sub(c.name, func(s *scene) { fallocateOne(s, c) })
	}
	s.sub("errors", fallocateErrors)
	s.sub("blocks", func(s *scene) {
		fd := s.openLocal("f")
		s.must(unix.Fallocate(fd, 0, 0, 1<<20), "fallocate")
		s.yes(s.lstat("f").Blocks >= 2048, "blocks after fallocate of 1 MiB: %d", s.lstat("f").Blocks)
		s.must(unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20), "punch")
		eq(s, s.lstat("f").Blocks, 0, "blocks after all was punched")
		eq(s, s.lstat("f").Size, 1<<20, "size after all was punched")
	})
}

// openLocal opens p in the test process, and creates p if it does not exist. The descriptor is
// closed when the case ends.
func (s *scene) openLocal(p string) int {
	s.Helper()
	fd, err := unix.Open(s.path(p), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	s.must(err, "open %q", p)
	s.Cleanup(func() { unix.Close(fd) })
	return fd
}

func fallocateOne(s *scene, c falloc) {
	data := bytes.Repeat([]byte("x"), 64*1024)
	fd := s.openLocal("f")
	_, err := unix.Pwrite(fd, data, 0)
	s.must(err, "pwrite")
	err = unix.Fallocate(fd, c.mode, c.off, c.len)
	if err == unix.EOPNOTSUPP {
		s.Skipf("this file system has no fallocate mode %#x", c.mode)
	}
	s.must(err, "fallocate")
	var st unix.Stat_t
	s.must(unix.Fstat(fd, &st), "fstat")
	eq(s, st.Size, c.size, "size")
	want := make([]byte, c.size)
	copy(want, data)
	if c.zeroed {
		clear(want[c.off:min(c.off+c.len, c.size)])
	}
	s.yes(s.read("f") == string(want), "content after %s", c.name)
}

func fallocateErrors(s *scene) {
	fd := s.openLocal("f")
	for _, c := range []struct {
		off, len int64
		want     unix.Errno
	}{{-1, 10, unix.EINVAL}, {0, 0, unix.EINVAL}, {0, -1, unix.EINVAL}, {-1, -1, unix.EINVAL}, {math.MaxInt64 - 10, 20, unix.EFBIG}} {
		s.errno(c.want, unix.Fallocate(fd, 0, c.off, c.len), "fallocate of %d bytes at %d", c.len, c.off)
	}
	s.errno(unix.EOPNOTSUPP, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE, 0, 10), "PUNCH_HOLE without KEEP_SIZE")
	s.errno(unix.EOPNOTSUPP, unix.Fallocate(fd, 0x8000, 0, 10), "a mode that does not exist")
	eq(s, s.lstat("f").Size, 0, "size")
	ro, err := unix.Open(s.path("f"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	s.must(err, "open")
	defer unix.Close(ro)
	s.errno(unix.EBADF, unix.Fallocate(ro, 0, 0, 10), "fallocate of a descriptor for reading")
	s.errno(unix.EBADF, unix.Fallocate(987, 0, 0, 10), "fallocate of a descriptor that is not open")
}

// testSparse: holes are found and read as zeros.
func testSparse(s *scene) {
	const mib = 1 << 20
	fd := s.openLocal("f")
	data := bytes.Repeat([]byte("d"), 65536)
	for _, off := range []int64{mib, 4 * mib} {
		_, err := unix.Pwrite(fd, data, off)
		s.must(err, "pwrite")
	}
	s.must(unix.Ftruncate(fd, 8*mib), "ftruncate")
	for _, c := range []struct {
		name   string
		whence int
		off    int64
		want   int64
	}{
		{"data from the start", unix.SEEK_DATA, 0, mib}, {"data from data", unix.SEEK_DATA, mib + 10, mib + 10}, {"data from the second hole", unix.SEEK_DATA, 2 * mib, 4 * mib},
		{"hole from the start", unix.SEEK_HOLE, 0, 0}, {"hole from data", unix.SEEK_HOLE, mib, mib + 65536}, {"hole from the second data", unix.SEEK_HOLE, 4*mib + 1, 4*mib + 65536},
		{"hole from the last hole", unix.SEEK_HOLE, 7 * mib, 7 * mib},
	} {
		got, err := unix.Seek(fd, c.off, c.whence)
		s.ok(err, "seek: %s", c.name)
		eq(s, got, c.want, "%s", c.name)
	}
	for _, c := range []struct {
		whence int
		off    int64
	}{{unix.SEEK_DATA, 5 * mib}, {unix.SEEK_DATA, 8 * mib}, {unix.SEEK_HOLE, 8 * mib}, {unix.SEEK_DATA, 9 * mib}, {unix.SEEK_HOLE, -1}, {unix.SEEK_DATA, -1}} {
		_, err := unix.Seek(fd, c.off, c.whence)
		s.errno(unix.ENXIO, err, "seek %d from %d", c.whence, c.off)
	}
	st := s.lstat("f")
	eq(s, st.Size, 8*mib, "size")
	s.yes(st.Blocks >= 256 && st.Blocks < 1024, "blocks of a file with two pieces of 64 KiB: %d", st.Blocks)
	buf := make([]byte, 8*mib)
	n, err := unix.Pread(fd, buf, 0)
	s.ok(err, "pread")
	eq(s, n, len(buf), "bytes read")
	want := make([]byte, 8*mib)
	copy(want[mib:], data)
	copy(want[4*mib:], data)
	s.yes(bytes.Equal(buf, want), "the content of holes is not zeros or that of data is wrong")
}
