//go:build linux

package posix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func testRename(s *scene) {
	s.sub("kinds", func(s *scene) {
		s.mkdir("d", 0o755)
		for _, k := range s.kinds() {
			s.create(k, k.name, 0o640)
			before := s.lstat(k.name)
			s.ok(s.root.Rename(k.name, "n"), "rename of a %s", k.name)
			s.gone(k.name)
			after := s.lstat("n")
			s.yes(after.Ino == before.Ino && after.Mode == before.Mode && after.Size == before.Size && after.Nlink == before.Nlink && after.Mtim == before.Mtim,
				"a %s changed when it was renamed: %+v, before %+v", k.name, after, before)
			s.ok(s.root.Rename("n", "d/n"), "rename of a %s into a directory", k.name)
			s.gone("n")
			eq(s, s.lstat("d/n").Ino, before.Ino, "inode of a %s in a directory", k.name)
			s.ok(s.root.Rename("d/n", "d/n"), "rename of a %s to itself", k.name)
			eq(s, s.lstat("d/n").Ino, before.Ino, "inode of a %s renamed to itself", k.name)
			s.remove(k, "d/n")
		}
	})
	s.sub("same_file", func(s *scene) { // a rename between two names of one file succeeds and changes nothing
		for _, k := range s.kinds() {
			if k.name == directory.name {
				continue
			}
			s.create(k, "a", 0o644)
			s.must(s.root.Link("a", "b"), "link")
			s.ok(s.root.Rename("a", "b"), "rename of a %s over its other name", k.name)
			s.nlink("a", 2)
			s.nlink("b", 2)
			s.errno(unix.EEXIST, s.root.Rename2("a", "b", unix.RENAME_NOREPLACE), "NOREPLACE of a %s over its other name", k.name)
			s.ok(s.root.Rename2("a", "b", unix.RENAME_EXCHANGE), "EXCHANGE of a %s with its other name", k.name)
			s.nlink("a", 2)
			s.remove(k, "a")
			s.remove(k, "b")
		}
	})
	s.sub("symlink", func(s *scene) {
		s.content("f", "content")
		s.must(s.root.Symlink("f", "l"), "symlink")
		s.ok(s.root.Rename("l", "m"), "rename of a link")
		s.kind("m", symlink)
		s.content("g", "over")
		s.ok(s.root.Rename("g", "m"), "rename over a link")
		s.kind("m", regular)
		eq(s, s.read("f"), "content", "the target of the link that was replaced")
	})
	s.sub("open", renameOpen)
	s.sub("dots", func(s *scene) {
		s.mkdir("d", 0o755)
		s.mkdir("e", 0o755)
		for _, p := range []string{".", "..", "d/.", "d/.."} {
			s.oneOf([]unix.Errno{unix.EBUSY, unix.EINVAL}, s.root.Rename(p, "n"), "rename of %q", p)
			s.oneOf([]unix.Errno{unix.EBUSY, unix.EINVAL}, s.root.Rename("e", p), "rename to %q", p)
		}
		s.kind("e", directory)
		s.gone("n")
	})
	s.sub("flags", func(s *scene) {
		s.content("a", "A")
		s.content("b", "B")
		s.errno(unix.EINVAL, s.root.Rename2("a", "b", unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE), "NOREPLACE with EXCHANGE")
		s.errno(unix.EINVAL, s.root.Rename2("a", "b", 1<<20), "a flag that does not exist")
		s.errno(unix.ENOENT, s.root.Rename2("a", "nosuch", unix.RENAME_EXCHANGE), "EXCHANGE with nothing")
		s.errno(unix.ENOENT, s.root.Rename2("nosuch", "a", unix.RENAME_EXCHANGE), "EXCHANGE of nothing")
		s.errno(unix.EEXIST, s.root.Rename2("a", "a", unix.RENAME_NOREPLACE), "NOREPLACE to itself")
		eq(s, s.read("a"), "A", "content")
		eq(s, s.read("b"), "B", "content")
	})
	s.sub("slash", func(s *scene) {
		s.mkdir("d", 0o755)
		s.file("f", 0o644)
		s.ok(s.root.Rename("d/", "e/"), "rename of a directory with slashes")
		s.kind("e", directory)
		s.errno(unix.ENOTDIR, s.root.Rename("f", "g/"), "rename of a file to a name with a slash")
		s.errno(unix.ENOTDIR, s.root.Rename("f/", "g"), "rename of a file with a slash")
		s.kind("f", regular)
	})
	s.sub("permission", renamePermission)
}

