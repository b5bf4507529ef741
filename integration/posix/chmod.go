//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// chmodCalls are the ways to change a mode.
var chmodCalls = []struct {
	name string
	run  func(a *Actor, p string, mode uint32) error
}{
	{"chmod", (*Actor).Chmod},
	{"fchmod", func(a *Actor, p string, mode uint32) error {
		return withFd(a, p, unix.O_RDONLY|unix.O_NONBLOCK, func(fd int) error { return a.Fchmod(fd, mode) })
	}},
	{"fchmodat2", func(a *Actor, p string, mode uint32) error { return a.Fchmodat(p, mode, unix.AT_SYMLINK_NOFOLLOW) }},
}

// withFd opens p, calls f with the descriptor, and closes the descriptor.
func withFd(a *Actor, p string, flags int, f func(fd int) error) error {
	fd, err := a.Open(p, flags, 0)
	if err != nil {
		return err
	}
	err = f(fd)
	if e := a.Close(fd); err == nil {
		err = e
	}
	return err
}

func testChmod(s *scene) {
	for _, c := range chmodCalls {
		s.sub("modes_"+c.name, func(s *scene) {
			for _, k := range s.kindsWithMode() {
				if c.name == "fchmod" && !s.run.opt.Root {
					continue // withFd must open the object whatever its mode, which only root can
				}
				if c.name == "fchmod" && k.fmt != unix.S_IFREG && k.fmt != unix.S_IFDIR && k.fmt != unix.S_IFIFO {
					continue // a socket, or a device file without a device, cannot be opened
				}
				s.create(k, k.name, 0o600)
				for _, mode := range chmodModes(s.run.opt) {
					s.ok(c.run(s.root, k.name, mode), "%s %s %#o", c.name, k.name, mode)
					s.mode(k.name, mode)
					s.kind(k.name, k)
				}
			}
		})
		s.sub("owner_"+c.name, func(s *scene) { chmodOwner(s, c.run) })
	}
	s.sub("symlink", chmodSymlink)
	s.sub("highbits", func(s *scene) {
		s.file("f", 0o600)
		s.ok(s.root.Chmod("f", 0o100644), "chmod with the bits of the type")
		s.mode("f", 0o644)
		s.kind("f", regular)
	})
	s.sub("open", func(s *scene) { // a mode is checked when opening, never after
		s.needRoot()
		s.createAs(regular, "f", 0o600, alice)
		al := s.as(alice)
		fd, err := al.Open("f", unix.O_RDWR, 0)
		s.must(err, "open")
		s.must(al.Chmod("f", 0), "chmod")
		_, err = al.Write(fd, "still")
		s.ok(err, "write after chmod 0")
		s.ok(al.Ftruncate(fd, 3), "ftruncate after chmod 0")
		s.errno(unix.EACCES, al.TryOpen("f", unix.O_RDONLY, 0), "open after chmod 0")
	})
	s.sub("EBADF", func(s *scene) {
		s.errno(unix.EBADF, s.root.Fchmod(987, 0o600), "fchmod of a descriptor that is not open")
	})
}

func chmodModes(opt Options) []uint32 {
	m := []uint32{0, 0o111, 0o222, 0o333, 0o444, 0o555, 0o644, 0o666, 0o700, 0o070, 0o007, 0o755, 0o777, 0o1777}
	if opt.Full {
		m = append(m, 0o2755, 0o4755, 0o6755, 0o7777, 0o4000, 0o2000)
	}
	return m
}

// chmodOwner: only the owner and root may change modes, even if others may write to the
// object.
func chmodOwner(s *scene, chmod func(*Actor, string, uint32) error) {
	s.needRoot()
	kinds := []kind{regular, directory}
	if s.run.opt.Full {
		kinds = append(kinds, fifo)
	}
	for _, k := range kinds {
		s.createAs(k, k.name, 0o666|0o111, alice)
		s.errno(unix.EPERM, chmod(s.as(bob), k.name, 0o700), "by another user: %s", k.name)
		s.errno(unix.EPERM, chmod(s.as(cred{bob.uid, alice.gid, nil}), k.name, 0o700), "by a member of the group: %s", k.name)
		s.errno(unix.EPERM, chmod(s.as(bob), k.name, 0o777), "to the same mode: %s", k.name)
		s.mode(k.name, 0o777)
		s.ok(chmod(s.as(alice), k.name, 0o750), "by the owner: %s", k.name)
		s.mode(k.name, 0o750)
		s.ok(chmod(s.root, k.name, 0o640), "by root: %s", k.name)
		s.mode(k.name, 0o640)
		s.must(s.root.Lchown(k.name, bob.uid, bob.gid), "lchown")
		s.oneOf([]unix.Errno{unix.EPERM, unix.EACCES}, chmod(s.as(alice), k.name, 0o700), "by the previous owner: %s", k.name)
	}
	if !s.run.opt.Full {
		return
	}
	// The set-group-id bit is dropped silently for an owner outside the group.
	for i, g := range []struct {
		who  cred
		gid  int
		want uint32
	}{
		{alice, alice.gid, 0o2755}, {alice.in(carol.gid), carol.gid, 0o2755}, {alice, carol.gid, 0o755},
	} {
		for _, k := range kinds {
			p := fmt.Sprint(k.name, i)
			s.createAs(k, p, 0o755, cred{alice.uid, g.gid, nil})
			s.ok(chmod(s.as(g.who), p, 0o2755), "set-group-id by %s on a %s of group %d", g.who.key(), k.name, g.gid)
			s.mode(p, g.want)
			s.ok(chmod(s.as(g.who), p, 0o4755), "set-user-id by %s on a %s of group %d", g.who.key(), k.name, g.gid)
			s.mode(p, 0o4755)
		}
	}
}

// chmodSymlink: chmod follows a symlink, and a symlink's own mode cannot be changed.
func chmodSymlink(s *scene) {
	for _, k := range s.kindsWithMode() {
		s.create(k, k.name, 0o600)
		s.must(s.root.Symlink(k.name, "l"+k.name), "symlink")
		s.ok(s.root.Chmod("l"+k.name, 0o731), "chmod through a link to a %s", k.name)
		s.mode(k.name, 0o731)
		s.kind("l"+k.name, symlink)
	}
	s.errno(unix.EOPNOTSUPP, s.root.Fchmodat("lfile", 0o600, unix.AT_SYMLINK_NOFOLLOW), "fchmodat2 of a link itself")
	s.mode("file", 0o731)
	s.errno(unix.EINVAL, s.root.Fchmodat("file", 0o600, 0x40000000), "fchmodat2 with a flag that does not exist")
}
