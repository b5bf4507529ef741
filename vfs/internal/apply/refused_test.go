package apply_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
)

// asUser reports whether the test runs as an ordinary user. If root runs the test, asUser runs it
// again as an ordinary user, in another process, and reports false.
func asUser(t *testing.T) bool {
	if os.Geteuid() != 0 {
		return true
	}
	base, err := os.MkdirTemp("", "rootsfs-user-")
	if err == nil {
		err = os.Chmod(base, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "TMPDIR="+base)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{}}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as a user: %v\n%s", err, out)
	}
	return false
}

// TestApplyUnreadable checks that files with the mode 0 and a user attribute are compared, shown
// and applied. A dry run leaves the mode of the stage's file unchanged.
func TestApplyUnreadable(t *testing.T) {
	if !asUser(t) {
		return
	}
	s := newScene(t, "f", "g")
	s.put("g", "staged")
	s.put("n", "new")
	for _, name := range []string{"f", "g", "n"} {
		err := s.tree.Setxattr(t.Context(), s.who, s.place(name), nil, "user.a", []byte(name), 0)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			t.Fatal(err)
		}
		s.chmod(name, 0)
	}
	s.wantChanges("m f, M g, A n")
	if text, err := s.tree.StageContents(t.Context(), "r", "n", true, 100); err != nil || string(text) != "new" {
		t.Errorf("the contents are %q, %v", text, err)
	}
	s.apply(vfs.StageApply{DryRun: true}, "m f, M g, A n", "")
	info, err := os.Lstat(filepath.Join(s.store, "upper", "n"))
	if err != nil || info.Mode() != 0 {
		t.Errorf("the stage's file is %v, %v", info, err)
	}
	s.apply(vfs.StageApply{}, "m f, M g, A n", "")
	s.wantChanges("")
	for _, name := range []string{"f", "g", "n"} {
		info, err := os.Lstat(s.at(name))
		if err != nil || info.Mode() != 0 {
			t.Errorf("%s is %v, %v", name, info, err)
		}
		s.must(os.Chmod(s.at(name), 0o600))
	}
	s.wantSource("f", "g=staged", "n=new")
}

// TestApplyWithoutPermission checks that an apply names the directory in which the user may not
// write, and leaves dependent changes for the same reason, and not as a conflict.
func TestApplyWithoutPermission(t *testing.T) {
	if !asUser(t) {
		return
	}
	s := newScene(t, "out/in/f", "out/in/g", "free")
	s.chmod("out/in", 0o700)
	s.put("free", "staged")
	s.put("out/in/new", "staged")
	s.mkdir("out/in/d")
	s.put("out/in/d/e", "staged")
	s.rm("out/in/f", "out/in/g")
	s.must(os.Chmod(s.at("out/in"), 0o555))
	t.Cleanup(func() { _ = os.Chmod(s.at("out/in"), 0o755) })
	const left = "X out/in/d, X out/in/d/e, X out/in/f, X out/in/g, X out/in/new"
	s.apply(vfs.StageApply{Paths: []string{"out/in/d", "out/in/f", "out/in/g", "out/in/new", "free"}}, "", left)
	s.apply(vfs.StageApply{Partial: true, Take: "stage", Paths: []string{"out/in/d", "out/in/f", "out/in/g", "out/in/new", "free"}}, "M free", left)
	r, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{Paths: []string{"out/in/f"}})
	s.must(err)
	const want = `permission denied: you may not write in directory "out/in"; chmod u+w it`
	if len(r.Left) != 1 || r.Left[0].Why != want {
		t.Errorf("left %+v, want the reason %s", r.Left, want)
	}

	// The directory loses the permission during the apply.
	s.must(os.Chmod(s.at("out/in"), 0o755))
	s.runAt("begin", func(string) error { return os.Chmod(s.at("out/in"), 0o555) })
	r, err = s.tree.StageApply(t.Context(), "r", vfs.StageApply{Paths: []string{"out/in/f"}})
	s.must(err)
	if len(r.Left) != 1 || r.Left[0].Why != want {
		t.Errorf("left %+v, want the reason %s", r.Left, want)
	}
	s.must(os.Chmod(s.at("out/in"), 0o755))
	s.apply(vfs.StageApply{Paths: []string{"out/in/d", "out/in/f", "out/in/g", "out/in/new"}}, "A out/in/d, A out/in/d/e, D out/in/f, D out/in/g, A out/in/new", "")
}

