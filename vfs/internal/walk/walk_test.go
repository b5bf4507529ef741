package walk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// If a directory is moved out of the root while it is walked, the walk soon leaves it, although
// the open descriptor still serves the names of the directory.
func TestWalkLeavesMovedOutDirectory(t *testing.T) {
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
	w := walkerOf(t, top)
	seen := map[string]int{}
	for {
		e, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		name := e.Name
		seen[w.Rel()]++
		w.Take()
		if name == "a" || name == "b" {
			if ok, err := w.Enter(name); !ok || err != nil {
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
	// The walk may take verifyEvery more steps, and the names of two readings.
	if n := seen["a/b"]; n > verifyEvery+2*bufSize/24 || n < 3 {
		t.Errorf("%d of %d names after the directory was moved out", n, files)
	}
}

// The dot names, which a file system may put anywhere among the others, are not
// part of a walk.
func TestWalkHasNoDotNames(t *testing.T) {
	top := t.TempDir()
	const dirs, files = 100, 5
	for i := range dirs {
		for j := range files {
			dir := fmt.Sprintf("%s/%d", top, i)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(fmt.Sprintf("%s/f%d-%d", dir, i*j, j), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	w := walkerOf(t, top)
	n := 0
	for {
		e, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		name := e.Name
		if name == "." || name == ".." {
			t.Fatalf("%q in %q", name, w.Rel())
		}
		n++
		w.Take()
		if _, err := w.Enter(name); err != nil {
			t.Fatal(err)
		}
	}
	if n != dirs*(files+1) {
		t.Errorf("%d names", n)
	}
	for _, name := range []string{".", ".."} {
		if ok, err := w.Enter(name); ok || err != nil {
			t.Errorf("entering %q: %v, %v", name, ok, err)
		}
	}
}

// walkerOf returns a walker at the start of a root that lies at top.
func walkerOf(t *testing.T, top string) *Walker {
	t.Helper()
	reg := guard.NewRegistry(guard.Config{Opener: beneath.Opener{}})
	ctx := context.Background()
	if _, err := reg.Grant(ctx, guard.Grant{Root: "r", Dir: names.Foreign(top), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}}); err != nil {
		t.Fatal(err)
	}
	p, err := guard.NewPath("r", "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := reg.Admit(ctx, guard.Request{Caller: guard.Caller{Via: guard.ViaFiles}, Op: names.OpOpendir, Path: p})
	if err != nil {
		t.Fatal(err)
	}
	w := New(ctx, l, Options{})
	t.Cleanup(func() { w.Close(); _ = l.Done(0, nil) })
	if err := w.Start(""); err != nil {
		t.Fatal(err)
	}
	return w
}
