package vfs_test

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Git and Mercurial do not treat the trash as part of the project: their status commands do not
// list it.
func TestTrashIsNotInTheStatus(t *testing.T) {
	b := trashBed(t, false, rules.Trash{})
	run := func(name string, args ...string) string {
		t.Helper()
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is missing", name)
		}
		cmd := exec.Command(name, args...)
		cmd.Dir = b.src
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "HGRCPATH=", "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	b.put("gone", "x")
	b.put("left", "x")
	b.must(b.t.Unlink(bg, who, b.at(""), "gone"))
	b.wantKept("gone=x")
	run("git", "init", "-q")
	if got := run("git", "status", "--porcelain", "--untracked-files=all"); got != "?? left\n" {
		t.Errorf("git status: %q", got)
	}
	b.must(os.RemoveAll(b.host(".git")))
	run("hg", "init")
	if got := run("hg", "status"); got != "? left\n" {
		t.Errorf("hg status: %q", got)
	}
}

// A socket has no contents, so the trash does not keep it: servers remove their sockets at each
// start.
func TestTrashLeavesSockets(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, Trash: rules.Trash{On: true}})
	for _, dir := range []string{"", "d"} {
		if dir != "" {
			b.must(second(b.t.Mkdir(bg, who, b.at(""), dir, 0o755)))
		}
		b.must(second(b.t.Mknod(bg, who, b.at(dir), "s", unix.S_IFSOCK|0o600, 0)))
	}
	b.must(b.t.Unlink(bg, who, b.at(""), "s"))
	b.must(b.t.Unlink(bg, who, b.at("d"), "s"))
	if list, err := b.t.TrashList(bg, "code"); err != nil || len(list) != 0 {
		t.Errorf("the trash has %+v, %v", list, err)
	}
}
