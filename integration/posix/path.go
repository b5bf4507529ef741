//go:build linux

package posix

import (
	"strings"

	"golang.org/x/sys/unix"
)

// testPath checks that every call of pathCalls fails with the errors of path resolution.
func testPath(s *scene) {
	for _, c := range pathCalls {
		if c.on.special && !s.run.opt.Full {
			continue
		}
		s.sub(c.name, func(s *scene) {
			s.sub("component", func(s *scene) { c.component(s) })
			s.sub("toolong", func(s *scene) { c.tooLong(s) })
			s.sub("missing", func(s *scene) { c.missing(s) })
			s.sub("loop", func(s *scene) { c.loop(s) })
			s.sub("slash", func(s *scene) { c.slash(s) })
			s.sub("works", func(s *scene) { c.works(s) })
			s.sub("search", func(s *scene) { c.search(s) })
			s.sub("parentwrite", func(s *scene) { c.parentWrite(s) })
		})
	}
}

// prepare makes the file spare and, unless the call creates p, the object that the call needs at p.
// prepare leaves an existing object alone. With Options.Root a new object belongs to owner.
func (c pathCall) prepare(s *scene, p string, owner cred) {
	s.Helper()
	for _, q := range []string{spare, p} {
		if _, err := s.root.Lstat(q); err == nil {
			continue
		}
		k := regular
		if q == p && p != spare {
			if c.creates {
				continue
			}
			k = c.on
		}
		s.create(k, q, 0o755)
		if s.run.opt.Root {
			s.give(q, owner)
		}
	}
	if strings.HasSuffix(c.name, "getxattr") || c.name == "removexattr" {
		s.must(s.root.Setxattr(p, "user.there", "v", 0), "setxattr")
	}
}

// reset removes the result of a successful call.
func (c pathCall) reset(s *scene, p string) {
	s.root.Unlink("made")
	if c.creates {
		s.root.Unlink(p)
		s.root.Rmdir(p)
	}
}

// component: ENOTDIR if an element of the prefix is not a directory. A link to a
// directory in the prefix is followed.
func (c pathCall) component(s *scene) {
	c.prepare(s, spare, self())
	for _, k := range s.kinds() {
		if k.name == directory.name || k.name == symlink.name {
			continue
		}
		s.create(k, k.name, 0o777)
		s.errno(unix.ENOTDIR, c.run(s.root, k.name+"/x"), "%s below a %s", c.name, k.name)
		s.errno(unix.ENOTDIR, c.run(s.root, k.name+"/../x"), "%s through .. of a %s", c.name, k.name)
	}
	s.must(s.root.Symlink("file", "tofile"), "symlink")
	s.errno(unix.ENOTDIR, c.run(s.root, "tofile/x"), "%s below a link to a file", c.name)
	s.mkdir("d", 0o755)
	s.must(s.root.Symlink("d", "tod"), "symlink")
	c.prepare(s, "d/t", self())
	s.ok(c.run(s.root, "tod/t"), "%s below a link to a directory", c.name)
}

// tooLong: a name of 255 bytes and a path of 4095 are the longest.
func (c pathCall) tooLong(s *scene) {
	name := strings.Repeat("n", unix.NAME_MAX)
	c.prepare(s, name, self())
	s.ok(c.run(s.root, name), "%s of a name of 255 bytes", c.name)
	c.reset(s, name)
	c.prepare(s, spare, self())
	s.errno(unix.ENAMETOOLONG, c.run(s.root, name+"n"), "%s of a name of 256 bytes", c.name)
	s.errno(unix.ENAMETOOLONG, c.run(s.root, name+"n/x"), "%s below a name of 256 bytes", c.name)

	c.prepare(s, "tt", self())
	long := strings.Repeat("./", (unix.PathMax-4)/2) + "/tt" // 4095 bytes and a NUL
	if len(long) != unix.PathMax-1 {
		s.Fatalf("the long path has %d bytes", len(long))
	}
	s.ok(c.run(s.root, long), "%s of a path of 4095 bytes", c.name)
	c.reset(s, "tt")
	c.prepare(s, spare, self())
	c.prepare(s, "tt", self())
	s.errno(unix.ENAMETOOLONG, c.run(s.root, "/"+long), "%s of a path of 4096 bytes", c.name)
	s.errno(unix.ENAMETOOLONG, c.run(s.root, long+long), "%s of a path of 8190 bytes", c.name)
}

// missing: ENOENT for an element that does not exist, and for an empty path.
func (c pathCall) missing(s *scene) {
	c.prepare(s, spare, self())
	s.must(s.root.Symlink("nowhere", "dangling"), "symlink")
	s.errno(unix.ENOENT, c.run(s.root, "nosuch/x"), "%s below nothing", c.name)
	s.errno(unix.ENOENT, c.run(s.root, "dangling/x"), "%s below a dangling link", c.name)
	s.errno(unix.ENOENT, c.run(s.root, ""), "%s of an empty path", c.name)
	if !c.creates {
		s.errno(unix.ENOENT, c.run(s.root, "nosuch"), "%s of nothing", c.name)
	}
	if c.follows() && !c.creates {
		s.errno(unix.ENOENT, c.run(s.root, "dangling"), "%s of a dangling link", c.name)
	}
}

