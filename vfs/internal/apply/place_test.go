package apply_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/apply"
)

// recordExchanges records the exchanged files, in order.
func (s *scene) recordExchanges(order *[]string) {
	apply.AtStep = func(point, rel string) error {
		if point == "exchange" {
			*order = append(*order, rel)
		}
		return nil
	}
	s.Cleanup(func() { apply.AtStep = nil })
}

// If the owner changes a file while an apply replaces or removes the file, the owner's version is
// at the path afterwards.
func TestOwnerChangesFileDuringApply(t *testing.T) {
	for _, c := range []struct {
		name, point, after string
		change             func(s *scene)
	}{
		{"replaces it before", "exchange", "f=mine", func(s *scene) { s.replace("f", "mine") }},
		{"changes its mode before", "exchange", "f", func(s *scene) { s.must(os.Chmod(s.at("f"), 0o640)) }},
		{"changes it before, and restores its time", "begin", "f=F", func(s *scene) {
			was, err := os.Stat(s.at("f"))
			s.must(err)
			s.write("f", "F")
			s.must(os.Chtimes(s.at("f"), was.ModTime(), was.ModTime()))
		}},
		{"replaces it after", "look", "f=mine", func(s *scene) { s.replace("f", "mine") }},
		{"replaces it with a directory before", "exchange", "f/ f/g=mine", func(s *scene) { s.must(os.Remove(s.at("f"))); s.write("f/g", "mine") }},
		{"replaces it before it is removed", "move", "f=mine", func(s *scene) { s.replace("f", "mine") }},
		{"makes it anew while it is removed", "look", "f=mine", func(s *scene) { s.write("f", "mine") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, "f")
			if strings.Contains(c.name, "removed") {
				s.rm("f")
			} else {
				s.put("f", "staged")
			}
			s.runAt(c.point, func(string) error { c.change(s); return nil })
			r, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{})
			s.must(err)
			if c.point != "look" && (len(r.Left) != 1 || r.Left[0].Class != vfs.StageConflict) {
				t.Errorf("applied %+v, left %+v; want a conflict", r.Done, r.Left)
			}
			s.wantSource(strings.Split(c.after, " ")...)
		})
	}
}

// An apply also works if the file system has no files without names. No temporary file is left
// after a change is applied or refused, nor after the apply that follows a killed one.
func TestApplyWithTemporaryNames(t *testing.T) {
	t.Cleanup(apply.WithoutNameless())
	s := newScene(t, "f", "g")
	s.put("f", "staged")
	s.put("g", "staged")
	s.put("new", "staged")
	s.runAt("begin", func(rel string) error { s.replace("g", "mine"); return nil })
	s.apply(vfs.StageApply{}, "M f, A new", "C g")
	s.wantSource("f=staged", "g=mine", "new=staged")
	for _, point := range []string{"ready", "exchange", "look", "retired"} {
		s.put("f", "killed at "+point)
		s.put("other", "killed at "+point)
		s.runAt(point, func(string) error { return errKilled })
		if _, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{Partial: true}); err == nil {
			t.Fatalf("not killed at %s", point)
		}
		s.restart()
		s.apply(vfs.StageApply{Paths: []string{"f", "other"}}, map[string]string{"ready": "M f, A other", "exchange": "M f, A other", "look": "A other", "retired": "A other"}[point], "")
		s.wantSource("f=killed at "+point, "g=mine", "new=staged", "other=killed at "+point)
		s.must(os.Remove(s.at("other")))
	}
}

// If the root ends in the middle of an apply, the apply fails, and the next apply finishes the
// change.
func TestRootEndsDuringApply(t *testing.T) {
	for _, point := range []string{"exchange", "look", "move"} {
		s := newScene(t, "f", "g")
		s.deadline = 50 * time.Millisecond
		s.restart()
		after := "f=staged"
		if point == "move" {
			s.rm("f")
			after = ""
		} else {
			s.put("f", "staged")
		}
		s.runAt(point, func(string) error {
			_, _ = s.reg.Revoke(t.Context(), "r") // Revoke waits for the apply, but only until s.deadline
			return nil
		})
		if _, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{}); err == nil {
			t.Errorf("at %s: no error", point)
		}
		s.reg.AwaitStages(t.Context())
		s.start()
		_, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{})
		s.must(err)
		s.wantSource(append(strings.Fields(after), "g")...)
	}
}

