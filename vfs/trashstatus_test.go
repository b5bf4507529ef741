package vfs_test

import (
	"github.com/rootsfs/rootsfs/guard/rules"
	"os"
	"os/exec"
	"testing"
)

// The trash is no part of the project for the version control systems that are used in
// it: neither names it as something to be added.
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
