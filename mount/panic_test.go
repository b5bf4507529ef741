package mount

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/vfs"
)

// A panic in a handler gives EIO to the caller and a record to the owner. The mount still works, and
// no request is left that a revocation would wait for.
func TestPanicInAHandler(t *testing.T) {
	rec := &guardtest.Recorder{}
	var bug atomic.Bool
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: rec, Observe: func(e guard.Event) {
		if e.Kind == guard.EventRefusal && bug.CompareAndSwap(true, false) {
			panic("a bug")
		}
	}})
	src := t.TempDir()
	if _, err := reg.Grant(context.Background(), guard.Grant{Root: "code", Dir: names.Foreign(src), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly}}); err != nil {
		t.Fatal(err)
	}
	front := mountFront(t, Options{}, reg)
	file := filepath.Join(front.Host("code"), "f")
	create := func() error { return childfs.WriteFile(file, nil, 0o644) }
	bug.Store(true)
	if err := create(); !errors.Is(err, unix.EIO) || bug.Load() {
		t.Errorf("the caller gets %v, want EIO", err)
	}
	if recs := rec.Of(names.OpPanic); len(recs) != 1 || !strings.Contains(recs[0].Detail, "a bug") {
		t.Errorf("on record: %+v", recs)
	}
	if err := create(); !errors.Is(err, unix.EROFS) {
		t.Errorf("afterwards: %v, want EROFS", err)
	}
	if _, err := reg.RevokeAll(context.Background()); err != nil {
		t.Errorf("the revocation: %v", err)
	}
}