// If the owner replaces a file twice during its replacement, the newest file is at the path. The
// owner's other file is kept beside it, and the result names it.
func TestOwnerReplacesItTwice(t *testing.T) {
	s := newScene(t, "f")
	s.put("f", "staged")
	apply.AtStep = func(point, _ string) error {
		switch point {
		case "exchange":
			s.replace("f", "first")
		case "look":
			s.replace("f", "second")
		}
		return nil
	}
	t.Cleanup(func() { apply.AtStep = nil })
	r, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{})
	s.must(err)
	temps, err := filepath.Glob(s.at(vfs.TempPrefix + "*"))
	s.must(err)
	if len(temps) != 1 || len(r.Left) != 1 || !strings.Contains(r.Left[0].Why.Raw(), filepath.Base(temps[0])) {
		t.Fatalf("left %+v beside %v; want the first named", r.Left, temps)
	}
	if b, err := os.ReadFile(temps[0]); err != nil || string(b) != "first" {
		t.Errorf("%s has %q, %v; want the first", temps[0], b, err)
	}
	s.must(os.Remove(temps[0]))
	s.wantSource("f=second")
}

// A file that the owner has open for writing is not replaced or removed. If the owner opens a file
// for writing during the apply, the same file is at the path afterwards, so later writes are not
// lost.
func TestOwnerHasItOpen(t *testing.T) {
	for _, isRemoved := range []bool{false, true} {
		s := newScene(t, "f", "g")
		change := "M f"
		if s.put("g", "staged"); isRemoved {
			s.rm("f")
			change = "D f"
		} else {
			s.put("f", "staged")
		}
		f, err := os.OpenFile(s.at("f"), os.O_WRONLY, 0)
		s.must(err)
		s.apply(vfs.StageApply{}, "", "W f")
		s.wantSource("f", "g")
		s.must(f.Close())

		// An open for writing breaks the lease that the apply has on the file. The apply notices this.
		point := "exchange"
		if isRemoved {
			point = "move"
		}
		s.runAt(point, func(rel string) error {
			if fd, err := unix.Open(s.at(rel), unix.O_WRONLY|unix.O_NONBLOCK, 0); err != unix.EWOULDBLOCK { //nolint:errorlint // bare errno
				t.Errorf("an open for writing meanwhile: %d, %v; want EWOULDBLOCK", fd, err)
			}
			return nil
		})
		before, err := os.Stat(s.at("f"))
		s.must(err)
		s.apply(vfs.StageApply{Paths: []string{"f"}}, "", "W f")
		if now, err := os.Stat(s.at("f")); err != nil || !os.SameFile(now, before) {
			t.Errorf("another file is at the path: %v, %v", now, err)
		}
		s.wantSource("f", "g")
		s.apply(vfs.StageApply{}, change+", M g", "")
	}
}

// A file that a program has written, and still has open for writing, stays in the stage.
func TestProgramHasItOpen(t *testing.T) {
	s := newScene(t, "f")
	f, _, err := s.tree.Open(t.Context(), s.who, s.place("f"), unix.O_RDWR)
	s.must(err)
	s.apply(vfs.StageApply{}, "", "") // not written yet
	_, err = f.WriteAt(t.Context(), s.who, [][]byte{[]byte("staged")}, 0, vfs.WriteAtOptions{})
	s.must(err)
	s.apply(vfs.StageApply{}, "", "W f")
	f.Close()
	s.apply(vfs.StageApply{}, "M f", "")
	s.wantSource("f=staged")
}

// A file that replaces another gets the mode and the user attributes of the old file, and the mtime
// of the stage's file. If a program has set a mode, the new file gets that mode. A new directory
// gets its mode even if nothing can be made in the directory then.
func TestAttributes(t *testing.T) {
	s := newScene(t, "f", "x")
	s.must(os.Chmod(s.at("f"), 0o640), os.Chmod(s.at("x"), 0o4755))
	s.must(unix.Setxattr(s.at("f"), "user.a", []byte("b"), 0))
	s.put("f", "staged")
	s.put("x", "staged")
	s.chmod("x", 0o700)
	s.mkdir("n")
	s.put("n/f", "staged")
	s.chmod("n/f", 0o600)
	s.chmod("n", 0o500)
	want, _, err := s.tree.Open(t.Context(), s.who, s.place("f"), unix.O_RDONLY)
	s.must(err)
	info, err := want.Stat(t.Context(), s.who)
	s.must(err)
	want.Close()
	s.apply(vfs.StageApply{}, "M f, A n, A n/f, M x", "")
	for rel, mode := range map[string]os.FileMode{"f": 0o640, "x": 0o700, "n": os.ModeDir | 0o500, "n/f": 0o600} {
		if now, err := os.Lstat(s.at(rel)); err != nil || now.Mode() != mode {
			t.Errorf("%s has the mode %v, %v; want %v", rel, now.Mode(), err, mode)
		}
	}
	s.must(os.Chmod(s.at("n"), 0o700)) // for the end of the test
	buf := make([]byte, 8)
	n, err := unix.Getxattr(s.at("f"), "user.a", buf)
	if err != nil || string(buf[:n]) != "b" {
		t.Errorf("user.a is %q, %v", buf[:max(n, 0)], err)
	}
	if now, err := os.Lstat(s.at("f")); err != nil || !now.ModTime().Equal(info.ModTime()) {
		t.Errorf("f has the mtime %v, %v; want %v", now.ModTime(), err, info.ModTime())
	}
}