// TestApplyClosesDirectoryLast checks that the changes in a directory are applied before the mode
// of the directory, which forbids further changes. One directory is new, and one is in the source.
func TestApplyClosesDirectoryLast(t *testing.T) {
	if !asUser(t) {
		return
	}
	s := newScene(t, "old/f", "old/gone")
	s.mkdir("new")
	for _, name := range []string{"old/n", "new/n", "old/f"} {
		s.put(name, "staged")
	}
	s.rm("old/gone")
	for _, dir := range []string{"old", "new"} {
		s.chmod(dir, 0o555)
		t.Cleanup(func() { _ = os.Chmod(s.at(dir), 0o755) })
	}
	s.apply(vfs.StageApply{}, "A new, A new/n, m old, M old/f, D old/gone, A old/n", "")
	s.wantSource("new/", "new/n=staged", "old/", "old/f=staged", "old/n=staged")
	for _, dir := range []string{"old", "new"} {
		if info, err := os.Lstat(s.at(dir)); err != nil || info.Mode().Perm() != 0o555 {
			t.Errorf("%s is %v, %v", dir, info.Mode(), err)
		}
	}
	s.wantChanges("")
}

// TestApplyOfClosedDirectories checks that files in a directory which a program has closed with the
// mode 0 are compared and applied, and conflicts in it settled: the mode is applied last.
func TestApplyOfClosedDirectories(t *testing.T) {
	if !asUser(t) {
		return
	}
	s := newScene(t, "old/f", "old/g")
	s.mkdir("new")
	for _, name := range []string{"new/n", "old/f", "old/g"} {
		s.put(name, "staged")
	}
	s.replace("old/g", "mine")
	for _, dir := range []string{"old", "new"} {
		s.chmod(dir, 0)
		t.Cleanup(func() { _ = os.Chmod(s.at(dir), 0o755) })
	}
	s.restart()
	s.wantChanges("A new, A new/n, m old, M old/f, C old/g")
	s.apply(vfs.StageApply{Take: "stage"}, "A new, A new/n, m old, M old/f, M old/g", "")
	s.wantChanges("")
	for _, dir := range []string{"old", "new"} {
		info, err := os.Lstat(s.at(dir))
		if err != nil || info.Mode().Perm() != 0 {
			t.Errorf("%s is %v, %v", dir, info, err)
		}
		s.must(os.Chmod(s.at(dir), 0o755))
	}
	s.wantSource("new/", "new/n=staged", "old/", "old/f=staged", "old/g=staged")
}

// TestApplyTwoNamesOfAnUnreadableFile checks that reading a file for one of its names does not
// count as a change of the other name.
func TestApplyTwoNamesOfAnUnreadableFile(t *testing.T) {
	if !asUser(t) {
		return
	}
	s := newScene(t)
	s.put("n", "new")
	s.chmod("n", 0)
	dir, name := s.split("m")
	_, err := s.tree.Link(t.Context(), s.who, s.place("n"), nil, dir, name)
	s.must(err)
	s.apply(vfs.StageApply{DryRun: true}, "A m, A n", "")
	s.apply(vfs.StageApply{}, "A m, A n", "")
	s.wantChanges("")
}

