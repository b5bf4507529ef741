//go:build linux

package posix

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

func testOpen(s *scene) {
	s.sub("directory", func(s *scene) {
		s.mkdir("d", 0o755)
		for _, f := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_APPEND, unix.O_RDONLY | unix.O_TRUNC, unix.O_RDWR | unix.O_TRUNC, unix.O_RDONLY | unix.O_CREAT, unix.O_WRONLY | unix.O_CREAT} {
			s.errno(unix.EISDIR, s.root.TryOpen("d", f, 0o644), "open of a directory with %#o", f)
		}
		s.ok(s.root.TryOpen("d", unix.O_RDONLY, 0), "open of a directory for reading")
		fd, err := s.root.Open("d", unix.O_RDONLY, 0)
		s.must(err, "open")
		_, err = s.root.Read(fd, 10)
		s.errno(unix.EISDIR, err, "read of a directory")
		_, err = s.root.Write(fd, "x")
		s.errno(unix.EBADF, err, "write of a directory")
	})
	s.sub("O_DIRECTORY", func(s *scene) {
		for _, k := range s.kinds() {
			s.create(k, k.name, 0o666)
			want := unix.ENOTDIR
			if k.name == directory.name {
				want = 0
			}
			if k.name == symlink.name {
				want = unix.ENOENT
			}
			s.errno(want, s.root.TryOpen(k.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0), "O_DIRECTORY of a %s", k.name)
		}
	})
	s.sub("O_NOFOLLOW", func(s *scene) {
		s.file("f", 0o644)
		s.mkdir("d", 0o755)
		s.file("d/f", 0o644)
		s.must(s.root.Symlink("f", "tof"), "symlink")
		s.must(s.root.Symlink("d", "tod"), "symlink")
		s.must(s.root.Symlink("nosuch", "dangling"), "symlink")
		for _, l := range []string{"tof", "tod", "dangling"} {
			s.errno(unix.ELOOP, s.root.TryOpen(l, unix.O_RDONLY|unix.O_NOFOLLOW, 0), "O_NOFOLLOW of %s", l)
			s.errno(unix.ELOOP, s.root.TryOpen(l, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW, 0o644), "O_CREAT|O_NOFOLLOW of %s", l)
			s.ok(s.root.TryOpen(l, unix.O_PATH|unix.O_NOFOLLOW, 0), "O_PATH|O_NOFOLLOW of %s", l)
		}
		s.errno(unix.ENOTDIR, s.root.TryOpen("tod", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0), "O_NOFOLLOW|O_DIRECTORY of a link")
		s.ok(s.root.TryOpen("tod/f", unix.O_RDONLY|unix.O_NOFOLLOW, 0), "O_NOFOLLOW with a link in the prefix of the path")
		s.ok(s.root.TryOpen("f", unix.O_RDONLY|unix.O_NOFOLLOW, 0), "O_NOFOLLOW of a file")
		s.ok(s.root.TryOpen("tof", unix.O_RDONLY, 0), "open through a link")
	})
	s.sub("O_CREAT", openCreat)
	s.sub("O_EXCL", func(s *scene) {
		s.must(s.root.Symlink("nosuch", "l"), "symlink")
		s.errno(unix.EEXIST, s.root.TryOpen("l", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644), "O_EXCL over a dangling link")
		s.gone("nosuch")
		s.ok(s.root.TryOpen("l", unix.O_CREAT|unix.O_WRONLY, 0o644), "O_CREAT through a dangling link")
		s.kind("nosuch", regular)
		s.kind("l", symlink)
	})
	s.sub("O_TRUNC", openTrunc)
	s.sub("slash", func(s *scene) {
		s.must(s.root.Symlink("nosuch", "l"), "symlink")
		s.errno(unix.EISDIR, s.root.TryOpen("l/", unix.O_CREAT|unix.O_WRONLY, 0o644), "O_CREAT of a dangling link with a slash")
		s.errno(unix.ENOENT, s.root.TryOpen("l/", unix.O_RDONLY, 0), "open of a dangling link with a slash")
		s.gone("nosuch")
	})
	s.sub("EBADF", func(s *scene) {
		_, err := s.root.Openat(987, "f", unix.O_RDONLY, 0)
		s.errno(unix.EBADF, err, "openat of a descriptor that is not open")
		s.file("f", 0o644)
		fd, err := s.root.Open("f", unix.O_RDONLY, 0)
		s.must(err, "open")
		_, err = s.root.Openat(fd, "x", unix.O_RDONLY, 0)
		s.errno(unix.ENOTDIR, err, "openat below a file's descriptor")
		_, err = s.root.Write(fd, "x")
		s.errno(unix.EBADF, err, "write to a descriptor for reading")
		s.errno(unix.EINVAL, s.root.Ftruncate(fd, 0), "ftruncate of a descriptor for reading")
		wfd, err := s.root.Open("f", unix.O_WRONLY, 0)
		s.must(err, "open")
		_, err = s.root.Read(wfd, 1)
		s.errno(unix.EBADF, err, "read of a descriptor for writing")
	})
}

