//go:build linux

package posix

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// oddNames are valid file names that programs may not expect. A name may have any
// bytes but NUL and the slash.
var oddNames = []string{
	" ", "  leading and trailing  ", "new\nline", "tab\t", "\r", "\x01\x1b[31m", "\x7f", "back\\slash", "quo'te\"s", "*?[x]", "$(x)`y`", "-rf", "--", "~", "#", "%2F%00", "a:b|c<d>e",
	"...", "....", ".hidden", "a.", "a ", "CON", "nul.txt", "\xff", "\xfe\xfe", "\xc3\x28", "\xe2\x82", "valid then \x80", "\xed\xa0\x80",
	"é", "e\u0301", "日本語", "🙂", "\u202egnp.exe", "\ufeffbom", "\u200b",
	strings.Repeat("x", 255), strings.Repeat("\xff", 255), strings.Repeat("é", 127),
	".fuse_hidden0000000100000001", ".nfs0001", ".Trash-0", "lost+found",
}

func testNames(s *scene) {
	s.sub("odd", func(s *scene) {
		s.mkdir("d", 0o755)
		for i, n := range oddNames {
			p := "d/" + n
			s.content(p, fmt.Sprint("content ", i))
			s.errno(unix.EEXIST, regular.make(s.root, p, 0o644), "create %q again", n)
		}
		got := count(s.list(s.openDir("d"), 4096))
		eq(s, len(got), len(oddNames)+2, "entries")
		for i, n := range oddNames {
			p := "d/" + n
			eq(s, got[n], 1, "entries called %q", n)
			eq(s, s.read(p), fmt.Sprint("content ", i), "content of %q", n)
			s.ok(s.root.Link(p, "other"), "link of %q", n)
			s.ok(s.root.Rename("other", p), "rename over itself of %q", n)
			s.ok(s.root.Unlink("other"), "unlink")
			s.ok(s.root.Symlink(n, "l"), "symlink to %q", n)
			s.ok(s.root.Unlink("l"), "unlink")
			s.ok(s.root.Unlink(p), "unlink of %q", n)
			s.ok(s.root.Mkdir(p, 0o755), "mkdir of %q", n)
			s.file(p+"/"+n, 0o644)
			s.ok(s.root.Unlink(p+"/"+n), "unlink of %q in %q", n, n)
			s.ok(s.root.Rmdir(p), "rmdir of %q", n)
		}
		eq(s, len(s.list(s.openDir("d"), 4096)), 2, "entries at the end")
	})
	s.sub("distinct", func(s *scene) { // names are bytes: nothing is folded or normalised
		names := []string{"a", "A", "é", "É", "e\u0301", "ß", "ss", "SS", "\u212b", "\u00c5", "A\u030a", "ﬁ", "fi", "a ", " a", "a.", "i", "I", "ı", "İ"}
		for _, n := range names {
			s.content(n, n)
		}
		for _, n := range names {
			eq(s, s.read(n), n, "content of %q", n)
		}
		eq(s, len(s.list(s.openDir("."), 4096)), len(names)+2, "entries")
		s.errno(unix.ENOENT, s.root.TryOpen("FI", unix.O_RDONLY, 0), "another case")
		s.ok(s.root.Rename("fi", "FI"), "rename that changes the case only")
		s.gone("fi")
		eq(s, s.read("FI"), "fi", "content")
	})
	s.sub("negative", func(s *scene) { // the cache of missing names does not hide a new file
		other := s.start()
		for i := range 20 {
			p := fmt.Sprint("n", i)
			_, err := s.root.Stat(p)
			s.errno(unix.ENOENT, err, "stat before")
			s.must(regular.make(other, p, 0o644), "create by another process")
			_, err = s.root.Stat(p)
			s.ok(err, "stat after")
			s.must(other.Unlink(p), "unlink by another process")
			_, err = s.root.Stat(p)
			s.errno(unix.ENOENT, err, "stat at the end")
		}
	})
}

// testDeep: directories so deep that a path to them is longer than PATH_MAX, reached by
// descriptors and by chdir in steps.
func testDeep(s *scene) {
	depth := 2000
	if s.run.opt.Light {
		depth = 250
	}
	name := strings.Repeat("d", 20) // the path has 42,000 bytes, with Light 5,250; PATH_MAX is 4,096
	s.mkdir("top", 0o755)
	fd, err := unix.Open(s.path("top"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	s.must(err, "open")
	step := func(dir int, name string) int {
		next, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			s.must(err, "openat %q", name)
		}
		unix.Close(dir)
		return next
	}
	for i := range depth {
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			s.must(err, "mkdirat at depth %d", i)
		}
		fd = step(fd, name)
	}
	s.deepWorks(fd)
	other := s.start()
	s.must(other.Chdir("top"), "chdir")
	for range depth {
		if err := other.Chdir(name); err != nil {
			s.must(err, "chdir")
		}
	}
	_, err = other.Getcwd()
	s.oneOf([]unix.Errno{unix.ENAMETOOLONG, unix.ERANGE}, err, "getcwd in a directory with too long a path")
	s.ok(other.TryOpen("by-name", unix.O_CREAT|unix.O_WRONLY, 0o644), "create in a directory with too long a path")
	s.ok(other.Unlink("by-name"), "unlink in a directory with too long a path")
	// A directory with so deep a tree in it can be renamed like any other.
	s.ok(s.root.Rename("top", "moved"), "rename of the top")
	s.ok(other.Mkdir("after", 0o755), "mkdir after the top was renamed")
	s.ok(other.Rmdir("after"), "rmdir after the top was renamed")
	for i := range depth {
		fd = step(fd, "..")
		if err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err != nil {
			s.must(err, "rmdir at depth %d", depth-i)
		}
	}
	var st unix.Stat_t
	s.ok(unix.Fstat(fd, &st), "fstat")
	eq(s, st.Ino, s.lstat("moved").Ino, "inode of the directory that .. led to")
	unix.Close(fd)
	s.ok(s.root.Rmdir("moved"), "rmdir of the top")
}

// deepWorks makes a few calls in a directory whose path is too long for any call.
func (s *scene) deepWorks(dir int) {
	s.Helper()
	f, err := unix.Openat(dir, "f", unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	s.must(err, "create")
	_, err = unix.Write(f, []byte("deep"))
	s.ok(err, "write")
	buf := make([]byte, 10)
	n, err := unix.Pread(f, buf, 0)
	s.ok(err, "pread")
	eq(s, string(buf[:max(n, 0)]), "deep", "content")
	s.ok(unix.Fchmod(f, 0o600), "fchmod")
	s.ok(unix.Ftruncate(f, 2), "ftruncate")
	s.must(unix.Close(f), "close")
	s.ok(unix.Linkat(dir, "f", dir, "g", 0), "linkat")
	s.ok(unix.Renameat(dir, "g", dir, "h"), "renameat")
	s.ok(unix.Symlinkat("h", dir, "l"), "symlinkat")
	var st unix.Stat_t
	s.ok(unix.Fstatat(dir, "l", &st, 0), "fstatat through a link")
	eq(s, st.Nlink, 2, "links")
	eq(s, st.Size, 2, "size")
	eq(s, len(s.list(dir, 4096)), 5, "entries")
	for _, n := range []string{"f", "h", "l"} {
		s.ok(unix.Unlinkat(dir, n, 0), "unlinkat")
	}
}
