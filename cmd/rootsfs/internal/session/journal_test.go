package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// The next session that has the directory as a root removes the temporary files that a killed
// session left, and no other file (R074).
func TestJournal(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	tree := vfs.New(reg)
	grant := func() {
		t.Helper()
		if _, err := reg.Grant(t.Context(), guard.Grant{Root: "r", Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}}); err != nil {
			t.Fatal(err)
		}
	}
	grant()
	j, err := openJournal(state, "s", reg)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	path := func(rel string) guard.Path {
		p, err := guard.NewPath("r", rel)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	left := put(vfs.TempPrefix + "left\xff")
	j.Begin(path(vfs.TempPrefix + "left\xff"))
	finished := put(vfs.TempPrefix + "finished")
	j.Begin(path(vfs.TempPrefix + "finished"))()
	mine := put("mine")
	j.Begin(path("mine"))
	here := func(p string) bool { _, err := os.Lstat(p); return err == nil }
	clean := func() int {
		t.Helper()
		n, err := cleanUp(t.Context(), state, reg, tree)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	if n := clean(); n != 0 || !here(left) {
		t.Errorf("a living session's file was removed (%d)", n)
	}
	// The session is killed: its lock ends with the descriptor, and the file stays, with half a
	// line.
	if _, err := j.file.WriteString(`{"n":9,"dir":"` + dir); err != nil {
		t.Fatal(err)
	}
	if err := j.file.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := reg.RevokeAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := clean(); n != 0 || !here(left) {
		t.Errorf("removed (%d) where there is no root", n)
	}
	grant()
	if n := clean(); n != 1 || here(left) || !here(finished) || !here(mine) {
		t.Errorf("%d removed; left %v, finished %v, mine %v", n, here(left), here(finished), here(mine))
	}
	if list, err := os.ReadDir(state); err != nil || len(list) != 0 {
		t.Errorf("the journal is still there: %v, %v", list, err)
	}
	// A session that ends normally leaves its journal only if a temporary file was not removed.
	if j, err = openJournal(state, "s", reg); err != nil {
		t.Fatal(err)
	}
	left = put(vfs.TempPrefix + "refused")
	j.Begin(path(vfs.TempPrefix + "refused"))
	j.Begin(path(vfs.TempPrefix + "gone"))()
	j.close()
	if n := clean(); n != 1 || here(left) {
		t.Errorf("%d removed of a session that ended normally; left %v", n, here(left))
	}
	if j, err = openJournal(state, "s", reg); err != nil {
		t.Fatal(err)
	}
	j.close()
	if list, err := os.ReadDir(state); err != nil || len(list) != 0 {
		t.Errorf("the journal is still there: %v, %v", list, err)
	}
}
