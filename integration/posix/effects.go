//go:build linux

package posix

import (
	"strings"

	"golang.org/x/sys/unix"
)

// touch says which times of an object a call changes. changes and free consist of the letters
// a (atime), m (mtime) and c (ctime). Times in neither of them must stay as they were.
type touch struct {
	path    string
	after   string // the path after the call, if the call renames the object
	changes string
	free    string // times that may change or not
}

// effects makes a call and compares times of objects before and after.
func (s *scene) effects(call func() error, what string, touches ...touch) {
	s.Helper()
	before := make([]unix.Stat_t, len(touches))
	for i, t := range touches {
		// Old times make an atime update due even under relatime.
		s.must(s.root.Utimens(t.path, unix.AT_SYMLINK_NOFOLLOW, past, past), "utimensat %q", t.path)
		before[i] = s.lstat(t.path)
	}
	s.tick()
	s.ok(call(), "%s", what)
	for i, t := range touches {
		p := t.path
		if t.after != "" {
			p = t.after
		}
		s.compare(before[i], s.lstat(p), t, what)
	}
}

func (s *scene) compare(before, after unix.Stat_t, t touch, what string) {
	s.Helper()
	for _, c := range []struct {
		letter string
		b, a   unix.Timespec
	}{{"a", before.Atim, after.Atim}, {"m", before.Mtim, after.Mtim}, {"c", before.Ctim, after.Ctim}} {
		switch {
		case strings.Contains(t.free, c.letter), c.letter == "a" && s.run.noatime:
		case strings.Contains(t.changes, c.letter):
			s.yes(later(c.a, c.b), "%s: %stime of %q did not advance: %v, before %v", what, c.letter, t.path, c.a, c.b)
		default:
			s.yes(c.a == c.b, "%s: %stime of %q changed: %v, before %v", what, c.letter, t.path, c.a, c.b)
		}
	}
}

// testEffects: which times each successful call changes.
func testEffects(s *scene) {
	s.sub("create", func(s *scene) {
		for _, k := range s.kinds() {
			s.mkdir("d", 0o755)
			s.mkdir("probe", 0o755)
			start := s.lstat("probe").Ctim
			s.effects(func() error { return k.make(s.root, "d/x", 0o644) }, "make a "+k.name, touch{path: "d", changes: "mc"}, touch{path: "."})
			st := s.lstat("d/x")
			s.yes(later(st.Ctim, start) && later(st.Mtim, start) && later(st.Atim, start), "times of a new %s: %v %v %v, want after %v", k.name, st.Atim, st.Mtim, st.Ctim, start)
			s.effects(func() error { return remove(s.root, k, "d/x") }, "remove a "+k.name, touch{path: "d", changes: "mc"}, touch{path: "."})
			s.remove(directory, "d")
			s.remove(directory, "probe")
		}
	})
	s.sub("attributes", func(s *scene) {
		for _, k := range s.kinds() {
			n := k.name
			s.create(k, n, 0o644)
			if k.name != symlink.name {
				s.effects(func() error { return s.root.Chmod(n, 0o600) }, "chmod of a "+n, touch{path: n, changes: "c"}, touch{path: "."})
				s.effects(func() error { return s.root.Chmod(n, 0o600) }, "chmod of a "+n+" to the same mode", touch{path: n, changes: "c"})
			}
			s.effects(func() error { return s.root.Lchown(n, self().uid, self().gid) }, "lchown of a "+n, touch{path: n, changes: "c"}, touch{path: "."})
			s.effects(func() error { return s.root.Utimens(n, unix.AT_SYMLINK_NOFOLLOW, past, past) }, "utimensat of a "+n, touch{path: n, changes: "c"}, touch{path: "."})
			s.effects(func() error { _, err := s.root.Lstat(n); return err }, "lstat of a "+n, touch{path: n}, touch{path: "."})
			s.effects(func() error { return s.root.Access(n, 0, unix.AT_SYMLINK_NOFOLLOW) }, "access of a "+n, touch{path: n}, touch{path: "."})
		}
	})
	s.sub("links", func(s *scene) {
		for _, k := range s.kinds() {
			if k.name == directory.name {
				continue
			}
			s.mkdir("d", 0o755)
			s.create(k, "x", 0o644)
			s.effects(func() error { return s.root.Link("x", "d/y") }, "link of a "+k.name, touch{path: "x", changes: "c"}, touch{path: "d", changes: "mc"}, touch{path: "."})
			s.effects(func() error { return s.root.Unlink("d/y") }, "unlink of one name of a "+k.name, touch{path: "x", changes: "c"}, touch{path: "d", changes: "mc"}, touch{path: "."})
			s.remove(k, "x")
			s.remove(directory, "d")
		}
	})
	s.sub("rename", effectsRename)
	s.sub("content", effectsContent)
	s.sub("reading", effectsReading)
}

