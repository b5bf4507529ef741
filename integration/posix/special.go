//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// testMknod: devices and the users who may make them.
func testMknod(s *scene) {
	s.needFull()
	s.sub("devices", func(s *scene) {
		s.needRoot()
		for i, c := range []struct {
			k            kind
			major, minor uint32
		}{{char, 1, 3}, {char, 0, 0}, {char, 4095, 1048575}, {block, 1, 2}, {block, 259, 70000}, {char, 255, 255}, {char, 10, 256}} {
			p := fmt.Sprint("n", i)
			dev := unix.Mkdev(c.major, c.minor)
			s.ok(s.root.Mknod(p, c.k.fmt|0o640, int(dev)), "mknod %s %d:%d", c.k.name, c.major, c.minor)
			st := s.lstat(p)
			eq(s, st.Rdev, dev, "rdev of %s %d:%d", c.k.name, c.major, c.minor)
			s.kind(p, c.k)
			s.mode(p, 0o640)
		}
	})
	s.sub("EPERM", func(s *scene) {
		s.needRoot()
		s.mkdir("d", 0o777)
		a := s.as(alice)
		s.errno(unix.EPERM, char.make(a, "d/c", 0o644), "mknod of a character device")
		s.errno(unix.EPERM, block.make(a, "d/b", 0o644), "mknod of a block device")
		s.gone("d/c")
		s.gone("d/b")
		s.ok(a.Mknod("d/f", unix.S_IFREG|0o644, 0), "mknod of a file")
		s.ok(a.Mknod("d/p", unix.S_IFIFO|0o644, 0), "mknod of a FIFO")
		s.ok(a.Mknod("d/s", unix.S_IFSOCK|0o644, 0), "mknod of a socket")
	})
	s.sub("types", func(s *scene) {
		s.ok(s.root.Mknod("none", 0o644, 0), "mknod of no type makes a file")
		s.kind("none", regular)
		s.errno(unix.EPERM, s.root.Mknod("d", unix.S_IFDIR|0o755, 0), "mknod of a directory")
		s.errno(unix.EINVAL, s.root.Mknod("l", unix.S_IFLNK|0o755, 0), "mknod of a symlink")
		s.errno(unix.EINVAL, s.root.Mknod("x", 0o170000|0o644, 0), "mknod of a type that does not exist")
	})
}

// testSpecial: the use of special files.
func testSpecial(s *scene) {
	s.needFull()
	s.sub("fifo", func(s *scene) {
		s.create(fifo, "p", 0o600)
		s.errno(unix.ENXIO, s.root.TryOpen("p", unix.O_WRONLY|unix.O_NONBLOCK, 0), "open for writing without a reader")
		r, err := s.root.Open("p", unix.O_RDONLY|unix.O_NONBLOCK, 0)
		s.must(err, "open for reading without a writer")
		got, err := s.root.Read(r, 10)
		s.ok(err, "read without a writer")
		eq(s, got, "", "read without a writer")
		w, err := s.root.Open("p", unix.O_WRONLY|unix.O_NONBLOCK, 0)
		s.must(err, "open for writing with a reader")
		_, err = s.root.Read(r, 10)
		s.errno(unix.EAGAIN, err, "read of an empty pipe")
		_, err = s.root.Write(w, "through the pipe")
		s.ok(err, "write")
		got, err = s.root.Read(r, 100)
		s.ok(err, "read")
		eq(s, got, "through the pipe", "what came through the pipe")
		s.must(s.root.Unlink("p"), "unlink")
		_, err = s.root.Write(w, "unlinked")
		s.ok(err, "write to an unlinked FIFO")
		got, err = s.root.Read(r, 100)
		s.ok(err, "read of an unlinked FIFO")
		eq(s, got, "unlinked", "what came through the unlinked FIFO")
		s.errno(unix.EINVAL, s.root.Ftruncate(w, 1), "ftruncate of a FIFO")
	})
	s.sub("socket", func(s *scene) {
		s.create(socket, "s", 0o600)
		s.errno(unix.ENXIO, s.root.TryOpen("s", unix.O_RDONLY|unix.O_NONBLOCK, 0), "open of a socket")
		s.ok(s.root.TryOpen("s", unix.O_PATH, 0), "O_PATH of a socket")
		s.errno(unix.EADDRINUSE, s.root.Bind("s"), "bind over a socket")
	})
	s.sub("connect", socketConnect)
	s.sub("null", func(s *scene) {
		s.needRoot()
		s.create(char, "null", 0o666)
		fd, err := s.root.Open("null", unix.O_RDWR, 0)
		if s.run.nodev {
			s.errno(unix.EACCES, err, "open of a device on a mount without devices")
			return
		}
		s.must(err, "open of a device")
		n, err := s.root.Write(fd, "away")
		s.ok(err, "write to null")
		eq(s, n, 4, "written to null")
		got, err := s.root.Read(fd, 10)
		s.ok(err, "read of null")
		eq(s, got, "", "read of null")
		s.must(s.root.Close(fd), "close")
	})
	s.sub("permission", func(s *scene) {
		s.needRoot()
		s.create(fifo, "p", 0o600)
		s.errno(unix.EACCES, s.as(alice).TryOpen("p", unix.O_RDONLY|unix.O_NONBLOCK, 0), "open of another's FIFO")
		s.create(socket, "s", 0o600)
		s.errno(unix.EACCES, s.as(alice).Access("s", unix.W_OK, 0), "access to another's socket")
	})
}

// socketConnect connects to a socket by the socket's name. After a rename of the socket, the old
// name no longer leads to it.
func socketConnect(s *scene) {
	// The address names the directory by a descriptor, because a socket address has at most 108
	// bytes.
	dir, err := unix.Open(s.dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	s.must(err, "open")
	defer unix.Close(dir)
	addr := &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/sock", dir)}
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	s.must(err, "socket")
	defer unix.Close(l)
	s.must(unix.Bind(l, addr), "bind")
	s.must(unix.Listen(l, 1), "listen")
	c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	s.must(err, "socket")
	defer unix.Close(c)
	s.must(unix.Connect(c, addr), "connect")
	s.must(s.root.Rename("sock", "moved"), "rename")
	s.kind("moved", socket)
	s.errno(unix.ENOENT, unix.Connect(c, addr), "connect to the old name")
}
