package cleanup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// The place of a run that was killed together with its cleaner is removed. The place of a live run
// stays. A place that is younger than leftAfter stays, too, because its run may be starting. R070.
func TestClearLeft(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if err := os.Chmod(os.Getenv("XDG_RUNTIME_DIR"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := control.EnsureRuntimeDir(); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * leftAfter)
	for _, c := range []struct {
		name        string
		dead, young bool
		removed     bool
	}{
		{"killed", true, false, true},
		{"killed just now", true, true, false},
		{"alive", false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := MakePlace(rules.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Remove)
			if p.lock == nil {
				t.Fatal("the place has no lock")
			}
			if err := os.WriteFile(filepath.Join(p.Scratch(), "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if c.dead {
				p.lock.Close()
			}
			if !c.young {
				if err := os.Chtimes(p.dir, long, long); err != nil {
					t.Fatal(err)
				}
			}
			ClearLeft()
			if _, err := os.Lstat(p.dir); errors.Is(err, fs.ErrNotExist) != c.removed {
				t.Errorf("the place: %v, want it removed: %v", err, c.removed)
			}
		})
	}
}
