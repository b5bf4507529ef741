package revoke

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// slowAuditor is slow with grants, as a disk may be. It synchronises no goroutines, so that
// the race detector can see that a lock is missing in the registry.
type slowAuditor struct{}

func (slowAuditor) Record(r guard.Record) error {
	if r.Op == names.OpGrant {
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

// A root with an expiry may be revoked as soon as it is visible. At that time its expiry clock is
// not yet set. Under the race detector this test shows a missing lock. Without the race detector it
// shows only whether a root is left over.
func TestRevokeWhileTheExpiryClockIsSet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	testkit.Must(t, os.Mkdir(dir, 0o777))
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: slowAuditor{}})
	ctx := context.Background()
	for range 20 {
		var wg sync.WaitGroup
		done := make(chan struct{})
		wg.Go(func() {
			for {
				_, _ = reg.RevokeAll(ctx)
				select {
				case <-done:
					return
				default:
				}
			}
		})
		g := grantOf("code", dir, guard.ReadOnly)
		g.Expires, g.Origin = time.Now().Add(time.Hour), "test"
		_, err := reg.Grant(ctx, g)
		close(done)
		wg.Wait()
		testkit.Must(t, err)
		_, err = reg.RevokeAll(ctx)
		testkit.Must(t, err)
		if roots := reg.Roots(); len(roots) > 0 {
			t.Fatalf("%d roots are left", len(roots))
		}
	}
}
