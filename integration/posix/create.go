//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// maker is a call that makes an object with a mode.
type maker struct {
	name string
	k    kind
	run  func(a *Actor, p string, mode uint32) error
}

func (s *scene) makers() []maker {
	all := []maker{
		{"open", regular, regular.make},
		{"open_rdonly", regular, func(a *Actor, p string, mode uint32) error { return a.TryOpen(p, unix.O_CREAT|unix.O_RDONLY, mode) }},
		{"mknod_file", regular, func(a *Actor, p string, mode uint32) error { return a.Mknod(p, unix.S_IFREG|mode, 0) }},
		{"mkdir", directory, directory.make},
		{"mkfifo", fifo, fifo.make},
		{"mknod_socket", socket, func(a *Actor, p string, mode uint32) error { return a.Mknod(p, unix.S_IFSOCK|mode, 0) }},
	}
	var out []maker
	for _, m := range all {
		if !m.k.special || s.run.opt.Full {
			out = append(out, m)
		}
	}
	return out
}

// testCreate tests the rules for all calls that make something.
func testCreate(s *scene) {
	for _, m := range s.makers() {
		s.sub("umask_"+m.name, func(s *scene) { createUmask(s, m) })
		s.sub("owner_"+m.name, func(s *scene) { createOwner(s, m) })
	}
	s.sub("setgid", createSetgid)
	s.sub("setid", createSetid)
	s.sub("EEXIST", createEEXIST)
	s.sub("nlink", createNlink)
	s.sub("nothing_left", createDenied)
}

func createUmask(s *scene, m maker) {
	defer s.root.Umask(0)
	for i, c := range []struct{ mode, umask, want uint32 }{
		{0o777, 0, 0o777}, {0o755, 0, 0o755}, {0o644, 0, 0o644}, {0, 0, 0}, {0o151, 0, 0o151}, {0o777, 0o022, 0o755}, {0o777, 0o077, 0o700},
		{0o345, 0o070, 0o305}, {0o345, 0o501, 0o244}, {0o777, 0o777, 0}, {0o666, 0o027, 0o640}, {0o777, 0o111, 0o666}, {0o1777, 0, 0o1777}, {0o1777, 0o022, 0o1755},
	} {
		s.must(s.root.Umask(c.umask), "umask")
		p := fmt.Sprint("o", i)
		s.ok(m.run(s.root, p, c.mode), "%s %#o with umask %#o", m.name, c.mode, c.umask)
		s.mode(p, c.want)
		s.kind(p, m.k)
	}
}

// createOwner: a new object belongs to the user that makes it.
func createOwner(s *scene, m maker) {
	s.mkdir("d", 0o777)
	s.ok(m.run(s.root, "d/mine", 0o644), "%s", m.name)
	s.owner("d/mine", self().uid, self().gid)
	s.needRoot()
	for i, c := range []cred{alice, bob, {alice.uid, bob.gid, nil}, alice.in(carol.gid)} {
		p := fmt.Sprint("d/o", i)
		s.ok(m.run(s.as(c), p, 0o644), "%s by %s", m.name, c.key())
		s.owner(p, c.uid, c.gid)
	}
	s.give("d", carol)
	s.ok(m.run(s.as(alice), "d/p", 0o644), "%s in another's directory", m.name)
	s.owner("d/p", alice.uid, alice.gid)
}

// createSetgid: in a set-group-id directory new objects get the directory's
// group, and new directories get the set-group-id bit, too.
func createSetgid(s *scene) {
	s.needRoot()
	s.needFull()
	s.createAs(directory, "d", 0o2777, cred{bob.uid, carol.gid, nil})
	s.mode("d", 0o2777)
	for i, who := range []cred{alice, self(), alice.in(carol.gid), bob} {
		a := s.as(who)
		for _, k := range s.kinds() {
			if k.device && who.uid != 0 {
				continue
			}
			p := fmt.Sprint("d/", k.name, i)
			s.ok(k.make(a, p, 0o755), "make a %s as %s", k.name, who.key())
			s.owner(p, who.uid, carol.gid)
			if k.name == directory.name {
				s.mode(p, 0o2755)
			} else if k.name != symlink.name {
				s.mode(p, 0o755)
			}
		}
	}
	// A team's directory: its group is only a supplementary group of the user.
	s.createAs(directory, "team", 0o2770, cred{bob.uid, carol.gid, nil})
	for _, k := range s.kinds() {
		if k.device {
			continue
		}
		p := "team/" + k.name
		s.ok(k.make(s.as(alice.in(carol.gid)), p, 0o750), "make a %s as a member of the team", k.name)
		s.owner(p, alice.uid, carol.gid)
		if k.name == directory.name {
			s.mode(p, 0o2750)
		} else if k.name != symlink.name {
			s.mode(p, 0o750)
		}
	}
	s.must(s.root.Chmod("d", 0o777), "chmod")
	s.ok(s.as(alice).Mkdir("d/plain", 0o755), "mkdir in a directory without the set-group-id bit")
	s.owner("d/plain", alice.uid, alice.gid)
	s.mode("d/plain", 0o755)
}