func openCreat(s *scene) {
	s.content("f", "kept")
	before := s.lstat("f")
	s.ok(s.root.TryOpen("f", unix.O_CREAT|unix.O_RDWR, 0o777), "O_CREAT of a file that is there")
	s.yes(s.lstat("f") == before, "O_CREAT changed a file that was there")
	// The mode of the new file does not restrict the descriptor that creates it.
	for i, mode := range []uint32{0, 0o444, 0o200} {
		p := fmt.Sprint("m", i)
		fd, err := s.root.Open(p, unix.O_CREAT|unix.O_RDWR, mode)
		s.must(err, "create mode %#o for reading and writing", mode)
		_, err = s.root.Write(fd, "x")
		s.ok(err, "write to a file created with mode %#o", mode)
		s.must(s.root.Close(fd), "close")
		s.mode(p, mode)
	}
	s.needRoot()
	s.mkdir("d", 0o777)
	a := s.as(alice)
	fd, err := a.Open("d/f", unix.O_CREAT|unix.O_RDWR, 0)
	s.must(err, "create mode 0 as alice")
	_, err = a.Write(fd, "x")
	s.ok(err, "write to a file created with mode 0 as alice")
	s.must(a.Close(fd), "close")
	s.errno(unix.EACCES, a.TryOpen("d/f", unix.O_RDONLY, 0), "open of one's own file of mode 0")
	s.errno(unix.EACCES, a.TryOpen("d/f", unix.O_CREAT|unix.O_RDONLY, 0o600), "O_CREAT of one's own file of mode 0")
	s.ok(a.Chmod("d/f", 0o400), "chmod by the owner")
	s.ok(a.TryOpen("d/f", unix.O_RDONLY, 0), "open after chmod")
}

func openTrunc(s *scene) {
	for _, f := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_RDONLY, unix.O_WRONLY | unix.O_CREAT, unix.O_WRONLY | unix.O_APPEND} {
		s.content("f", strings.Repeat("x", 10000))
		ino := s.lstat("f").Ino
		s.ok(s.root.TryOpen("f", f|unix.O_TRUNC, 0o644), "O_TRUNC with %#o", f)
		st := s.lstat("f")
		eq(s, st.Size, 0, "size after O_TRUNC with %#o", f)
		eq(s, st.Ino, ino, "inode after O_TRUNC with %#o", f)
		eq(s, st.Blocks, 0, "blocks after O_TRUNC with %#o", f)
	}
	s.content("g", "another")
	s.must(s.root.Symlink("g", "l"), "symlink")
	s.ok(s.root.TryOpen("l", unix.O_WRONLY|unix.O_TRUNC, 0), "O_TRUNC through a link")
	eq(s, s.lstat("g").Size, 0, "size after O_TRUNC through a link")
	// A descriptor that is already open reads the end of the file at once.
	s.content("f", "0123456789")
	fd, err := s.root.Open("f", unix.O_RDONLY, 0)
	s.must(err, "open")
	s.must(s.root.TryOpen("f", unix.O_WRONLY|unix.O_TRUNC, 0), "O_TRUNC")
	got, err := s.root.Read(fd, 10)
	s.ok(err, "read")
	eq(s, got, "", "read after O_TRUNC by another descriptor")
	s.needRoot()
	s.content("h", "kept")
	s.errno(unix.EACCES, s.as(alice).TryOpen("h", unix.O_RDONLY|unix.O_TRUNC, 0), "O_RDONLY|O_TRUNC without write permission")
	eq(s, s.lstat("h").Size, 4, "size after the O_TRUNC that failed")
}
