//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// changers are the calls that change the content of a file.
var changers = []struct {
	name string
	run  func(a *Actor, p string) error
}{
	{"write", func(a *Actor, p string) error {
		return withFd(a, p, unix.O_WRONLY, func(fd int) error { _, err := a.Write(fd, "x"); return err })
	}},
	{"append", func(a *Actor, p string) error {
		return withFd(a, p, unix.O_WRONLY|unix.O_APPEND, func(fd int) error { _, err := a.Write(fd, "x"); return err })
	}},
	{"truncate", func(a *Actor, p string) error { return a.Truncate(p, 1) }},
	{"ftruncate", func(a *Actor, p string) error {
		return withFd(a, p, unix.O_WRONLY, func(fd int) error { return a.Ftruncate(fd, 1) })
	}},
	{"fallocate", func(a *Actor, p string) error {
		return withFd(a, p, unix.O_WRONLY, func(fd int) error { return a.Allocate(fd, 100) })
	}},
	{"open_trunc", func(a *Actor, p string) error { return a.TryOpen(p, unix.O_WRONLY|unix.O_TRUNC, 0) }},
}

// testSetid: a change of the content by a user without CAP_FSETID clears set-id bits; a change by
// root does not. The set-group-ID bit of a file without group execute permission also stays if the
// user is in the file's group.
func testSetid(s *scene) {
	s.needRoot()
	s.needFull()
	for _, ch := range changers {
		s.sub(ch.name, func(s *scene) {
			for i, c := range []struct {
				who        cred
				mode, want uint32
			}{
				{bob, 0o6777, 0o777}, {bob, 0o4777, 0o777}, {bob, 0o2777, 0o777}, {bob, 0o4666, 0o666}, {bob, 0o1777, 0o1777},
				{bob, 0o6666, 0o666}, {bob.in(alice.gid), 0o6666, 0o2666}, {alice, 0o6660, 0o2660}, {self(), 0o6666, 0o6666},
				{alice, 0o6777, 0o777}, {alice, 0o4700, 0o700}, {alice, 0o2770, 0o770}, {alice, 0o7777, 0o1777},
				{self(), 0o6777, 0o6777}, {self(), 0o4700, 0o4700}, {self(), 0o2711, 0o2711},
			} {
				p := fmt.Sprint("f", i)
				s.createAs(regular, p, c.mode, alice)
				s.mode(p, c.mode)
				s.ok(ch.run(s.as(c.who), p), "%s of mode %#o by %s", ch.name, c.mode, c.who.key())
				s.mode(p, c.want)
			}
		})
	}
	s.sub("empty", func(s *scene) { // a write of 0 bytes leaves the mode as it was
		s.createAs(regular, "f", 0o6777, alice)
		b := s.as(bob)
		s.ok(withFd(b, "f", unix.O_WRONLY, func(fd int) error { _, err := b.Write(fd, ""); return err }), "write of nothing")
		s.mode("f", 0o6777)
	})
	s.sub("failed", func(s *scene) {
		s.createAs(regular, "f", 0o6755, alice)
		s.errno(unix.EACCES, s.as(bob).Truncate("f", 0), "truncate by a user who may not write")
		s.errno(unix.EACCES, s.as(bob).TryOpen("f", unix.O_RDONLY|unix.O_TRUNC, 0), "open with O_TRUNC by a user who may not write")
		s.mode("f", 0o6755)
	})
	s.sub("reading", func(s *scene) {
		s.createAs(regular, "f", 0o6777, alice)
		b := s.as(bob)
		s.ok(withFd(b, "f", unix.O_RDONLY, func(fd int) error { _, err := b.Read(fd, 10); return err }), "read")
		s.mode("f", 0o6777)
	})
}
