//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// testRenamePairs renames an object of each type over an object of each type.
func testRenamePairs(s *scene) {
	for _, from := range s.kinds() {
		for _, to := range s.kinds() {
			s.sub(from.name+"_over_"+to.name, func(s *scene) { renamePair(s, from, to) })
		}
	}
}

// pairErrno returns the errno of renaming an object a over an object b, where from is the type of a
// and to is the type of b; 0 if the rename succeeds. If b is a directory, it must be empty.
func pairErrno(from, to kind) unix.Errno {
	fromDir, toDir := from.name == directory.name, to.name == directory.name
	switch {
	case fromDir && !toDir:
		return unix.ENOTDIR
	case !fromDir && toDir:
		return unix.EISDIR
	}
	return 0
}

func renamePair(s *scene, from, to kind) {
	s.create(from, "a", 0o740)
	s.create(to, "b", 0o704)
	a, b := s.lstat("a"), s.lstat("b")
	unchanged := func(what string) {
		s.Helper()
		eq(s, s.lstat("a").Ino, a.Ino, "source after %s", what)
		eq(s, s.lstat("b").Ino, b.Ino, "target after %s", what)
		eq(s, s.lstat("a").Mode, a.Mode, "mode of the source after %s", what)
		eq(s, s.lstat("b").Mode, b.Mode, "mode of the target after %s", what)
		eq(s, s.lstat("b").Nlink, b.Nlink, "links of the target after %s", what)
	}
	s.errno(unix.EEXIST, s.root.Rename2("a", "b", unix.RENAME_NOREPLACE), "NOREPLACE")
	unchanged("NOREPLACE")
	s.ok(s.root.Rename2("a", "b", unix.RENAME_EXCHANGE), "EXCHANGE")
	eq(s, s.lstat("a").Ino, b.Ino, "inode after EXCHANGE")
	eq(s, s.lstat("b").Ino, a.Ino, "inode after EXCHANGE")
	s.kind("a", to)
	s.kind("b", from)
	s.ok(s.root.Rename2("a", "b", unix.RENAME_EXCHANGE), "EXCHANGE back")
	unchanged("two EXCHANGEs")

	want := pairErrno(from, to)
	if to.name == directory.name {
		s.file("b/in", 0o644)
		full := want
		if full == 0 {
			full = unix.ENOTEMPTY
		}
		s.oneOf([]unix.Errno{full, unix.EEXIST}, s.root.Rename("a", "b"), "rename over a directory that is not empty")
		unchanged("rename over a directory that is not empty")
		s.kind("b/in", regular)
		s.remove(regular, "b/in")
	}
	s.errno(want, s.root.Rename("a", "b"), "rename")
	if want != 0 {
		unchanged("the failed rename")
		return
	}
	s.gone("a")
	st := s.lstat("b")
	eq(s, st.Ino, a.Ino, "inode after rename")
	eq(s, st.Mode, a.Mode, "mode after rename")
	eq(s, st.Nlink, a.Nlink, "links after rename")
}

// testRenameDir checks renames of directories.
func testRenameDir(s *scene) {
	s.sub("EINVAL", func(s *scene) { // a directory cannot move below itself
		s.mkdir("a", 0o755)
		s.mkdir("a/b", 0o755)
		s.mkdir("a/b/c", 0o755)
		for _, to := range []string{"a/x", "a/b/x", "a/b/c/x", "a/b/c"} {
			s.errno(unix.EINVAL, s.root.Rename("a", to), "rename of a to %s", to)
			s.oneOf([]unix.Errno{unix.EINVAL, unix.EEXIST}, s.root.Rename2("a", to, unix.RENAME_NOREPLACE), "NOREPLACE of a to %s", to)
		}
		s.errno(unix.EINVAL, s.root.Rename2("a", "a/b", unix.RENAME_EXCHANGE), "EXCHANGE of a directory with its subdirectory")
		s.errno(unix.EINVAL, s.root.Rename2("a/b", "a", unix.RENAME_EXCHANGE), "EXCHANGE of a directory with its parent")
		s.oneOf([]unix.Errno{unix.ENOTEMPTY, unix.EEXIST}, s.root.Rename("a/b/c", "a/b"), "rename to the parent")
		s.oneOf([]unix.Errno{unix.ENOTEMPTY, unix.EEXIST}, s.root.Rename("a/b/c", "a"), "rename to the parent's parent")
		s.file("a/f", 0o644)
		s.oneOf([]unix.Errno{unix.ENOTEMPTY, unix.EISDIR}, s.root.Rename("a/f", "a"), "rename of a file to its directory")
		s.kind("a/b/c", directory)
	})
	s.sub("tree", func(s *scene) { // the contents of a directory move with the directory
		s.mkdir("a", 0o755)
		s.mkdir("a/b", 0o755)
		s.mkdir("x", 0o755)
		for i := range 20 {
			s.content(fmt.Sprint("a/b/f", i), fmt.Sprint("content ", i))
		}
		fd, err := s.root.Open("a/b/f3", unix.O_RDONLY, 0)
		s.must(err, "open")
		dfd, err := s.root.Open("a/b", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		s.must(err, "open")
		other := s.start()
		s.must(other.Chdir("a/b"), "chdir")
		s.ok(s.root.Rename("a", "x/y"), "rename")
		s.gone("a")
		for i := range 20 {
			eq(s, s.read(fmt.Sprint("x/y/b/f", i)), fmt.Sprint("content ", i), "content after the move")
		}
		got, err := s.root.Read(fd, 100)
		s.ok(err, "read of an open file below")
		eq(s, got, "content 3", "content of an open file below")
		_, err = s.root.Openat(dfd, "f4", unix.O_RDONLY, 0)
		s.ok(err, "openat below an open directory")
		cwd, err := other.Getcwd()
		s.ok(err, "getcwd below")
		eq(s, cwd, s.path("x/y/b"), "getcwd below")
		_, err = other.Stat("../../../x")
		s.ok(err, "the new parents of a working directory")
	})
	s.sub("dotdot", func(s *scene) {
		s.mkdir("a", 0o755)
		s.mkdir("b", 0o755)
		s.mkdir("a/d", 0o755)
		s.mkdir("b/e", 0o755)
		s.must(s.root.Rename2("a/d", "b/e", unix.RENAME_EXCHANGE), "EXCHANGE")
		eq(s, s.lstat("a/d/..").Ino, s.lstat("a").Ino, ".. after EXCHANGE")
		eq(s, s.lstat("b/e/..").Ino, s.lstat("b").Ino, ".. after EXCHANGE")
		s.nlink("a", 3)
		s.file("b/f", 0o644)
		s.must(s.root.Rename2("a/d", "b/f", unix.RENAME_EXCHANGE), "EXCHANGE of a directory and a file")
		s.nlink("a", 2)
		s.nlink("b", 4)
		eq(s, s.lstat("b/f/..").Ino, s.lstat("b").Ino, ".. after EXCHANGE with a file")
	})
	s.sub("replaced", func(s *scene) { // a replaced directory has no links, and no file can be created in it
		s.mkdir("a", 0o755)
		s.mkdir("b", 0o755)
		fd, err := s.root.Open("b", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		s.must(err, "open")
		s.ok(s.root.Rename("a", "b"), "rename over an empty directory")
		st, err := s.root.Fstat(fd)
		s.ok(err, "fstat of the replaced directory")
		eq(s, st.Nlink, 0, "links of the replaced directory")
		_, err = s.root.Openat(fd, "f", unix.O_CREAT|unix.O_WRONLY, 0o644)
		s.errno(unix.ENOENT, err, "create in the replaced directory")
	})
}