func effectsRename(s *scene) {
	s.mkdir("d", 0o755)
	s.mkdir("e", 0o755)
	for _, k := range s.kinds() {
		s.create(k, "d/x", 0o644)
		s.effects(func() error { return s.root.Rename("d/x", "e/y") }, "rename of a "+k.name,
			touch{path: "d", changes: "mc"}, touch{path: "e", changes: "mc"}, touch{path: "d/x", after: "e/y", changes: "c", free: "m"}, touch{path: "."})
		s.effects(func() error { return s.root.Rename("e/y", "e/x") }, "rename of a "+k.name+" within a directory", touch{path: "e", changes: "mc"}, touch{path: "d"}, touch{path: "."})
		s.remove(k, "e/x")
		if k.name == directory.name {
			continue
		}
		s.create(k, "d/x", 0o644)
		s.file("e/victim", 0o644)
		s.must(s.root.Link("e/victim", "other"), "link")
		s.effects(func() error { return s.root.Rename("d/x", "e/victim") }, "rename of a "+k.name+" over a file",
			touch{path: "other", changes: "c"}, touch{path: "d", changes: "mc"}, touch{path: "e", changes: "mc"})
		s.remove(regular, "other")
		s.remove(k, "e/victim")
		s.create(k, "d/x", 0o644)
		s.file("e/x", 0o644)
		s.effects(func() error { return s.root.Rename2("d/x", "e/x", unix.RENAME_EXCHANGE) }, "EXCHANGE with a "+k.name,
			touch{path: "d", changes: "mc"}, touch{path: "e", changes: "mc"}, touch{path: "d/x", after: "e/x", changes: "c"}, touch{path: "e/x", after: "d/x", changes: "c"})
		s.remove(k, "e/x")
		s.remove(regular, "d/x")
	}
}

func effectsContent(s *scene) {
	s.content("f", "some content")
	fd, err := s.root.Open("f", unix.O_RDWR, 0)
	s.must(err, "open")
	f := touch{path: "f", changes: "mc"}
	s.effects(func() error { _, err := s.root.Write(fd, "x"); return err }, "write", f, touch{path: "."})
	s.effects(func() error { _, err := s.root.Write(fd, ""); return err }, "write of nothing", touch{path: "f"})
	s.effects(func() error { return s.root.Ftruncate(fd, 5) }, "ftruncate, shrinking", f, touch{path: "."})
	s.effects(func() error { return s.root.Ftruncate(fd, 50) }, "ftruncate, growing", f)
	s.effects(func() error { return s.root.Truncate("f", 5) }, "truncate, shrinking", f, touch{path: "."})
	s.effects(func() error { return s.root.Truncate("f", 50) }, "truncate, growing", f)
	s.effects(func() error { return s.root.TryOpen("f", unix.O_WRONLY|unix.O_TRUNC, 0) }, "O_TRUNC", f, touch{path: "."})
	s.effects(func() error { return s.root.TryOpen("f", unix.O_WRONLY|unix.O_TRUNC, 0) }, "O_TRUNC of an empty file", f)
	s.effects(func() error { return s.root.TryOpen("f", unix.O_CREAT|unix.O_RDWR, 0o644) }, "O_CREAT of a file that is there", touch{path: "f"}, touch{path: "."})
	s.effects(func() error { return s.root.Setxattr("f", "user.x", "v", 0) }, "setxattr", touch{path: "f", changes: "c"}, touch{path: "."})
	s.effects(func() error { return s.root.Removexattr("f", "user.x") }, "removexattr", touch{path: "f", changes: "c"}, touch{path: "."})
	lfd := s.openLocal("f")
	s.effects(func() error { return unix.Fallocate(lfd, 0, 0, 10000) }, "fallocate", f)
	s.effects(func() error { return unix.Fallocate(lfd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 8192) }, "fallocate, punching", f)
}

