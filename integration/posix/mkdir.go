//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func testMkdir(s *scene) {
	s.sub("nlink", func(s *scene) {
		s.mkdir("d", 0o755)
		for i := range 5 {
			s.nlink("d", 2+i)
			s.ok(s.root.Mkdir(fmt.Sprint("d/", i), 0o755), "mkdir")
		}
		s.file("d/f", 0o644) // files do not count
		s.nlink("d", 7)
		s.ok(s.root.Rename("d/0", "out"), "rename out")
		s.nlink("d", 6)
		s.ok(s.root.Rename("d/1", "d/2"), "rename over another")
		s.nlink("d", 5)
		s.ok(s.root.Rmdir("d/2"), "rmdir")
		s.nlink("d", 4)
		s.ok(s.root.Rename("out", "d/in"), "rename in")
		s.nlink("d", 5)
	})
	s.sub("dots", func(s *scene) {
		s.mkdir("d", 0o755)
		s.mkdir("d/e", 0o755)
		eq(s, s.lstat("d/e/..").Ino, s.lstat("d").Ino, "inode of ..")
		eq(s, s.lstat("d/e/.").Ino, s.lstat("d/e").Ino, "inode of .")
		s.must(s.root.Rename("d/e", "e"), "rename")
		eq(s, s.lstat("e/..").Ino, s.lstat(".").Ino, "inode of .. after rename")
	})
	s.sub("dangling", func(s *scene) {
		s.must(s.root.Symlink("nosuch", "l"), "symlink")
		s.errno(unix.EEXIST, s.root.Mkdir("l", 0o755), "mkdir over a dangling link")
		s.gone("nosuch")
	})
	s.sub("removed", func(s *scene) { // nothing can be made in a removed directory
		s.mkdir("d", 0o755)
		fd, err := s.root.Open("d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		s.must(err, "open")
		s.must(s.root.Rmdir("d"), "rmdir")
		_, err = s.root.Openat(fd, "f", unix.O_CREAT|unix.O_WRONLY, 0o644)
		s.errno(unix.ENOENT, err, "create in a removed directory")
		s.errno(unix.ENOENT, s.root.run(command{Op: "mkdir", Fd: fd, P: []byte("e"), Mode: 0o755}), "mkdir in a removed directory")
		st, err := s.root.Fstat(fd)
		s.ok(err, "fstat of a removed directory")
		eq(s, st.Nlink, 0, "links of a removed directory")
	})
}
