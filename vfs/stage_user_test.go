package vfs_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
)

// foreignVar is the environment variable that passes the directory of TestStageOfAUser to the
// process that runs as an ordinary user.
const foreignVar = "ROOTSFS_TEST_FOREIGN"

// An ordinary user's stage lets programs do exactly what the user may do in the source:
// directories without the permission to write, and files of others, give the errors of the
// kernel.
func TestStageOfAUser(t *testing.T) {
	if dir := os.Getenv(foreignVar); dir != "" {
		stageOfAUser(t, dir)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make files of others")
	}
	const uid = 65534
	base, err := os.MkdirTemp("", "rootsfs-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	s := &stageScene{T: t}
	source := filepath.Join(base, "source")
	s.make(source, "mine/f=1", "closed/f=2", "closed/g=3", "foreign/mine=4", "foreign/f=5", "foreign.txt=6")
	for _, rel := range []string{"", "mine", "mine/f", "closed", "closed/f", "closed/g", "foreign/mine"} {
		s.must(os.Lchown(filepath.Join(source, rel), uid, uid))
	}
	s.must(errors.Join(os.Chmod(base, 0o777), os.Chmod(filepath.Join(source, "closed"), 0o555)))
	before := stateOf(t, source)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestStageOfAUser$", "-test.v")
	cmd.Env = append(os.Environ(), foreignVar+"="+base, "TMPDIR="+base)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{}}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as a user: %v\n%s", err, out)
	}
	if now := stateOf(t, source); difference(now, before) != "" {
		t.Errorf("the source has changed:\n%s", difference(now, before))
	}
}