func effectsReading(s *scene) {
	s.content("f", "some content")
	fd, err := s.root.Open("f", unix.O_RDONLY, 0)
	s.must(err, "open")
	s.effects(func() error { _, err := s.root.Read(fd, 4); return err }, "read", touch{path: "f", changes: "a"}, touch{path: "."})
	s.mkdir("d", 0o755)
	s.file("d/x", 0o644)
	lfd, err := unix.Open(s.path("d"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	s.must(err, "open")
	defer unix.Close(lfd)
	s.effects(func() error { _, err := unix.Getdents(lfd, make([]byte, 4096)); return err }, "getdents", touch{path: "d", changes: "a"}, touch{path: "."})
	s.must(s.root.Symlink("f", "l"), "symlink")
	s.effects(func() error { _, err := s.root.Readlink("l"); return err }, "readlink", touch{path: "l", changes: "a"}, touch{path: "f"})
	s.effects(func() error { return s.root.TryOpen("f", unix.O_RDONLY, 0) }, "open", touch{path: "f"}, touch{path: "."})
	s.effects(func() error { _, _, err := s.root.Listxattr("f", 100); return err }, "listxattr", touch{path: "f"})
}

// testNoEffects: a call that fails changes no attributes, neither of the object
// nor of its directory.
func testNoEffects(s *scene) {
	s.needRoot()
	for _, k := range s.kinds() {
		s.sub(k.name, func(s *scene) {
			s.mkdir("d", 0o755)
			s.create(k, "d/x", 0o644)
			s.mkdir("e", 0o755)
			a := s.as(alice)
			if k.name == directory.name {
				s.file("d/x/full", 0o644)
			}
			var st [3]unix.Stat_t
			for i, p := range []string{"d", "d/x", "e"} {
				st[i] = s.lstat(p)
			}
			s.tick()
			for _, c := range failingCalls(a, s.root, k) {
				s.yes(c.err() != nil, "%s of a %s succeeded", c.name, k.name)
				for i, p := range []string{"d", "d/x", "e"} {
					s.yes(s.lstat(p) == st[i], "%s of a %s failed and changed %q: %+v, before %+v", c.name, k.name, p, s.lstat(p), st[i])
				}
			}
		})
	}
}

// failingCalls lists calls that must fail: alice's for want of permission, root's because of the
// objects that exist.
func failingCalls(a, root *Actor, k kind) []struct {
	name string
	err  func() error
} {
	return []struct {
		name string
		err  func() error
	}{
		{"unlink", func() error { return a.Unlink("d/x") }},
		{"rmdir", func() error { return a.Rmdir("d/x") }},
		{"rename", func() error { return a.Rename("d/x", "e/x") }},
		{"link", func() error { return a.Link("d/x", "e/x") }},
		{"fchmodat2", func() error { return a.Fchmodat("d/x", 0o777, unix.AT_SYMLINK_NOFOLLOW) }},
		{"lchown", func() error { return a.Lchown("d/x", alice.uid, alice.gid) }},
		{"utimensat", func() error { return a.Utimens("d/x", unix.AT_SYMLINK_NOFOLLOW, past, past) }},
		{"lsetxattr", func() error { return a.Lsetxattr("d/x", "user.x", "v") }},
		{"mkdir", func() error { return a.Mkdir("d/y", 0o755) }},
		{"mkdir over", func() error { return root.Mkdir("d/x", 0o755) }},
		{"symlink over", func() error { return root.Symlink("t", "d/x") }},
		{"link over", func() error { return root.Link("d/x", "d/x") }},
		{"open O_EXCL", func() error { return root.TryOpen("d/x", unix.O_CREAT|unix.O_EXCL, 0o644) }},
		{"the wrong call for the removal", func() error {
			if k.name == directory.name {
				return root.Unlink("d/x")
			}
			return root.Rmdir("d/x")
		}},
		{"rename over a directory", func() error { return root.Rename("e", "d") }},
		{"NOREPLACE", func() error { return root.Rename2("e", "d/x", unix.RENAME_NOREPLACE) }},
		{"rmdir of the parent", func() error { return root.Rmdir("d") }},
	}
}