// renameOpen: an open file stays the same file, whatever happens to its names.
func renameOpen(s *scene) {
	s.content("a", "old a")
	s.content("b", "old b")
	fa, err := s.root.Open("a", unix.O_RDWR, 0)
	s.must(err, "open")
	fb, err := s.root.Open("b", unix.O_RDWR, 0)
	s.must(err, "open")
	s.ok(s.root.Rename("a", "b"), "rename over an open file")
	got, err := s.root.Read(fb, 100)
	s.ok(err, "read of the file that was replaced")
	eq(s, got, "old b", "content of the file that was replaced")
	st, err := s.root.Fstat(fb)
	s.ok(err, "fstat of the file that was replaced")
	eq(s, st.Nlink, 0, "links of the file that was replaced")
	st, err = s.root.Fstat(fa)
	s.ok(err, "fstat of the file that was renamed")
	eq(s, st.Nlink, 1, "links of the file that was renamed")
	_, err = s.root.Write(fa, "new")
	s.ok(err, "write to the file that was renamed")
	eq(s, s.read("b"), "new a", "content under the new name")
	_, err = s.root.Write(fb, "++")
	s.ok(err, "write to the file that was replaced")
	eq(s, s.read("b"), "new a", "content after a write to the replaced file")
	s.gone("a")
}

// renamePermission: the user needs write and search permission on both parent directories. A
// directory that moves to another parent must be writable itself, because its ".." changes.
func renamePermission(s *scene) {
	s.needRoot()
	a := s.as(alice)
	for i, c := range []struct {
		from, to uint32 // modes of the directories, which are alice's
		want     unix.Errno
	}{{0o755, 0o755, 0}, {0o555, 0o755, unix.EACCES}, {0o755, 0o555, unix.EACCES}, {0o300, 0o300, 0}, {0o600, 0o755, unix.EACCES}, {0o755, 0o600, unix.EACCES}} {
		for _, k := range s.kinds() {
			from, to := fmt.Sprint("from", i, k.name), fmt.Sprint("to", i, k.name)
			s.createAs(directory, from, 0o755, alice)
			s.createAs(directory, to, 0o755, alice)
			s.createAs(k, from+"/x", 0o700, alice)
			s.must(s.root.Chmod(from, c.from), "chmod")
			s.must(s.root.Chmod(to, c.to), "chmod")
			s.errno(c.want, a.Rename(from+"/x", to+"/x"), "rename of a %s from mode %#o to mode %#o", k.name, c.from, c.to)
			s.movedOrNot(c.want, k, from+"/x", to+"/x")
		}
	}
	s.createAs(directory, "p", 0o777, alice)
	s.createAs(directory, "q", 0o777, alice)
	s.createAs(directory, "p/d", 0o755, bob)
	s.ok(a.Rename("p/d", "p/e"), "rename of bob's directory within its parent")
	s.errno(unix.EACCES, a.Rename("p/e", "q/e"), "rename of bob's directory to another parent")
	s.must(s.root.Chmod("p/e", 0o777), "chmod")
	s.ok(a.Rename("p/e", "q/e"), "rename of bob's writable directory to another parent")
	s.createAs(directory, "own", 0o555, alice)
	s.ok(a.run(command{Op: "chmod", P: []byte("own"), Mode: 0o555}), "chmod")
	s.must(s.root.Rename("own", "p/own"), "rename")
	s.errno(unix.EACCES, a.Rename("p/own", "q/own"), "rename of one's own read-only directory to another parent")
}
