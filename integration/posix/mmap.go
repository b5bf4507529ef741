//go:build linux

package posix

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// testMmap: mappings and descriptors show the same bytes.
func testMmap(s *scene) {
	const size = 3 * 4096
	filled := func(b byte) []byte { return bytes.Repeat([]byte{b}, size) }
	s.sub("shared", func(s *scene) {
		fd := s.openLocal("f")
		_, err := unix.Pwrite(fd, filled('a'), 0)
		s.must(err, "pwrite")
		m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		s.must(err, "mmap")
		defer unix.Munmap(m)
		s.yes(bytes.Equal(m, filled('a')), "what was written is not in the mapping")
		_, err = unix.Pwrite(fd, []byte("written"), 4090)
		s.ok(err, "pwrite")
		eq(s, string(m[4090:4097]), "written", "a write seen in the mapping")
		copy(m[100:], "stored")
		buf := make([]byte, 6)
		_, err = unix.Pread(fd, buf, 100)
		s.ok(err, "pread")
		eq(s, string(buf), "stored", "a store seen by pread")
		other := s.start()
		ofd, err := other.Open("f", unix.O_RDONLY, 0)
		s.must(err, "open")
		got, err := other.Read(ofd, 106)
		s.ok(err, "read")
		eq(s, got[len(got)-6:], "stored", "a store seen by another process")
		s.ok(unix.Msync(m, unix.MS_SYNC), "msync")
		s.ok(unix.Ftruncate(fd, 50), "ftruncate below a mapping")
		s.ok(unix.Ftruncate(fd, size), "ftruncate back")
		s.yes(bytes.Equal(m[50:], make([]byte, size-50)), "what was cut off is still in the mapping")
		eq(s, string(m[:50]), string(filled('a')[:50]), "what was not cut off")
	})
	// A mapping outlives the descriptor and the name. (This file has one name only. For a file
	// with several names see otherName in package vfs.)
	s.sub("stays", func(s *scene) {
		fd, err := unix.Open(s.path("f"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
		s.must(err, "open")
		_, err = unix.Pwrite(fd, filled('b'), 0)
		s.must(err, "pwrite")
		m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		s.must(err, "mmap")
		defer unix.Munmap(m)
		s.must(unix.Close(fd), "close")
		copy(m, "after close")
		s.ok(unix.Msync(m, unix.MS_SYNC), "msync")
		eq(s, s.read("f")[:11], "after close", "a store after close")
		s.must(s.root.Unlink("f"), "unlink")
		copy(m, "nameless")
		s.ok(unix.Msync(m, unix.MS_SYNC), "msync of a file without a name")
		eq(s, string(m[:8]), "nameless", "a store into a file without a name")
	})
	s.sub("private", func(s *scene) {
		fd := s.openLocal("f")
		_, err := unix.Pwrite(fd, filled('c'), 0)
		s.must(err, "pwrite")
		m, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		s.must(err, "mmap")
		defer unix.Munmap(m)
		copy(m, "private")
		s.yes(s.read("f") == string(filled('c')), "a private store is in the file")
		eq(s, string(m[:8]), "privatec", "a private store")
	})
	s.sub("EACCES", func(s *scene) {
		s.file("f", 0o644)
		s.must(s.root.Truncate("f", size), "truncate")
		for _, c := range []struct {
			open, prot, flags int
			want              unix.Errno
		}{
			{unix.O_RDONLY, unix.PROT_READ, unix.MAP_SHARED, 0}, {unix.O_RDONLY, unix.PROT_WRITE, unix.MAP_SHARED, unix.EACCES},
			{unix.O_RDONLY, unix.PROT_WRITE, unix.MAP_PRIVATE, 0}, {unix.O_WRONLY, unix.PROT_READ, unix.MAP_SHARED, unix.EACCES},
			{unix.O_WRONLY, unix.PROT_WRITE, unix.MAP_SHARED, unix.EACCES}, {unix.O_RDWR, unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED, 0},
		} {
			fd, err := unix.Open(s.path("f"), c.open|unix.O_CLOEXEC, 0)
			s.must(err, "open")
			m, err := unix.Mmap(fd, 0, size, c.prot, c.flags)
			s.errno(c.want, err, "mmap open %#o, prot %#x, flags %#x", c.open, c.prot, c.flags)
			if err == nil {
				unix.Munmap(m)
			}
			s.must(unix.Close(fd), "close")
		}
		dir, err := unix.Open(s.dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		s.must(err, "open")
		defer unix.Close(dir)
		_, err = unix.Mmap(dir, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		s.errno(unix.ENODEV, err, "mmap of a directory")
	})
}
