package vfs_test

import (
	"os"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// noLeak checks that no more than extra descriptors stayed open. Those of an
// ended root are closed a little later, so it waits.
func noLeak(t testing.TB, before, extra int) {
	t.Helper()
	now := 0
	if !testkit.Eventually(func() bool { now = openFDs(t); return now <= before+extra }) {
		var open []string
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			open = append(open, e.Name()+" "+to)
		}
		t.Errorf("%d descriptors were open before, %d are now: %q", before, now, open)
	}
}