// createSetid: calls that ask for mode 06755. The user, the directory and the type of the new object
// decide which set-id bits the new object gets.
func createSetid(s *scene) {
	s.needRoot()
	s.needFull()
	s.mkdir("d", 0o777)
	s.createAs(directory, "g", 0o2777, cred{bob.uid, carol.gid, nil})
	for i, c := range []struct {
		who  cred
		dir  string
		k    kind
		want uint32
	}{
		{self(), "d", regular, 0o6755}, {alice, "d", regular, 0o6755}, {alice, "d", directory, 0o755},
		{self(), "d", directory, 0o755}, {alice, "d", fifo, 0o6755},
		// In a set-group-id directory a user outside the directory's group may not make a program
		// that runs with that group.
		{alice, "g", regular, 0o4755}, {alice.in(carol.gid), "g", regular, 0o6755}, {self(), "g", regular, 0o6755},
		{alice, "g", directory, 0o2755},
	} {
		p := fmt.Sprint(c.dir, "/o", i)
		s.ok(c.k.make(s.as(c.who), p, 0o6755), "make a %s of mode 06755 as %s", c.k.name, c.who.key())
		s.mode(p, c.want)
	}
}

// createEEXIST: a call that makes a name fails if the name exists, and leaves the existing object,
// of any type, unchanged. This rule does not hold for rename_to and open_creat.
func createEEXIST(s *scene) {
	s.file(spare, 0o644)
	for _, k := range s.kinds() {
		s.create(k, k.name, 0o700)
		before := s.lstat(k.name)
		for _, c := range pathCalls {
			if !c.creates || c.name == "open_creat" || c.name == "rename_to" || (c.on.special && !s.run.opt.Full) {
				continue
			}
			s.errno(unix.EEXIST, c.run(s.root, k.name), "%s over a %s", c.name, k.name)
		}
		after := s.lstat(k.name)
		s.yes(before == after, "a %s changed by calls that failed: %+v, before %+v", k.name, after, before)
	}
	for _, c := range pathCalls {
		if !c.creates || c.name == "open_creat" || (c.on.special && !s.run.opt.Full) {
			continue
		}
		for _, dot := range []string{".", "..", "dir/.", "dir/.."} {
			want := unix.EEXIST
			if c.name == "rename_to" {
				want = unix.EBUSY
			}
			s.errno(want, c.run(s.root, dot), "%s of %q", c.name, dot)
		}
		s.errno(unix.ENOENT, c.run(s.root, "nosuch/."), "%s of %q", c.name, "nosuch/.")
	}
}

func createNlink(s *scene) {
	for _, k := range s.kinds() {
		s.create(k, k.name, 0o644)
		st := s.lstat(k.name)
		s.kind(k.name, k)
		if k.name == directory.name {
			s.nlink(k.name, 2)
			continue
		}
		s.nlink(k.name, 1)
		if k.name == symlink.name {
			eq(s, st.Size, int64(len("target-of-k")), "size of a symlink")
		} else {
			eq(s, st.Size, 0, "size of a %s", k.name)
		}
	}
}

// createDenied: a call that fails for want of permission on the directory makes nothing.
func createDenied(s *scene) {
	s.needRoot()
	s.mkdir("d", 0o755)
	s.create(regular, spare, 0o644)
	a := s.as(alice)
	for _, c := range pathCalls {
		if c.creates && (!c.on.special || s.run.opt.Full) && c.name != "link_to" {
			s.errno(unix.EACCES, c.run(a, "d/x"), "%s where alice may not", c.name)
			s.gone("d/x")
		}
	}
}