// TestApplyUnderAnyUmask checks that a stage can be filled and applied under a umask that removes
// all permissions.
func TestApplyUnderAnyUmask(t *testing.T) {
	if !asUser(t) {
		return
	}
	s := newScene(t, "d/f", "d/g")
	old := unix.Umask(0o777)
	defer unix.Umask(old)
	s.put("d/f", "staged")
	s.mkdir("e")
	s.put("e/n", "new")
	_, _, err := s.tree.StageCheckpoint(t.Context(), "r", "", vfs.CheckpointApply)
	s.must(err)
	s.restart()
	s.apply(vfs.StageApply{}, "M d/f, A e, A e/n", "")
	unix.Umask(old)
	s.wantSource("d/", "d/f=staged", "d/g", "e/", "e/n=new")
}

// TestApplyNamesWhatStays checks the reason for a directory that is not removed because a
// change in it was left at the last moment. The reason is not a change of the directory by the
// owner.
func TestApplyNamesWhatStays(t *testing.T) {
	s := newScene(t, "d/e/f", "d/g")
	s.rm("d/e/f", "d/g")
	s.rmdir("d/e")
	s.rmdir("d")
	s.runAt("begin", func(string) error { s.replace("d/e/f", "mine"); return nil }) // before the first removal
	r, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{})
	s.must(err)
	if words(r.Left) != "C d, C d/e, C d/e/f" || r.Left[0].Why != `it holds "d/e", which stays` || r.Left[1].Why != `it holds "d/e/f", which stays` {
		t.Errorf("left %q: %q", words(r.Left), whys(r.Left))
	}
	s.wantSource("d/", "d/e/", "d/e/f=mine")
}

// fullScene returns a scene whose source is a file system of 256 KiB, with staged changes that do
// not all fit.
func fullScene(t *testing.T) *scene {
	s := newScene(t)
	s.end()
	if err := unix.Mount("none", s.source, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("no tmpfs can be mounted: ", err)
	}
	t.Cleanup(func() { s.end(); _ = unix.Unmount(s.source, unix.MNT_DETACH) })
	s.store = ""
	s.write("gone", strings.Repeat("x", 100<<10))
	s.write("old", "old")
	s.start()
	s.rm("gone")
	s.put("big", strings.Repeat("y", 300<<10))
	s.put("old", "staged")
	s.put("small", "staged")
	return s
}

// TestApplyOnAFullDisk checks that a file for which there is no room is left and named. With
// Partial the rest is applied: removals, and files that fit. Without Partial, the apply ends there.
// No file is half written, and no temporary file is left.
func TestApplyOnAFullDisk(t *testing.T) {
	s := fullScene(t)
	r, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{})
	s.must(err)
	if words(r.Done) != "D gone" || words(r.Left) != "X big, M old, A small" || !strings.HasPrefix(r.Left[0].Why.Raw(), "no room on the file system") {
		t.Errorf("applied %q and left %q: %q", words(r.Done), words(r.Left), whys(r.Left))
	}
	s.wantSource("old")
	s.apply(vfs.StageApply{Partial: true}, "M old, A small", "X big")
	s.wantSource("old=staged", "small=staged")
	s.restart()
	s.wantChanges("A big")
	s.must(unix.Mount("none", s.source, "", unix.MS_REMOUNT, "size=1m"))
	s.apply(vfs.StageApply{}, "A big", "")
}

// TestApplyIsInterrupted checks that an apply whose context ends reports the applied changes
// and those that it did not reach, and that the applied ones are no longer staged.
func TestApplyIsInterrupted(t *testing.T) {
	s := newScene(t, "a", "b", "c")
	s.put("a", "staged")
	s.put("b", "staged")
	s.rm("c")
	ctx, cancel := context.WithCancel(t.Context())
	s.runAt("retired", func(string) error { cancel(); return nil })
	r, err := s.tree.StageApply(ctx, "r", vfs.StageApply{})
	if err == nil || words(r.Done) != "M a, D c" || words(r.Left) != "M b" {
		t.Errorf("applied %q and left %q, %v", words(r.Done), words(r.Left), err)
	}
	s.wantChanges("M b")
	s.apply(vfs.StageApply{}, "M b", "")
}