// loop: ELOOP where links point at each other or at themselves.
func (c pathCall) loop(s *scene) {
	c.prepare(s, spare, self())
	s.must(s.root.Symlink("b", "a"), "symlink")
	s.must(s.root.Symlink("a", "b"), "symlink")
	s.must(s.root.Symlink("me", "me"), "symlink")
	s.errno(unix.ELOOP, c.run(s.root, "a/x"), "%s below a loop of two", c.name)
	s.errno(unix.ELOOP, c.run(s.root, "me/x"), "%s below a loop of one", c.name)
	if c.follows() {
		s.errno(unix.ELOOP, c.run(s.root, "a"), "%s of a loop of two", c.name)
		s.errno(unix.ELOOP, c.run(s.root, "me"), "%s of a loop of one", c.name)
	}
}

// slash: a path that ends in a slash names a directory or nothing.
func (c pathCall) slash(s *scene) {
	s.file("f", 0o644)
	c.prepare(s, spare, self())
	if c.creates {
		want := unix.ENOENT
		switch c.name {
		case "mkdir":
			want = 0
		case "open_creat", "open_excl":
			want = unix.EISDIR
		case "rename_to", "renameat2_to":
			want = unix.ENOTDIR
		}
		s.errno(want, c.run(s.root, "new/"), "%s of a new name with a slash", c.name)
		return
	}
	want := unix.ENOTDIR
	s.errno(want, c.run(s.root, "f/"), "%s of a file with a slash", c.name)
	if c.on.name == directory.name {
		s.mkdir("d", 0o755)
		s.ok(c.run(s.root, "d//"), "%s of a directory with slashes", c.name)
	}
}

// works: the call succeeds on good paths, so the errors of the other cases come from their paths.
func (c pathCall) works(s *scene) {
	for _, p := range []string{"t", "./t", ".//t", "d/../t", "d/./../t"} {
		if _, err := s.root.Lstat("d"); err != nil {
			s.mkdir("d", 0o755)
		}
		c.prepare(s, spare, self())
		c.prepare(s, "t", self())
		s.ok(c.run(s.root, p), "%s of %q", c.name, p)
		_, err := s.root.Lstat("t")
		if c.removes {
			s.errno(unix.ENOENT, err, "%q after %s", p, c.name)
		} else {
			s.ok(err, "%q after %s", p, c.name)
			s.kind("t", c.on)
		}
		c.reset(s, "t")
	}
}

// search: EACCES where the prefix may not be searched, whatever the mode of the object
// itself.
func (c pathCall) search(s *scene) {
	s.needRoot()
	s.mkdir("top", 0o777)
	al := s.as(alice)
	s.must(al.Chdir("top"), "chdir")
	defer al.Chdir("..")
	s.must(s.root.Chdir("top"), "chdir")
	defer s.root.Chdir("..")
	s.mkdir("d", 0o755)
	s.mkdir("d/e", 0o777)
	c.prepare(s, "d/e/t", alice)
	for _, cls := range []struct {
		owner           cred
		denied, allowed uint32
	}{
		{alice, 0o677, 0o100}, {cred{bob.uid, alice.gid, nil}, 0o767, 0o010}, {bob, 0o776, 0o001},
	} {
		s.give("d", cls.owner)
		s.must(s.root.Chmod("d", cls.denied), "chmod")
		s.errno(unix.EACCES, c.run(al, "d/e/t"), "%s below mode %#o", c.name, cls.denied)
		s.must(s.root.Chmod("d", cls.allowed), "chmod")
		c.prepare(s, spare, alice)
		c.prepare(s, "d/e/t", alice)
		s.ok(c.run(al, "d/e/t"), "%s below mode %#o", c.name, cls.allowed)
		c.reset(s, "d/e/t")
	}
}

// parentWrite: making and removing a name requires write permission on the name's directory.
func (c pathCall) parentWrite(s *scene) {
	s.needRoot()
	if !c.creates && !c.removes {
		return
	}
	s.mkdir("top", 0o777)
	s.must(s.root.Chdir("top"), "chdir")
	defer s.root.Chdir("..")
	al := s.as(alice)
	s.must(al.Chdir("top"), "chdir")
	defer al.Chdir("..")
	s.mkdir("d", 0o555)
	s.give("d", alice)
	c.prepare(s, "d/t", alice)
	s.errno(unix.EACCES, c.run(al, "d/t"), "%s in mode 0555", c.name)
	_, err := s.root.Lstat("d/t")
	if c.creates {
		s.errno(unix.ENOENT, err, "after the failed %s", c.name)
	} else {
		s.ok(err, "after the failed %s", c.name)
	}
	s.must(s.root.Chmod("d", 0o300), "chmod")
	s.ok(c.run(al, "d/t"), "%s in mode 0300", c.name)
}
