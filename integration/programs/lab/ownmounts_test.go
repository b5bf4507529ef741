package lab_test

import (
	"os"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// The process keeps its mounts whatever its goroutines do. Later tests read them in /proc/self,
// which shows those of the first thread.
func TestOwnMountsLeaveTheProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has mounts of its own")
	}
	namespace := func() string {
		link, err := os.Readlink("/proc/self/ns/mnt")
		if err != nil {
			t.Fatal(err)
		}
		return link
	}
	before := namespace()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if err := lab.OwnMounts(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if after := namespace(); after != before {
		t.Errorf("the process's mounts were %s, and are %s", before, after)
	}
}