// A change of user attributes counts as a change, even if contents and mode stay the same. User
// attributes that the owner has set since are overwritten only if the owner takes the stage's file.
func TestAttributesAlone(t *testing.T) {
	s := newScene(t, "f", "both", "mine", "open", "d/", "dboth/", "dmine/")
	set := func(rel, value string) { s.must(unix.Setxattr(s.at(rel), "user.a", []byte(value), 0)) }
	for _, rel := range []string{"f", "d"} {
		set(rel, "old")
	}
	for _, rel := range []string{"f", "both", "d", "dboth"} {
		s.must(s.tree.Setxattr(t.Context(), s.who, s.place(rel), nil, "user.b", []byte("staged"), 0))
	}
	s.must(s.tree.Removexattr(t.Context(), s.who, s.place("f"), nil, "user.a"))
	s.chmod("dmine", 0o755)
	s.put("mine", "staged")
	for _, rel := range []string{"both", "dboth", "dmine", "mine"} {
		set(rel, "owner's")
	}
	f, _, err := s.tree.Open(t.Context(), s.who, s.place("open"), unix.O_WRONLY)
	s.must(err)
	f.Close()
	s.apply(vfs.StageApply{Partial: true}, "m d, m f", "C both, C dboth, C mine")
	for rel, want := range map[string]string{"f": "user.b=staged", "d": "user.a=old user.b=staged", "both": "user.a=owner's", "dboth": "user.a=owner's", "dmine": "user.a=owner's", "mine": "user.a=owner's"} {
		if got := s.xattrs(rel); got != want {
			t.Errorf("%s has %q, want %q", rel, got, want)
		}
	}
	s.apply(vfs.StageApply{Paths: []string{"both"}, Take: "stage"}, "M both", "")
	if got := s.xattrs("both"); got != "user.b=staged" {
		t.Errorf("both has %q", got)
	}
}

// Attributes that the file system of the stage cannot hold stay unchanged in the source.
func TestStageWithoutAttributes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a file system without attributes")
	}
	s := newScene(t, "opened", "changed")
	s.end()
	s.must(os.MkdirAll(s.stages, 0o700), unix.Mount("none", s.stages, "ramfs", 0, ""))
	t.Cleanup(func() { s.must(unix.Unmount(s.stages, unix.MNT_DETACH)) }) // the end of the root may still be at work
	s.store = ""
	s.start()
	for _, rel := range []string{"opened", "changed"} {
		s.must(unix.Setxattr(s.at(rel), "user.a", []byte("b"), 0), unix.Setxattr(s.at(rel), "system.posix_acl_access", []byte(defaultACL), 0))
		f, _, err := s.tree.Open(t.Context(), s.who, s.place(rel), unix.O_WRONLY)
		s.must(err)
		f.Close()
	}
	s.put("changed", "staged")
	s.apply(vfs.StageApply{}, "M changed", "")
	for _, rel := range []string{"opened", "changed"} {
		if got := s.xattrs(rel); got != "system.posix_acl_access user.a=b" {
			t.Errorf("%s has %q", rel, got)
		}
	}
}

// A program has removed or moved a directory of the source, and made a new one at its path. If only
// a file of the new directory is applied, programs still see the file. They do not see the files of
// the old directory.
func TestAppliedInNewDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		remove  func(s *scene)
		changes string
	}{
		"removed": {func(s *scene) { s.rm("c/d/old"); s.rmdir("c/d"); s.rmdir("c") }, "m c, m c/d, D c/d/old"},
		"moved":   {func(s *scene) { s.mv("c", "x") }, "m c, m c/d, D c/d/old, A x, A x/d, A x/d/old"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, "c/d/old")
			c.remove(s)
			for _, rel := range []string{"c", "c/d"} {
				s.mkdir(rel)
				s.chmod(rel, 0o700)
			}
			s.put("c/d/a", "staged")
			s.apply(vfs.StageApply{Paths: []string{"c/d/a"}}, "A c/d/a", "")
			f, _, err := s.tree.Open(t.Context(), s.who, s.place("c/d/a"), unix.O_RDONLY)
			s.must(err)
			f.Close()
			if _, err := s.tree.Lstat(t.Context(), s.who, s.place("c/d/old")); !errors.Is(err, unix.ENOENT) {
				t.Errorf("the old file: %v", err)
			}
			s.wantChanges(c.changes)
		})
	}
}

