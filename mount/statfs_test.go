package mount

import (
	"context"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The mountpoint has the size of the file system that both roots lie on, counted once, so that
// df(1) without arguments lists the mount. Without roots its size is 0.
func TestStatfsOfTheMountpoint(t *testing.T) {
	m := newTestMount(t, guard.ReadOnly, nil)
	second := guard.Grant{Root: "second", Dir: names.Foreign(t.TempDir()), Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}
	_, err := m.reg.Grant(context.Background(), second)
	testkit.Must(t, err)
	var want unix.Statfs_t
	testkit.Must(t, unix.Statfs(m.src, &want))
	a := &asker{T: t, m: m, cancel: make(chan struct{})}
	size := func() uint64 {
		t.Helper()
		var out fuse.StatfsOut
		a.ok(m.raw.StatFs(a.cancel, a.in(fuse.FUSE_ROOT_ID), &out))
		return out.Blocks * uint64(out.Frsize)
	}
	if got := size(); got != want.Blocks*uint64(want.Frsize) {
		t.Errorf("the mountpoint has %d bytes, its roots' file system %d", got, want.Blocks*uint64(want.Frsize))
	}
	_, err = m.reg.RevokeAll(context.Background())
	testkit.Must(t, err)
	if got := size(); got != 0 {
		t.Errorf("without roots, the mountpoint has %d bytes", got)
	}
}
