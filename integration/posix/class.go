//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// class is one of the three sets of permission bits, and a user to whom the set applies.
type class struct {
	name  string
	who   cred
	shift uint // of the class's bits in the mode
}

// classes are for objects of alice's uid and bob's gid. The class depends on the user who
// asks, not on the bits: an owner without a bit is denied even if all other classes have the bit.
var classes = []class{
	{"owner", alice, 6},
	{"owner_and_group", cred{alice.uid, bob.gid, nil}, 6},
	{"group", cred{carol.uid, bob.gid, nil}, 3},
	{"supplementary", carol.in(bob.gid), 3},
	{"other", carol, 0},
	{"other_with_groups", carol.in(alice.gid, 65431), 0},
}

// mode returns a mode that grants bits to the class and all other bits to the two other classes.
func (c class) mode(bits uint32) uint32 {
	return 0o777&^(7<<c.shift)&^(bits*0o111) | bits<<c.shift
}

// accessErrno returns 0 if the permissions in bits include all of want, otherwise EACCES.
func accessErrno(bits, want uint32) unix.Errno {
	if bits&want == want {
		return 0
	}
	return unix.EACCES
}

// testClass checks the rights of a user of each class, for each value of the class's bits.
func testClass(s *scene) {
	s.needRoot()
	for _, c := range classes {
		s.sub("file_"+c.name, func(s *scene) { classFile(s, c) })
		s.sub("dir_"+c.name, func(s *scene) { classDir(s, c) })
		s.sub("fifo_"+c.name, func(s *scene) { s.needFull(); classAccess(s, c, fifo) })
	}
	s.sub("root", classRoot)
}

func classFile(s *scene, c class) {
	classAccess(s, c, regular)
	a := s.as(c.who)
	for bits := uint32(0); bits < 8; bits++ {
		s.must(s.root.Chmod("o", c.mode(bits)), "chmod")
		what := fmt.Sprintf("%s of mode %#o", c.name, c.mode(bits))
		s.errno(accessErrno(bits, 4), a.TryOpen("o", unix.O_RDONLY, 0), "open for reading: %s", what)
		s.errno(accessErrno(bits, 2), a.TryOpen("o", unix.O_WRONLY, 0), "open for writing: %s", what)
		s.errno(accessErrno(bits, 2), a.TryOpen("o", unix.O_WRONLY|unix.O_APPEND, 0), "open for appending: %s", what)
		s.errno(accessErrno(bits, 6), a.TryOpen("o", unix.O_RDWR, 0), "open for reading and writing: %s", what)
		s.errno(accessErrno(bits, 6), a.TryOpen("o", unix.O_TRUNC, 0), "open O_RDONLY|O_TRUNC: %s", what)
		s.errno(accessErrno(bits, 2), a.TryOpen("o", unix.O_WRONLY|unix.O_CREAT, 0o600), "open O_CREAT: %s", what)
		s.errno(accessErrno(bits, 2), a.Truncate("o", 0), "truncate: %s", what)
		_, _, err := a.Getxattr("o", "user.x", 64, 0)
		want := accessErrno(bits, 4)
		if want == 0 {
			want = unix.ENODATA
		}
		s.errno(want, err, "getxattr: %s", what)
		s.errno(accessErrno(bits, 2), a.Setxattr("o", "user.y", "v", 0), "setxattr: %s", what)
		if bits&2 != 0 {
			s.must(a.Removexattr("o", "user.y"), "removexattr: %s", what)
		}
	}
}

// classAccess checks access(2), which needs no permission on the object itself.
func classAccess(s *scene, c class, k kind) {
	s.createAs(k, "o", 0, cred{alice.uid, bob.gid, nil})
	a := s.as(c.who)
	for bits := uint32(0); bits < 8; bits++ {
		s.must(s.root.Chmod("o", c.mode(bits)), "chmod")
		for want := uint32(0); want < 8; want++ {
			s.errno(accessErrno(bits, want), a.Access("o", want, 0), "access %d of a %s: %s of mode %#o", want, k.name, c.name, c.mode(bits))
		}
	}
}

func classDir(s *scene, c class) {
	s.createAs(directory, "d", 0o700, cred{alice.uid, bob.gid, nil})
	s.create(regular, "d/f", 0o666)
	a := s.as(c.who)
	for bits := uint32(0); bits < 8; bits++ {
		s.must(s.root.Chmod("d", c.mode(bits)), "chmod")
		what := fmt.Sprintf("%s of mode %#o", c.name, c.mode(bits))
		s.errno(accessErrno(bits, 4), a.TryOpen("d", unix.O_RDONLY|unix.O_DIRECTORY, 0), "list: %s", what)
		_, err := a.Stat("d/f")
		s.errno(accessErrno(bits, 1), err, "stat below: %s", what)
		s.errno(accessErrno(bits, 1), a.TryOpen("d/f", unix.O_RDWR, 0), "open below: %s", what)
		s.errno(accessErrno(bits, 1), inAndOut(a, "d"), "chdir: %s", what)
		s.errno(accessErrno(bits, 3), a.Mkdir("d/n", 0o755), "mkdir below: %s", what)
		s.errno(accessErrno(bits, 3), a.TryOpen("d/m", unix.O_CREAT|unix.O_WRONLY, 0o644), "create below: %s", what)
		if bits&3 == 3 {
			s.ok(a.Rename("d/m", "d/o"), "rename below: %s", what)
			s.ok(a.Link("d/o", "d/p"), "link below: %s", what)
			s.ok(a.Unlink("d/o"), "unlink below: %s", what)
			s.ok(a.Unlink("d/p"), "unlink below: %s", what)
			s.ok(a.Rmdir("d/n"), "rmdir below: %s", what)
			continue
		}
		s.errno(unix.EACCES, a.Unlink("d/f"), "unlink below: %s", what)
		s.errno(unix.EACCES, a.Rename("d/f", "d/g"), "rename below: %s", what)
	}
}

// classRoot: root passes every check, but cannot execute a file without any execute bit.
func classRoot(s *scene) {
	for _, k := range s.kindsWithMode() {
		s.createAs(k, k.name, 0, alice)
		s.ok(s.root.Access(k.name, 6, 0), "root: read and write access to a %s of mode 0", k.name)
		if k.name == directory.name {
			s.ok(s.root.Access(k.name, 7, 0), "root: all access to a directory of mode 0")
			s.ok(s.root.Mkdir(k.name+"/x", 0o700), "root: mkdir below mode 0")
			continue
		}
		s.errno(unix.EACCES, s.root.Access(k.name, 1, 0), "root: execute access to a %s of mode 0", k.name)
		for _, x := range []uint32{0o100, 0o010, 0o001} {
			s.must(s.root.Chmod(k.name, x), "chmod")
			s.ok(s.root.Access(k.name, 1, 0), "root: execute access to a %s of mode %#o", k.name, x)
		}
	}
	s.must(s.root.Chmod("file", 0), "chmod")
	s.ok(s.root.TryOpen("file", unix.O_RDWR, 0), "root: open mode 0")
}
