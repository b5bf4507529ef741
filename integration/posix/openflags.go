//go:build linux

package posix

import (
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// testOpenFlags: flags that change how a descriptor behaves.
func testOpenFlags(s *scene) {
	s.sub("O_APPEND", func(s *scene) {
		s.content("f", "")
		a, err := s.root.Open("f", unix.O_WRONLY|unix.O_APPEND, 0)
		s.must(err, "open")
		b, err := s.root.Open("f", unix.O_WRONLY|unix.O_APPEND, 0)
		s.must(err, "open")
		other := s.start()
		c, err := other.Open("f", unix.O_WRONLY|unix.O_APPEND, 0)
		s.must(err, "open in another process")
		want := ""
		for i := range 50 {
			for _, w := range []struct {
				a  *Actor
				fd int
			}{{s.root, a}, {s.root, b}, {other, c}} {
				rec := fmt.Sprintf("[%d by %d]", i, w.fd)
				n, err := w.a.Write(w.fd, rec)
				s.ok(err, "append")
				eq(s, n, len(rec), "bytes appended")
				want += rec
			}
		}
		eq(s, s.read("f"), want, "what three descriptors appended")
	})
	s.sub("O_APPEND_seek", func(s *scene) { // the position does not matter to an append
		s.content("f", "start")
		fd, err := unix.Open(s.path("f"), unix.O_RDWR|unix.O_APPEND|unix.O_CLOEXEC, 0)
		s.must(err, "open")
		defer unix.Close(fd)
		_, err = unix.Seek(fd, 0, io.SeekStart)
		s.ok(err, "seek")
		_, err = unix.Write(fd, []byte("+end"))
		s.ok(err, "write")
		eq(s, s.read("f"), "start+end", "after an append at position 0")
		pos, err := unix.Seek(fd, 0, io.SeekCurrent)
		s.ok(err, "seek")
		eq(s, pos, 9, "position after an append")
		_, err = unix.Pwrite(fd, []byte("!"), 0) // Linux appends here too, against POSIX
		s.ok(err, "pwrite")
		eq(s, s.read("f"), "start+end!", "after a pwrite")
	})
	s.sub("O_SYNC", func(s *scene) {
		for _, f := range []int{unix.O_SYNC, unix.O_DSYNC} {
			s.file("f", 0o644)
			fd, err := s.root.Open("f", unix.O_WRONLY|f, 0)
			s.must(err, "open with %#o", f)
			_, err = s.root.Write(fd, "durable")
			s.ok(err, "write with %#o", f)
			s.must(s.root.Close(fd), "close")
			eq(s, s.read("f"), "durable", "content")
			s.must(s.root.Unlink("f"), "unlink")
		}
	})
	s.sub("fsync", func(s *scene) {
		s.content("f", "x")
		for _, p := range []string{"f", "."} {
			fd, err := unix.Open(s.path(p), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			s.must(err, "open")
			s.ok(unix.Fsync(fd), "fsync of %q", p)
			s.ok(unix.Fdatasync(fd), "fdatasync of %q", p)
			s.must(unix.Close(fd), "close")
		}
		s.errno(unix.EBADF, unix.Fsync(987), "fsync of a descriptor that is not open")
	})
	s.sub("O_NOATIME", func(s *scene) {
		s.needRoot()
		s.createAs(regular, "f", 0o666, alice)
		s.errno(unix.EPERM, s.as(bob).TryOpen("f", unix.O_RDONLY|unix.O_NOATIME, 0), "O_NOATIME by another user")
		s.ok(s.as(alice).TryOpen("f", unix.O_RDONLY|unix.O_NOATIME, 0), "O_NOATIME by the owner")
	})
}

// maxRead bounds the bytes that scene.read reads: a file that a failed call left huge and sparse
// must not fill the memory.
const maxRead = 64 << 20

// read returns the content of p.
func (s *scene) read(p string) string {
	s.Helper()
	fd, err := s.root.Open(p, unix.O_RDONLY, 0)
	s.must(err, "open %q", p)
	var b strings.Builder
	for {
		part, err := s.root.Read(fd, 1<<16)
		s.must(err, "read %q", p)
		if part == "" {
			break
		}
		b.WriteString(part)
		if b.Len() > maxRead {
			s.Fatalf("%q goes on after %d bytes", p, b.Len())
		}
	}
	s.must(s.root.Close(fd), "close %q", p)
	return b.String()
}