func stageOfAUser(t *testing.T, base string) {
	top := filepath.Join(base, "of the user") // root removes it: the stage has a directory without w
	s := emptySceneIn(t, top)
	s.source = filepath.Join(base, "source")
	s.start()
	t.Cleanup(s.end)
	expect := func(what string, err, want error) {
		t.Helper()
		if got := errnoOf(err); got != want { //nolint:errorlint // errnos
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	create := stageOps[0].staged
	chmod := func(rel string) error {
		mode := uint32(0o640)
		_, err := s.tree.Setattr(s.Context(), s.who, s.at(rel), nil, vfs.Attrs{Mode: &mode})
		return err
	}
	remove := func(rel string) error {
		dir, name := s.split(rel)
		return s.tree.Unlink(s.Context(), s.who, dir, name)
	}
	expect("write in a directory without w", s.write("closed/f", "new", unix.O_WRONLY), nil)
	expect("create there", create(s, "closed/new", "", "x"), unix.EACCES)
	expect("remove a copied file there", remove("closed/f"), unix.EACCES)
	expect("remove a file of the source there", remove("closed/g"), unix.EACCES)
	expect("rename it away", s.rename("closed/g", "mine/g", 0), unix.EACCES)
	if info := s.lstat("closed"); info.Mode&0o777 != 0o555 {
		t.Errorf("the mode of the directory is %o", info.Mode)
	}
	expect("write to another's file", s.write("foreign.txt", "new", unix.O_WRONLY), unix.EACCES)
	expect("truncate another's file", s.write("foreign.txt", "new", unix.O_WRONLY|unix.O_TRUNC), unix.EACCES)
	expect("chmod of another's file", chmod("foreign.txt"), unix.EPERM)
	expect("create in another's directory", create(s, "foreign/new", "", "x"), unix.EACCES)
	expect("write to one's own file there", s.write("foreign/mine", "new", unix.O_WRONLY), nil)
	expect("create there after that", create(s, "foreign/new", "", "x"), unix.EACCES)
	expect("remove there after that", remove("foreign/f"), unix.EACCES)
	expect("remove another's file from one's own directory", remove("foreign.txt"), nil)
	expect("create in one's own", create(s, "mine/new", "", "x"), nil)
	mode := uint32(0)
	_, err := s.tree.Setattr(t.Context(), s.who, s.at(""), nil, vfs.Attrs{Mode: &mode})
	expect("close the root", err, nil)
	if list, err := s.tree.StageChanges(t.Context(), "r", nil); err != nil || len(list) == 0 {
		t.Errorf("the owner sees %d changes in a closed root, %v", len(list), err)
	}
	s.end()
	s.start()
	if have := s.seen()["closed/f"]; have != "100644 1 \"new\"" {
		t.Errorf("in the next session closed/f is %s", have)
	}
	discardClosed(s, expect)
	s.end()
	applyClosed(t, base, expect)
}

// applyClosed checks that a new directory whose mode a program has set to 0 is applied with its
// contents, and is not listed as a change afterwards. It also checks that an undo restores the
// extended attributes of such a directory.
func applyClosed(t *testing.T, base string, expect func(what string, err, want error)) {
	s := emptySceneIn(t, filepath.Join(base, "applied"))
	s.start()
	t.Cleanup(s.end)
	s.mkdir("d")
	s.mkdir("d/sub")
	s.put("d/sub/f", "x")
	setMode := func(mode uint32) {
		_, err := s.tree.Setattr(t.Context(), s.who, s.at("d"), nil, vfs.Attrs{Mode: &mode})
		expect("chmod", err, nil)
	}
	expect("set an attribute", s.tree.Setxattr(t.Context(), s.who, s.at("d"), nil, "user.a", []byte("kept"), 0), nil)
	setMode(0)
	_, _, err := s.tree.StageCheckpoint(t.Context(), "r", "closed", vfs.CheckpointAsked)
	expect("checkpoint", err, nil)
	setMode(0o700)
	expect("change the attribute", s.tree.Setxattr(t.Context(), s.who, s.at("d"), nil, "user.a", []byte("other"), 0), nil)
	_, err = s.tree.StageUndo(t.Context(), "r", "closed", false)
	expect("undo", err, nil)
	setMode(0o700)
	buf := make([]byte, 10)
	n, err := s.tree.Getxattr(t.Context(), s.who, s.at("d"), nil, "user.a", buf)
	if expect("get the attribute", err, nil); string(buf[:n]) != "kept" {
		t.Errorf("after the undo the attribute is %q", buf[:n])
	}
	setMode(0)
	s.applyAll(vfs.StageApply{})
	for range 2 {
		if list, err := s.tree.StageChanges(t.Context(), "r", nil); err != nil || len(list) > 0 {
			t.Errorf("staged after the apply: %+v, %v", list, err)
		}
		s.end()
		s.start()
	}
	expect("open the directory", os.Chmod(filepath.Join(s.source, "d"), 0o700), nil)
	if text, err := os.ReadFile(filepath.Join(s.source, "d/sub/f")); err != nil || string(text) != "x" {
		t.Errorf("the source has %q, %v", text, err)
	}
}

// discardClosed checks that the owner can list and discard the changes of a stage in which a
// program has set the mode of directories to 0.
func discardClosed(s *stageScene, expect func(what string, err, want error)) {
	s.mkdir("mine/d")
	s.put("mine/d/f", "x")
	for _, rel := range []string{"mine/d", "mine"} {
		none := uint32(0)
		_, err := s.tree.Setattr(s.Context(), s.who, s.at(rel), nil, vfs.Attrs{Mode: &none})
		expect("chmod 0 of "+rel, err, nil)
	}
	s.end()
	s.start()
	list, err := s.tree.StageChanges(s.Context(), "r", []string{"mine"})
	if expect("list", err, nil); len(list) != 4 {
		s.Errorf("changes below directories without permissions: %v", list)
	}
	r, err := s.tree.StageDiscard(s.Context(), "r", []string{"mine/new"})
	expect("discard one file", err, nil)
	if info := s.lstat("mine"); len(r.Done) != 1 || info.Mode&0o777 != 0 {
		s.Errorf("discarded %v; the directory has the mode %o", r.Done, info.Mode)
	}
	r, err = s.tree.StageDiscard(s.Context(), "r", nil)
	expect("discard", err, nil)
	if list, err := s.tree.StageChanges(s.Context(), "r", nil); err != nil || len(list) > 0 || len(r.Left) > 0 {
		s.Errorf("after the discard: %v, %v; left %v", list, err, r.Left)
	}
	if info := s.lstat("mine"); info.Mode&0o777 != 0o755 {
		s.Errorf("the directory has the mode %o", info.Mode)
	}
}
