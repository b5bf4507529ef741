//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// owners has the owner of a sticky directory and the owner of an object in the directory. Alice may
// remove the object if she owns the directory or the object.
type owners struct{ dir, obj cred }

var ownerships = []owners{{alice, alice}, {alice, bob}, {bob, alice}, {bob, bob}, {carol, bob}, {self(), bob}, {bob, self()}, {self(), alice}}

// removalErrno returns the expected errno when alice removes, renames or replaces the object. It
// returns 0 if alice may do so.
func (o owners) removalErrno() unix.Errno {
	if o.dir.uid == alice.uid || o.obj.uid == alice.uid {
		return 0
	}
	return unix.EPERM
}

func (o owners) String() string { return fmt.Sprintf("dir of %d, object of %d", o.dir.uid, o.obj.uid) }

// testSticky: the rights to remove names from a sticky directory.
func testSticky(s *scene) {
	s.needRoot()
	for _, k := range s.kinds() {
		s.sub("remove_"+k.name, func(s *scene) {
			for i, o := range ownerships {
				d := fmt.Sprint("d", i)
				s.createAs(directory, d, 0o1777, o.dir)
				s.createAs(k, d+"/x", 0o666, o.obj)
				before := s.lstat(d + "/x")
				s.errno(o.removalErrno(), remove(s.as(alice), k, d+"/x"), "remove a %s: %s", k.name, o)
				if o.removalErrno() == 0 {
					s.gone(d + "/x")
					continue
				}
				s.yes(s.lstat(d+"/x") == before, "a %s that was not removed changed", k.name)
				s.ok(remove(s.root, k, d+"/x"), "remove a %s as root: %s", k.name, o)
			}
		})
	}
	s.sub("group", func(s *scene) { // a member of the directory's group does not count as an owner
		s.createAs(directory, "d", 0o1777, cred{bob.uid, alice.gid, nil})
		s.createAs(regular, "d/f", 0o666, cred{bob.uid, alice.gid, nil})
		s.errno(unix.EPERM, s.as(alice).Unlink("d/f"), "unlink by a member of the group")
	})
	s.sub("EACCES", func(s *scene) { // without write permission the sticky bit does not matter
		s.createAs(directory, "d", 0o1755, bob)
		s.createAs(regular, "d/f", 0o666, alice)
		s.errno(unix.EACCES, s.as(alice).Unlink("d/f"), "unlink in a sticky directory of mode 0755")
	})
	s.sub("create", func(s *scene) {
		s.createAs(directory, "d", 0o1777, bob)
		s.ok(s.as(alice).TryOpen("d/f", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644), "create in another's sticky directory")
		s.ok(s.as(alice).Link("d/f", "d/g"), "link in another's sticky directory")
		s.ok(s.as(alice).Unlink("d/g"), "unlink of one's own file")
	})
}

func remove(a *Actor, k kind, p string) error {
	if k.name == directory.name {
		return a.Rmdir(p)
	}
	return a.Unlink(p)
}

// testStickyRename: the rule of testSticky also holds for the source and the target of a
// rename: within a sticky directory, out of it, over an object in it, and by an exchange.
func testStickyRename(s *scene) {
	s.needRoot()
	for _, k := range s.kinds() {
		s.sub("within_"+k.name, func(s *scene) {
			for i, o := range ownerships {
				d := stickyWith(s, i, k, o)
				s.errno(o.removalErrno(), s.as(alice).Rename(d+"/x", d+"/y"), "rename a %s within: %s", k.name, o)
				s.movedOrNot(o.removalErrno(), k, d+"/x", d+"/y")
			}
		})
		s.sub("out_"+k.name, func(s *scene) {
			s.createAs(directory, "out", 0o777, alice)
			for i, o := range ownerships {
				d := stickyWith(s, i, k, o)
				to := fmt.Sprint("out/", i)
				want := o.removalErrno()
				s.errno(want, s.as(alice).Rename(d+"/x", to), "rename a %s out: %s", k.name, o)
				s.movedOrNot(want, k, d+"/x", to)
			}
		})
		s.sub("over_"+k.name, func(s *scene) { stickyOver(s, k) })
		s.sub("exchange_"+k.name, func(s *scene) {
			s.createAs(directory, "mine", 0o777, alice)
			for i, o := range ownerships {
				d := stickyWith(s, i, k, o)
				from := fmt.Sprint("mine/", i)
				s.createAs(k, from, 0o777, alice)
				s.errno(o.removalErrno(), s.as(alice).Rename2(from, d+"/x", unix.RENAME_EXCHANGE), "exchange with a %s: %s", k.name, o)
			}
		})
	}
}

// stickyWith makes a sticky directory with an object in it, and returns the directory's name. The
// object has mode 0777, because moving a directory to another parent requires write permission on
// the directory that moves.
func stickyWith(s *scene, i int, k kind, o owners) string {
	d := fmt.Sprint("d", i)
	s.createAs(directory, d, 0o1777, o.dir)
	s.createAs(k, d+"/x", 0o777, o.obj)
	return d
}

// movedOrNot asserts that an object of type k has the new name if e is 0, and else still has the
// old name.
func (s *scene) movedOrNot(e unix.Errno, k kind, from, to string) {
	s.Helper()
	if e == 0 {
		s.gone(from)
		s.kind(to, k)
		return
	}
	s.gone(to)
	s.kind(from, k)
}

// stickyOver renames alice's own object over objects in sticky directories.
func stickyOver(s *scene, k kind) {
	s.createAs(directory, "mine", 0o777, alice)
	for i, o := range ownerships {
		for _, victim := range s.kinds() {
			if (victim.name == directory.name) != (k.name == directory.name) {
				continue
			}
			d := fmt.Sprint("d", i, victim.name)
			s.createAs(directory, d, 0o1777, o.dir)
			s.createAs(victim, d+"/x", 0o777, o.obj)
			from := "mine/" + d
			s.createAs(k, from, 0o777, alice)
			ino := s.lstat(from).Ino
			s.errno(o.removalErrno(), s.as(alice).Rename(from, d+"/x"), "rename a %s over a %s: %s", k.name, victim.name, o)
			if o.removalErrno() == 0 {
				s.gone(from)
				eq(s, s.lstat(d+"/x").Ino, ino, "inode after rename")
				continue
			}
			s.kind(from, k)
			s.kind(d+"/x", victim)
		}
	}
}
