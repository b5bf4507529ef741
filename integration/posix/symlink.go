//go:build linux

package posix

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

func testSymlink(s *scene) {
	s.sub("targets", func(s *scene) {
		// Whatever the target is, it is kept as it was given.
		for i, target := range []string{
			"a", "a/b/c", "nosuch", "./x//y/../z/", "name with spaces", "line\nbreak", "\xff\xfe not UTF-8", "日本語", "tab\tand\\slash",
			strings.Repeat("n", 59), strings.Repeat("n", 60), strings.Repeat("n", 61), strings.Repeat("n", 255), strings.Repeat("n", 256),
			strings.Repeat("ab/", 300), strings.Repeat("t", 4094), strings.Repeat("t", 4095),
		} {
			p := fmt.Sprint("l", i)
			s.ok(s.root.Symlink(target, p), "symlink to %d bytes", len(target))
			got, err := s.root.Readlink(p)
			s.ok(err, "readlink of %d bytes", len(target))
			eq(s, got, target, "target")
			st := s.lstat(p)
			eq(s, st.Size, int64(len(target)), "size")
			eq(s, st.Mode, unix.S_IFLNK|0o777, "mode")
			eq(s, st.Nlink, 1, "links")
		}
	})
	s.sub("errors", func(s *scene) {
		s.errno(unix.ENAMETOOLONG, s.root.Symlink(strings.Repeat("t", 4096), "l"), "symlink to 4096 bytes")
		s.errno(unix.ENOENT, s.root.Symlink("", "l"), "symlink to nothing")
		s.gone("l")
		for _, k := range s.kindsWithMode() {
			s.create(k, k.name, 0o644)
			_, err := s.root.Readlink(k.name)
			s.errno(unix.EINVAL, err, "readlink of a %s", k.name)
		}
	})
	s.sub("truncated", func(s *scene) { // readlink fills a buffer that is too small, without an error
		s.must(s.root.Symlink("0123456789", "l"), "symlink")
		for _, n := range []int{1, 5, 10, 11} {
			buf := make([]byte, n)
			got, err := unix.Readlink(s.path("l"), buf)
			s.ok(err, "readlink into %d bytes", n)
			eq(s, got, min(n, 10), "length")
			eq(s, string(buf[:max(got, 0)]), "0123456789"[:min(n, 10)], "content")
		}
	})
	s.sub("chain", symlinkChain)
	s.sub("resolve", symlinkResolve)
	s.sub("replace", func(s *scene) { // a link is changed by renaming another over it
		s.content("a", "A")
		s.content("b", "B")
		s.must(s.root.Symlink("a", "l"), "symlink")
		eq(s, s.read("l"), "A", "through the link")
		s.must(s.root.Symlink("b", "new"), "symlink")
		s.ok(s.root.Rename("new", "l"), "rename over the link")
		eq(s, s.read("l"), "B", "through the new link")
		s.must(s.root.Unlink("l"), "unlink")
		s.must(s.root.Symlink("a", "l"), "symlink")
		eq(s, s.read("l"), "A", "through a link made again")
		s.must(s.root.Unlink("l"), "unlink")
		eq(s, s.read("a"), "A", "the target after unlink of the link")
	})
}

// symlinkChain: forty links are followed, not one more.
func symlinkChain(s *scene) {
	s.content("l0", "end")
	s.mkdir("d", 0o755)
	s.must(s.root.Symlink("d", "d1"), "symlink")
	for i := 1; i <= 42; i++ {
		s.must(s.root.Symlink(fmt.Sprint("l", i-1), fmt.Sprint("l", i)), "symlink")
	}
	eq(s, s.read("l40"), "end", "through 40 links")
	s.errno(unix.ELOOP, s.root.TryOpen("l41", unix.O_RDONLY, 0), "open through 41 links")
	_, err := s.root.Stat("l42")
	s.errno(unix.ELOOP, err, "stat through 42 links")
	_, err = s.root.Lstat("l42")
	s.ok(err, "lstat of the last link")
	// The limit is for the whole path, not for one element of it.
	s.must(s.root.Symlink(".", "d/here"), "symlink")
	_, err = s.root.Stat("d/" + strings.Repeat("here/", 40))
	s.ok(err, "a path with 40 links")
	_, err = s.root.Stat("d/" + strings.Repeat("here/", 41))
	s.errno(unix.ELOOP, err, "a path with 41 links")
}

func symlinkResolve(s *scene) {
	s.mkdir("a", 0o755)
	s.mkdir("a/b", 0o755)
	s.mkdir("c", 0o755)
	s.content("a/f", "in a")
	s.content("f", "outside")
	s.must(s.root.Symlink("../f", "a/up"), "symlink")
	s.must(s.root.Symlink("../a/b", "c/over"), "symlink")
	s.must(s.root.Symlink("a/b/../f", "round"), "symlink")
	s.must(s.root.Symlink("c/over", "twice"), "symlink")
	eq(s, s.read("a/up"), "outside", "relative to where the link is")
	eq(s, s.read("c/over/../f"), "in a", ".. after a link is the target's parent")
	eq(s, s.read("round"), "in a", "a target with ..")
	eq(s, s.read("twice/../up"), "outside", "links within a path and at its end")
	s.must(s.root.Rename("a/up", "c/up"), "rename")
	eq(s, s.read("c/up"), "outside", "a link that was moved to a directory like its own")
	s.must(s.root.Symlink("f", "file"), "symlink")
	_, err := s.root.Stat("file/")
	s.errno(unix.ENOTDIR, err, "a link to a file with a slash")
	st, err := s.root.Lstat("twice/")
	s.ok(err, "lstat of a link to a directory with a slash")
	eq(s, st.Mode&unix.S_IFMT, unix.S_IFDIR, "type of a link to a directory with a slash")
	s.errno(unix.ENOTDIR, s.root.Rmdir("twice"), "rmdir of a link to a directory")
	s.errno(unix.ENOTDIR, s.root.Rmdir("twice/"), "rmdir of a link to a directory with a slash")
	s.kind("twice", symlink)
	s.kind("a/b", directory)
}
