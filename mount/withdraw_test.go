package mount

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The host moves a directory, and a rename(2) between two directories is the first to look the
// directory up at its new location. The rename succeeds, although the kernel cannot move the entry
// of a known directory while it holds the lock of such a rename. The rename also succeeds if it
// moves the directory back to the directory that it came from, which the kernel has locked, and if
// the directory came from the top of the root.
func TestRenameOfADirectoryMovedElsewhere(t *testing.T) {
	const rounds = 10
	levels(t, func(t *testing.T, level Level) {
		m := newTestMount(t, guard.ReadWrite, func(o *Options, _ *guard.Grant) { o.Level = level })
		for i, c := range []struct{ from, to string }{
			{"a/x", "c/z"}, {"a/x", "a/z"}, {"a/x", "a/x"}, {"x", "z"},
		} {
			refused := 0
			for round := range rounds {
				id := fmt.Sprintf("%d.%d", i, round)
				if renameMoved(t, m, id, c.from+id, c.to+id) {
					refused++
				}
			}
			// On a busy machine the kernel may sometimes be notified too late.
			if refused > rounds/2 {
				t.Errorf("from %s to %s: %d of %d were refused at first", c.from, c.to, refused, rounds)
			}
		}
	})
}

// renameMoved moves a directory on the host and then through the mount. It reports whether the
// rename through the mount was refused at first.
func renameMoved(t *testing.T, m *testMount, id, from, to string) (refused bool) {
	t.Helper()
	host := func(name string) string { return filepath.Join(m.src, name) }
	seen := func(name string) string { return filepath.Join(m.root, name) }
	for _, dir := range []string{from + "/deep", "a", "b", "c"} {
		testkit.Must(t, childfs.MkdirAll(host(dir), 0o755))
	}
	testkit.Must(t, childfs.WriteFile(host(from+"/deep/f"), []byte(id), 0o644))
	for _, name := range []string{"a", "b", "c", from + "/deep/f"} {
		_, err := childfs.Stat(seen(name))
		testkit.Must(t, err)
	}
	testkit.Must(t, childfs.Rename(host(from), host("b/y"+id)))
	err := childfs.Rename(seen("b/y"+id), seen(to))
	for try := 0; errors.Is(err, unix.ESTALE) && try < 20; try++ {
		refused = true
		err = childfs.Rename(seen("b/y"+id), seen(to))
	}
	testkit.Must(t, err)
	if got, err := childfs.ReadFile(seen(to + "/deep/f")); err != nil || string(got) != id {
		t.Errorf("%s to %s: read %q, %v", from, to, got, err)
	}
	return refused
}
