package vfs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// With 1,000 roots (10,000 in make soak), each takes at most 4 KB of memory on average. All have
// the built-in rules and a pattern of the owner, and one name in each has been looked up.
func TestMemoryOfRoots(t *testing.T) {
	const most = 4096
	roots := shortOrSoak(1_000, 10_000)
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Cur < uint64(roots)+500 {
		t.Skipf("the limit of descriptors is %d: %v", l.Cur, err)
	}
	base := t.TempDir()
	policy := guard.Policy{Rights: guard.ReadWrite, Patterns: guard.Patterns{Hide: guard.Texts("*.secret")}}
	grants := make([]guard.Grant, roots)
	for i := range grants {
		name := fmt.Sprintf("root%05d", i)
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		grants[i] = guard.Grant{Root: guard.RootName(name), Dir: names.Foreign(dir), Policy: policy, Origin: "test"}
	}
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	tree := vfs.New(reg)
	before := heap()
	if _, err := reg.GrantAll(bg, grants); err != nil {
		t.Fatal(err)
	}
	granted := heap()
	for i := range grants {
		p, err := guard.NewPath(grants[i].Root, "src/.git")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = tree.Lstat(bg, who, vfs.At{Path: p})
	}
	used := heap()
	t.Logf("a root takes %d bytes when it is granted, %d when it has been used", (granted-before)/int64(roots), (used-before)/int64(roots))
	if each := (used - before) / int64(roots); each > most {
		t.Errorf("a root takes %d bytes, more than %d", each, most)
	}
	runtime.KeepAlive(tree)
	_, _ = reg.RevokeAll(bg)
}

// heap returns the number of bytes that are in use on the heap after a garbage collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
