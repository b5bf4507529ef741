//go:build linux

package posix

import (
	"math"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// testAccess: the cases of access(2) that testClass does not have.
func testAccess(s *scene) {
	s.sub("invalid", func(s *scene) {
		s.file("f", 0o644)
		s.errno(unix.EINVAL, s.root.Access("f", 8, 0), "a mode that does not exist")
		s.errno(unix.EINVAL, s.root.Access("f", math.MaxUint32, 0), "a mode that does not exist")
		s.errno(unix.EINVAL, s.root.Access("f", 0, 0x40000000), "a flag that does not exist")
	})
	s.sub("symlink", func(s *scene) {
		s.file("f", 0)
		s.must(s.root.Symlink("f", "l"), "symlink")
		s.must(s.root.Symlink("nosuch", "dangling"), "symlink")
		s.ok(s.root.Access("l", unix.F_OK, 0), "a link")
		s.errno(unix.ENOENT, s.root.Access("dangling", unix.F_OK, 0), "a dangling link")
		s.ok(s.root.Access("dangling", unix.F_OK, unix.AT_SYMLINK_NOFOLLOW), "a dangling link itself")
		s.needRoot()
		s.errno(unix.EACCES, s.as(alice).Access("l", unix.R_OK, 0), "what a link points at")
		s.ok(s.as(alice).Access("l", 7, unix.AT_SYMLINK_NOFOLLOW), "a link itself")
	})
	s.sub("changes", func(s *scene) { // after a change, access checks the new permissions
		s.needRoot()
		s.createAs(regular, "f", 0o600, alice)
		b := s.as(bob)
		for range 10 {
			s.errno(unix.EACCES, b.Access("f", unix.R_OK, 0), "before")
			s.must(s.as(alice).Chmod("f", 0o644), "chmod")
			s.ok(b.Access("f", unix.R_OK, 0), "after chmod")
			s.must(s.root.Lchown("f", bob.uid, bob.gid), "lchown")
			s.ok(b.Access("f", 6, 0), "after chown")
			s.must(s.root.Lchown("f", alice.uid, alice.gid), "lchown")
			s.must(s.as(alice).Chmod("f", 0o600), "chmod")
		}
	})
}

// testCwd: working directories and getcwd.
func testCwd(s *scene) {
	s.sub("chdir", func(s *scene) {
		s.mkdir("a", 0o755)
		s.mkdir("a/b", 0o755)
		s.must(s.root.Symlink("a/b", "l"), "symlink")
		real, err := filepath.EvalSymlinks(s.dir)
		s.must(err, "resolve the path of the scene")
		a := s.start()
		for _, c := range []struct{ to, want string }{{"a", "/a"}, {"b", "/a/b"}, {".", "/a/b"}, {"..", "/a"}, {"./b/..//", "/a"}, {"..", ""}, {"l", "/a/b"}, {"../..", ""}} {
			s.ok(a.Chdir(c.to), "chdir %q", c.to)
			cwd, err := a.Getcwd()
			s.ok(err, "getcwd")
			eq(s, cwd, real+c.want, "getcwd after %q", c.to)
		}
		s.must(a.Chdir("a/b"), "chdir")
		s.must(s.root.Rename("a", "c"), "rename")
		cwd, err := a.Getcwd()
		s.ok(err, "getcwd")
		eq(s, cwd, real+"/c/b", "getcwd after rename of the parent")
		s.must(regular.make(a, "f", 0o644), "create")
		s.kind("c/b/f", regular)
	})
	s.sub("ENOTDIR", func(s *scene) {
		for _, k := range s.kindsWithMode() {
			if k.name == directory.name {
				continue
			}
			s.create(k, k.name, 0o777)
			s.errno(unix.ENOTDIR, s.root.Chdir(k.name), "chdir to a %s", k.name)
		}
		fd, err := s.root.Open("file", unix.O_RDONLY, 0)
		s.must(err, "open")
		s.errno(unix.ENOTDIR, s.root.Fchdir(fd), "fchdir to a file")
		s.errno(unix.EBADF, s.root.Fchdir(987), "fchdir to a descriptor that is not open")
	})
	s.sub("permission", func(s *scene) {
		s.needRoot()
		s.createAs(directory, "d", 0o700, alice)
		a := s.as(alice)
		s.must(a.Chdir("d"), "chdir")
		s.must(s.root.Chmod("d", 0), "chmod")
		_, err := a.Stat(".")
		s.errno(unix.EACCES, err, "stat of . without search permission on the working directory")
		_, err = a.Stat("./x")
		s.errno(unix.EACCES, err, "stat below a working directory that lost its permission")
		s.errno(unix.EACCES, a.Chdir(".."), "chdir to .. without search permission on the working directory")
		s.must(s.root.Chmod("d", 0o700), "chmod")
		s.ok(a.Chdir(".."), "chdir to ..")
	})
}

// testStatfs: the numbers that statfs and fstatfs return are plausible.
func testStatfs(s *scene) {
	s.file("f", 0o644)
	s.mkdir("d", 0o755)
	top, err := s.root.Statfs(".")
	s.ok(err, "statfs")
	s.yes(top.Bsize > 0, "block size %d", top.Bsize)
	s.yes(top.Blocks > 0, "blocks %d", top.Blocks)
	s.yes(top.Bfree <= top.Blocks, "free blocks %d of %d", top.Bfree, top.Blocks)
	s.yes(top.Bavail <= top.Bfree, "available blocks %d of %d free", top.Bavail, top.Bfree)
	s.yes(top.Ffree <= top.Files, "free inodes %d of %d", top.Ffree, top.Files)
	s.yes(top.Namelen == 255, "longest name %d", top.Namelen)
	for _, p := range []string{"f", "d", "d/.."} {
		st, err := s.root.Statfs(p)
		s.ok(err, "statfs of %q", p)
		eq(s, st.Type, top.Type, "type at %q", p)
		eq(s, st.Blocks, top.Blocks, "blocks at %q", p)
	}
	fd := s.openLocal("f")
	s.must(s.root.Unlink("f"), "unlink")
	var st unix.Statfs_t
	s.ok(unix.Fstatfs(fd, &st), "fstatfs of a file without a name")
	eq(s, st.Type, top.Type, "type")
	s.errno(unix.EBADF, unix.Fstatfs(987, &st), "fstatfs of a descriptor that is not open")
}