// xattrs returns the user attributes, and the names of the ACLs, that a file of the source has.
func (s *scene) xattrs(rel string) string {
	s.Helper()
	buf := make([]byte, 1024)
	n, err := unix.Llistxattr(s.at(rel), buf)
	s.must(err)
	var out []string
	for _, name := range strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		value := make([]byte, 1024)
		switch n, err := unix.Lgetxattr(s.at(rel), name, value); {
		case err == nil && strings.HasPrefix(name, "user."):
			out = append(out, name+"="+string(value[:n]))
		case strings.HasPrefix(name, "system."):
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// defaultACL is the default ACL of a directory that lets user 1234 write to all new files in it:
// version 2, then tag, permissions and id of each entry.
const defaultACL = "\x02\x00\x00\x00" + "\x01\x00\x07\x00\xff\xff\xff\xff" + "\x02\x00\x07\x00\xd2\x04\x00\x00" +
	"\x04\x00\x05\x00\xff\xff\xff\xff" + "\x10\x00\x07\x00\xff\xff\xff\xff" + "\x20\x00\x05\x00\xff\xff\xff\xff"

// A file without an ACL gets none when its change is applied, neither from the default ACL of
// its directory nor from that of the directory of stages.
func TestDefaultACLGivesNoAccess(t *testing.T) {
	s := newScene(t, "d/f", "e/f")
	s.must(os.MkdirAll(s.stages+"/more", 0o700), unix.Setxattr(s.at("d"), "system.posix_acl_default", []byte(defaultACL), 0))
	s.end()
	s.must(os.RemoveAll(s.store), unix.Setxattr(s.stages, "system.posix_acl_default", []byte(defaultACL), 0))
	s.store = ""
	s.start()
	for _, rel := range []string{"d/f", "e/f"} {
		s.put(rel, "staged")
	}
	s.chmod("e", 0o700)
	s.apply(vfs.StageApply{}, "M d/f, m e, M e/f", "")
	for _, rel := range []string{"d/f", "e", "e/f"} {
		if got := s.xattrs(rel); got != "" {
			t.Errorf("%s has %s", rel, got)
		}
	}
}

// TestDirectoryMadeOnBothSides checks a directory that a program and the owner have both made. The
// owner's directory keeps its mode in the first apply and in the second one, and the mode of the
// stage's directory is not listed as a change.
func TestDirectoryMadeOnBothSides(t *testing.T) {
	for _, mode := range []uint32{0o700, 0o555} {
		s := newScene(t)
		s.mkdir("d")
		s.put("d/f", "staged")
		s.chmod("d", mode)
		s.must(os.Mkdir(s.at("d"), 0o755))
		s.wantChanges("A d/f")
		s.apply(vfs.StageApply{}, "A d/f", "")
		s.wantChanges("")
		s.put("d/g", "staged")
		s.apply(vfs.StageApply{}, "A d/g", "")
		if info, err := os.Stat(s.at("d")); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("staged with %o, the directory of the owner has the mode %v, %v", mode, info.Mode(), err)
		}
	}
}

// TestProgramOpensItBeforeClear checks that a file which a program opens for writing after it was
// applied stays in the stage. So the program's later writes are not lost, and do not change the
// source. The file has two names, so the program's descriptor stays with the stage's file: for a
// file with one name, the descriptor would get the source's file.
func TestProgramOpensItBeforeClear(t *testing.T) {
	s := newScene(t)
	s.put("f", "staged")
	_, err := s.tree.Link(t.Context(), s.who, s.place("f"), nil, s.place(""), "g")
	s.must(err)
	var f *vfs.File
	opened := 0
	apply.AtStep = func(point, rel string) (err error) {
		if point == "begin" && rel == "g" { // f has been applied, and g is the last
			opened++
			f, _, err = s.tree.Open(t.Context(), s.who, s.place("f"), unix.O_RDWR)
		}
		return err
	}
	t.Cleanup(func() { apply.AtStep = nil })
	s.apply(vfs.StageApply{}, "A f, A g", "")
	if opened != 1 {
		t.Fatalf("opened %d times, want once", opened)
	}
	_, err = f.WriteAt(t.Context(), s.who, [][]byte{[]byte("later!")}, 0, vfs.WriteAtOptions{})
	s.must(err)
	f.Close()
	s.wantSource("f=staged", "g=staged")
	s.apply(vfs.StageApply{}, "M f, M g", "")
	s.wantSource("f=later!", "g=later!")
}
