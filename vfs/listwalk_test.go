package vfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A directory that is moved out of the root while it is walked is soon left, and
// so are those above that went with it; the descriptors would go on serving them.
func TestWalkLeavesWhatIsMovedOut(t *testing.T) {
	top, aside := t.TempDir(), t.TempDir()
	const files = 4000
	dir := filepath.Join(top, "a/b")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	reg := guard.NewRegistry(guard.Config{Opener: Opener()})
	ctx := context.Background()
	if _, err := reg.Grant(ctx, guard.Grant{Root: "r", Dir: top, Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}}); err != nil {
		t.Fatal(err)
	}
	p, _ := guard.NewPath("r", "")
	l, err := reg.Admit(ctx, guard.Request{Caller: guard.Caller{Via: guard.ViaFiles}, Op: names.OpOpendir, Path: p})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Done(0, nil) }()
	w := newWalker(ctx, l, "")
	defer w.close()
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for {
		e, ok, err := w.peek()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			up, err := w.leave()
			if err != nil {
				t.Fatal(err)
			}
			if !up {
				break
			}
			continue
		}
		name := e.Name
		seen[w.dir()]++
		w.take()
		if name == "a" || name == "b" {
			if ok, err := w.enter(name); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		if seen["a/b"] == 1 {
			if err := os.Rename(filepath.Join(top, "a"), filepath.Join(aside, "a")); err != nil {
				t.Fatal(err)
			}
			seen["a/b"]++
		}
	}
	// verifyEvery steps, and the names read in advance twice.
	if n := seen["a/b"]; n > verifyEvery+2*walkBuf/24 || n < 3 {
		t.Errorf("%d of %d names after the directory was moved out", n, files)
	}
}
