package vfs_test

import (
	"os"
	"testing"
	"time"
)

// noLeak checks that no more than extra descriptors stayed open. Those of an
// ended root are closed a little later, so it waits; the bound only ends a test
// that has failed.
func noLeak(t testing.TB, before, extra int) {
	t.Helper()
	now := openFDs(t)
	for i := 0; now > before+extra && i < 3000; i++ {
		time.Sleep(10 * time.Millisecond)
		now = openFDs(t)
	}
	if now > before+extra {
		var open []string
		entries, _ := os.ReadDir("/proc/self/fd")
		for _, e := range entries {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			open = append(open, e.Name()+" "+to)
		}
		t.Errorf("%d descriptors were open before, %d are now: %q", before, now, open)
	}
}
