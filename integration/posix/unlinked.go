//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// testUnlinked: a file without a name lives as long as it is open.
func testUnlinked(s *scene) {
	for _, how := range []struct {
		name string
		run  func(s *scene)
	}{
		{"unlink", func(s *scene) { s.must(s.root.Unlink("d/f"), "unlink") }},
		{"rename_over", func(s *scene) { s.content("g", "other"); s.must(s.root.Rename("g", "d/f"), "rename") }},
		{"with_directory", func(s *scene) {
			s.must(s.root.Unlink("d/f"), "unlink")
			s.must(s.root.Rmdir("d"), "rmdir")
		}},
		{"name_reused", func(s *scene) {
			s.must(s.root.Unlink("d/f"), "unlink")
			s.content("d/f", "another file of the same name")
		}},
	} {
		s.sub(how.name, func(s *scene) {
			s.mkdir("d", 0o755)
			s.content("d/f", "content")
			fd, err := s.root.Open("d/f", unix.O_RDWR, 0)
			s.must(err, "open")
			before := s.lstat("d/f")
			how.run(s)
			unlinkedWorks(s, fd, before)
		})
	}
	s.sub("two_descriptors", func(s *scene) {
		s.content("f", "content")
		other := s.start()
		fd, err := s.root.Open("f", unix.O_RDWR, 0)
		s.must(err, "open")
		ofd, err := other.Open("f", unix.O_RDWR, 0)
		s.must(err, "open")
		s.must(s.root.Unlink("f"), "unlink")
		_, err = s.root.Write(fd, "CON")
		s.ok(err, "write")
		got, err := other.Read(ofd, 100)
		s.ok(err, "read by another process")
		eq(s, got, "CONtent", "what another process reads")
		s.ok(s.root.Close(fd), "close")
		s.ok(other.Ftruncate(ofd, 3), "ftruncate after the other has closed")
		st, err := other.Fstat(ofd)
		s.ok(err, "fstat")
		eq(s, st.Size, 3, "size")
	})
	s.sub("fifo", func(s *scene) {
		s.needFull()
		s.create(fifo, "p", 0o600)
		fd, err := s.root.Open("p", unix.O_RDWR|unix.O_NONBLOCK, 0)
		s.must(err, "open")
		s.must(s.root.Unlink("p"), "unlink")
		st, err := s.root.Fstat(fd)
		s.ok(err, "fstat")
		eq(s, st.Nlink, 0, "links")
		s.ok(s.root.Fchmod(fd, 0o640), "fchmod")
		st, err = s.root.Fstat(fd)
		s.ok(err, "fstat")
		eq(s, st.Mode, unix.S_IFIFO|0o640, "mode")
	})
	s.sub("directory", func(s *scene) {
		s.mkdir("d", 0o755)
		fd, err := s.root.Open("d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		s.must(err, "open")
		s.must(s.root.Rmdir("d"), "rmdir")
		st, err := s.root.Fstat(fd)
		s.ok(err, "fstat")
		eq(s, st.Nlink, 0, "links")
		s.ok(s.root.Fchmod(fd, 0o700), "fchmod")
		st, err = s.root.Fstat(fd)
		s.ok(err, "fstat")
		eq(s, st.Mode, unix.S_IFDIR|0o700, "mode")
		_, err = s.root.Openat(fd, "x", unix.O_RDONLY, 0)
		s.errno(unix.ENOENT, err, "openat")
	})
	s.sub("many", func(s *scene) { // each descriptor keeps its own file
		var fds []int
		for i := range 50 {
			s.content("f", fmt.Sprint("file ", i))
			fd, err := s.root.Open("f", unix.O_RDONLY, 0)
			s.must(err, "open")
			s.must(s.root.Unlink("f"), "unlink")
			fds = append(fds, fd)
		}
		for i, fd := range fds {
			got, err := s.root.Read(fd, 100)
			s.ok(err, "read")
			eq(s, got, fmt.Sprint("file ", i), "content")
		}
	})
}

// unlinkedWorks makes calls on a descriptor whose file has no name, and checks their results.
func unlinkedWorks(s *scene, fd int, before unix.Stat_t) {
	s.Helper()
	a := s.root
	fstat := func(what string) unix.Stat_t {
		s.Helper()
		st, err := a.Fstat(fd)
		s.ok(err, "fstat after %s", what)
		return st
	}
	st := fstat("unlink")
	eq(s, st.Nlink, 0, "links")
	eq(s, st.Ino, before.Ino, "inode")
	eq(s, st.Size, 7, "size")
	got, err := a.Read(fd, 100)
	s.ok(err, "read")
	eq(s, got, "content", "content")
	_, err = a.Write(fd, " and more")
	s.ok(err, "write")
	eq(s, fstat("write").Size, 16, "size after write")
	s.ok(a.Ftruncate(fd, 4), "ftruncate")
	eq(s, fstat("ftruncate").Size, 4, "size after ftruncate")
	s.ok(a.Fchmod(fd, 0o601), "fchmod")
	eq(s, fstat("fchmod").Mode&0o7777, 0o601, "mode after fchmod")
	s.ok(a.Futimens(fd, past, past), "futimens")
	eq(s, fstat("futimens").Mtim, past, "mtime after futimens")
	if s.run.opt.Root {
		s.ok(a.Fchown(fd, bob.uid, bob.gid), "fchown")
		eq(s, fstat("fchown").Uid, uint32(bob.uid), "uid after fchown")
		eq(s, fstat("fchown").Gid, uint32(bob.gid), "gid after fchown")
	}
	again, err := a.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY, 0)
	s.must(err, "open again through /proc")
	got, err = a.Read(again, 100)
	s.ok(err, "read of the second descriptor")
	eq(s, got, "cont", "content through the second descriptor")
	s.errno(unix.ENOENT, a.Linkat(0, fmt.Sprintf("/proc/self/fd/%d", fd), 0, "back", unix.AT_SYMLINK_FOLLOW), "linkat: the file cannot get a name again")
	eq(s, fstat("linkat").Nlink, 0, "links at the end")
	s.ok(a.Close(fd), "close")
}
