//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// chownCalls are the ways to change an owner. The cases that use chownCalls give chown no
// symlink, because chown would follow the symlink.
var chownCalls = []struct {
	name string
	run  func(a *Actor, p string, uid, gid int) error
}{
	{"chown", (*Actor).Chown},
	{"lchown", (*Actor).Lchown},
	{"fchown", func(a *Actor, p string, uid, gid int) error {
		return withFd(a, p, unix.O_RDONLY|unix.O_NONBLOCK, func(fd int) error { return a.Fchown(fd, uid, gid) })
	}},
}

func testChown(s *scene) {
	s.needRoot()
	for _, c := range chownCalls {
		s.sub("ids_"+c.name, func(s *scene) {
			for _, k := range s.kinds() {
				if (c.name == "fchown" && k.fmt != unix.S_IFREG && k.fmt != unix.S_IFDIR && k.fmt != unix.S_IFIFO) ||
					(c.name == "chown" && k.fmt == unix.S_IFLNK) {
					continue
				}
				chownIDs(s, k, c.run)
			}
		})
		s.sub("EPERM_"+c.name, func(s *scene) { chownEPERM(s, c.run) })
	}
	s.sub("symlink", chownSymlink)
	s.sub("setid", chownSetid)
	s.sub("EBADF", func(s *scene) {
		s.errno(unix.EBADF, s.root.Fchown(987, 0, 0), "fchown of a descriptor that is not open")
	})
}

// chownIDs: -1 leaves an id unchanged, and ids are 32 bits wide.
func chownIDs(s *scene, k kind, chown func(*Actor, string, int, int) error) {
	s.create(k, k.name, 0o644)
	for _, c := range []struct{ uid, gid, wantUID, wantGID int }{
		{alice.uid, alice.gid, alice.uid, alice.gid}, {bob.uid, -1, bob.uid, alice.gid}, {-1, carol.gid, bob.uid, carol.gid},
		{-1, -1, bob.uid, carol.gid}, {0, 0, 0, 0}, {100000, 70000, 100000, 70000}, {1<<31 + 5, 1<<32 - 2, 1<<31 + 5, 1<<32 - 2},
		{self().uid, self().gid, self().uid, self().gid},
	} {
		s.ok(chown(s.root, k.name, c.uid, c.gid), "%s to %d:%d", k.name, c.uid, c.gid)
		s.owner(k.name, c.wantUID, c.wantGID)
		s.kind(k.name, k)
	}
}

// chownEPERM: only root may change the owner. The owner may set the group to any of the owner's
// own groups.
func chownEPERM(s *scene, chown func(*Actor, string, int, int) error) {
	member := alice.in(carol.gid)
	for i, k := range []kind{regular, directory} {
		for j, c := range []struct {
			who      cred
			uid, gid int
			want     unix.Errno
		}{
			{alice, bob.uid, -1, unix.EPERM}, {alice, 0, -1, unix.EPERM}, {alice, bob.uid, bob.gid, unix.EPERM},
			{alice, -1, bob.gid, unix.EPERM}, {alice, -1, 0, unix.EPERM}, {alice, alice.uid, bob.gid, unix.EPERM},
			{alice, alice.uid, alice.gid, 0}, {alice, alice.uid, -1, 0}, {alice, -1, alice.gid, 0}, {alice, -1, -1, 0},
			{member, -1, carol.gid, 0}, {member, alice.uid, carol.gid, 0}, {member, bob.uid, carol.gid, unix.EPERM},
			{bob, bob.uid, -1, unix.EPERM}, {bob, -1, bob.gid, unix.EPERM}, {bob, alice.uid, alice.gid, unix.EPERM},
			{bob, bob.uid, bob.gid, unix.EPERM}, {bob.in(alice.gid), -1, alice.gid, unix.EPERM},
			{cred{bob.uid, alice.gid, nil}, bob.uid, alice.gid, unix.EPERM}, {carol, 0, 0, unix.EPERM},
		} {
			p := fmt.Sprint("o", i, "-", j)
			s.createAs(k, p, 0o777, alice)
			s.errno(c.want, chown(s.as(c.who), p, c.uid, c.gid), "%s by %s to %d:%d", k.name, c.who.key(), c.uid, c.gid)
			gid := alice.gid
			if c.want == 0 && c.gid != -1 {
				gid = c.gid
			}
			s.owner(p, alice.uid, gid)
			s.mode(p, 0o777)
		}
	}
}

// chownSymlink: chown follows, lchown does not.
func chownSymlink(s *scene) {
	for _, k := range s.kinds() {
		s.create(k, k.name, 0o644)
		l := "l" + k.name
		s.must(s.root.Symlink(k.name, l), "symlink")
		s.ok(s.root.Lchown(l, bob.uid, bob.gid), "lchown of a link to a %s", k.name)
		s.owner(l, bob.uid, bob.gid)
		s.owner(k.name, self().uid, self().gid)
		if k.fmt == unix.S_IFLNK {
			s.errno(unix.ENOENT, s.root.Chown(l, alice.uid, alice.gid), "chown through a dangling link")
			continue
		}
		s.ok(s.root.Chown(l, alice.uid, alice.gid), "chown through a link to a %s", k.name)
		s.owner(l, bob.uid, bob.gid)
		s.owner(k.name, alice.uid, alice.gid)
	}
}

// chownSetid: a change of owner or group clears the set-id bits of everything but
// directories. But the set-group-id bit stays if the group may not execute the object:
// this mode once meant mandatory locking. On Linux all this holds for root, too.
func chownSetid(s *scene) {
	s.needFull()
	for i, k := range s.kindsWithMode() {
		for j, c := range []struct {
			who      cred
			uid, gid int
			mode     uint32
			want     uint32
		}{
			{self(), bob.uid, bob.gid, 0o6755, 0o755}, {self(), bob.uid, bob.gid, 0o4755, 0o755}, {self(), bob.uid, bob.gid, 0o2755, 0o755},
			{self(), bob.uid, bob.gid, 0o6745, 0o2745}, {self(), alice.uid, alice.gid, 0o6755, 0o755}, {self(), -1, bob.gid, 0o6755, 0o755},
			{self(), bob.uid, -1, 0o6755, 0o755}, {self(), bob.uid, bob.gid, 0o1755, 0o1755},
			{alice, alice.uid, alice.gid, 0o6755, 0o755}, {alice.in(carol.gid), -1, carol.gid, 0o6755, 0o755},
			{alice.in(carol.gid), -1, carol.gid, 0o4711, 0o711}, {alice.in(carol.gid), alice.uid, carol.gid, 0o2750, 0o750},
		} {
			p := fmt.Sprint("o", i, "-", j)
			s.createAs(k, p, c.mode, alice)
			s.ok(s.as(c.who).Chown(p, c.uid, c.gid), "%s of mode %#o by %s to %d:%d", k.name, c.mode, c.who.key(), c.uid, c.gid)
			if k.name == directory.name {
				c.want = c.mode
			}
			s.mode(p, c.want)
		}
		p := fmt.Sprint("kept", i)
		s.createAs(k, p, 0o6755, alice)
		s.errno(unix.EPERM, s.as(bob).Chown(p, bob.uid, bob.gid), "%s by another user", k.name)
		s.mode(p, 0o6755)
	}
}
