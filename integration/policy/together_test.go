package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// R004, R095, R110: two servers each have a root at the same directory, with the same patterns. One
// server moves a directory to a path at which a pattern protects the name "run" in the directory.
// At the same moment the other server creates "run" in the directory. Exactly one of the two calls
// succeeds. (With one lock for each root both calls would succeed within some hundred attempts.)
func TestTwoServersCannotCreateAProtectedNameTogether(t *testing.T) {
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	tree, src := vfs.New(reg), t.TempDir()
	t.Cleanup(func() { _, _ = reg.RevokeAll(bg) })
	at := func(rel string) string { return filepath.Join(src, rel) }
	files := []string{"e/"}
	for i := range 300 { // the move looks at each file, and so takes some time
		files = append(files, fmt.Sprintf("d/f%d=", i))
	}
	guardtest.Tree(t, src, "", files...)
	for _, who := range []guard.Subject{"mover", "maker"} {
		_, err := reg.Grant(bg, guard.Grant{Root: guard.RootName(who), Dir: names.Foreign(src), Subject: who, Origin: "test", Policy: guard.Policy{
			Rights: guard.ReadWrite, Patterns: guard.Patterns{NoDefaults: true, Protect: guard.Texts("**/conf/run")}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	treeAt := func(root, rel string) vfs.At {
		p, err := guard.NewPath(guard.RootName(root), rel)
		if err != nil {
			t.Fatal(err)
		}
		return vfs.At{Path: p}
	}
	caller := func(s guard.Subject) guard.Caller { return guard.Caller{Via: guard.ViaFiles, Subject: s} }
	moved, created := 0, 0
	move := func() {
		_ = tree.Rename(bg, caller("mover"), treeAt("mover", ""), "d", treeAt("mover", "e"), "conf", 0)
	}
	mkdir := func() { _, _ = tree.Mkdir(bg, caller("maker"), treeAt("maker", "d"), "run", 0o755) }
	for i := range 1000 {
		var wg sync.WaitGroup
		first, second := move, mkdir
		if i%2 == 1 {
			first, second = mkdir, move
		}
		wg.Go(first)
		wg.Go(second)
		wg.Wait()
		_, err := os.Lstat(at("e/conf"))
		_, runErr := os.Lstat(at("e/conf/run"))
		if err == nil && runErr == nil {
			t.Fatal("e/conf/run exists, which nobody may create")
		}
		if err == nil {
			moved++
			if err := os.Rename(at("e/conf"), at("d")); err != nil {
				t.Fatal(err)
			}
		} else {
			created++
			if err := os.Remove(at("d/run")); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("moved %d times, created %d times", moved, created)
	if moved == 0 || created == 0 {
		t.Errorf("one of the two calls was always first (moved %d, created %d): this shows nothing", moved, created)
	}
}
