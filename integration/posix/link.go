//go:build linux

package posix

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func testLink(s *scene) {
	s.sub("kinds", linkKinds)
	s.sub("EEXIST", func(s *scene) {
		for _, from := range s.kinds() {
			if from.name == directory.name {
				continue
			}
			s.create(from, "from", 0o644)
			for _, to := range s.kinds() {
				s.create(to, "to", 0o644)
				before := s.lstat("to")
				s.errno(unix.EEXIST, s.root.Link("from", "to"), "link of a %s over a %s", from.name, to.name)
				s.yes(s.lstat("to") == before, "the %s changed", to.name)
				s.remove(to, "to")
			}
			s.errno(unix.EEXIST, s.root.Link("from", "from"), "link of a %s over itself", from.name)
			s.nlink("from", 1)
			s.remove(from, "from")
		}
	})
	s.sub("EPERM_dir", func(s *scene) {
		s.mkdir("d", 0o755)
		s.errno(unix.EPERM, s.root.Link("d", "e"), "link of a directory")
		s.errno(unix.EPERM, s.root.Link(".", "e"), "link of .")
		s.errno(unix.EPERM, s.root.Link("d/..", "e"), "link of ..")
		s.errno(unix.EPERM, s.root.Link("d", "d/e"), "link of a directory into itself")
		s.gone("e")
		s.nlink("d", 2)
	})
	s.sub("symlink", func(s *scene) {
		s.file("f", 0o644)
		s.must(s.root.Symlink("f", "l"), "symlink")
		s.ok(s.root.Link("l", "itself"), "link of a symlink")
		s.kind("itself", symlink)
		s.nlink("l", 2)
		s.ok(s.root.Linkat(0, "l", 0, "target", unix.AT_SYMLINK_FOLLOW), "linkat of a symlink's target")
		s.kind("target", regular)
		s.nlink("f", 2)
		s.must(s.root.Symlink("nosuch", "dangling"), "symlink")
		s.errno(unix.ENOENT, s.root.Linkat(0, "dangling", 0, "x", unix.AT_SYMLINK_FOLLOW), "linkat of a dangling symlink's target")
		s.errno(unix.EINVAL, s.root.Linkat(0, "f", 0, "x", 0x40000000), "linkat with a flag that does not exist")
		s.errno(unix.EEXIST, s.root.Link("f", "dangling"), "link over a dangling symlink")
	})
	s.sub("permission", linkPermission)
	s.sub("EMLINK", linkMax)
}

// remove removes an object of type k.
func (s *scene) remove(k kind, p string) {
	s.Helper()
	if k.name == directory.name {
		s.must(s.root.Rmdir(p), "rmdir %q", p)
		return
	}
	s.must(s.root.Unlink(p), "unlink %q", p)
}

// linkKinds: all names of an object are alike.
func linkKinds(s *scene) {
	for _, k := range s.kinds() {
		if k.name == directory.name {
			continue
		}
		a, b, c := k.name, k.name+"2", k.name+"3"
		s.create(k, a, 0o644)
		s.ok(s.root.Link(a, b), "link of a %s", k.name)
		s.nlink(a, 2)
		s.yes(s.lstat(a) == s.lstat(b), "two names of a %s differ", k.name)
		s.ok(s.root.Link(b, c), "link of a link of a %s", k.name)
		s.nlink(a, 3)
		if k.name != symlink.name {
			s.ok(s.root.Chmod(b, 0o611), "chmod of a %s", k.name)
			s.mode(a, 0o611)
		}
		if s.run.opt.Root {
			s.ok(s.root.Lchown(c, bob.uid, bob.gid), "lchown of a %s", k.name)
			s.owner(a, bob.uid, bob.gid)
		}
		if k.name == regular.name {
			s.content(c, "shared")
			eq(s, s.read(a), "shared", "content through another name")
		}
		s.ok(s.root.Unlink(a), "unlink of the first name of a %s", k.name)
		s.gone(a)
		s.nlink(b, 2)
		s.ok(s.root.Rename(b, a), "rename of a name of a %s", k.name)
		s.nlink(c, 2)
		s.ok(s.root.Unlink(c), "unlink of the third name of a %s", k.name)
		s.nlink(a, 1)
		s.yes(s.lstat(a).Mode&unix.S_IFMT == k.fmt, "the type of a %s changed", k.name)
	}
}

// linkPermission: the rule of fs.protected_hardlinks is enforced, and no stricter one.
func linkPermission(s *scene) {
	s.needRoot()
	s.mkdir("d", 0o777)
	setting, err := os.ReadFile("/proc/sys/fs/protected_hardlinks")
	protected := err == nil && strings.TrimSpace(string(setting)) == "1"
	for i, c := range []struct {
		mode uint32
		who  cred
		safe bool // the user is root, owns the file, or may both read and write it
	}{
		{0o644, alice, true}, {0, alice, true}, {0o644, self(), true},
		{0o666, bob, true}, {0o644, bob, false}, {0o600, bob, false}, {0, bob, false},
	} {
		p := fmt.Sprint("f", i)
		s.createAs(regular, p, c.mode, alice)
		want := unix.Errno(0)
		if protected && !c.safe {
			want = unix.EPERM
		}
		s.errno(want, s.as(c.who).Link(p, "d/"+p), "link of alice's file of mode %#o by %s", c.mode, c.who.key())
		links := 2
		if want != 0 {
			links = 1
		}
		s.nlink(p, links)
	}
}

// linkMax: a link beyond the file system's limit fails with EMLINK and breaks nothing.
func linkMax(s *scene) {
	s.needRoot() // only root runs this slow case: the limit does not depend on the user
	if testing.Short() {
		s.Skip("makes 65000 links")
	}
	const limit = 66000 // above ext4's 65000; other file systems may have no limit
	s.file("f", 0o644)
	s.mkdir("d", 0o755)
	n := 1
	var err error
	for ; n < limit && err == nil; n++ {
		err = unix.Link(s.path("f"), s.path(fmt.Sprint("d/", n)))
	}
	if err == nil {
		s.Skipf("no limit below %d links", limit)
	}
	n-- // the last call failed
	s.yes(errors.Is(err, unix.EMLINK), "link number %d: %v, want EMLINK", n+1, err)
	s.nlink("f", n)
	s.must(s.root.Unlink("d/1"), "unlink")
	s.nlink("f", n-1)
	s.ok(s.root.Link("f", "again"), "link after unlink")
	s.errno(unix.EMLINK, s.root.Link("f", "more"), "link at the limit")
	s.gone("more")
}
