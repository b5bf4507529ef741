package lab_test

import (
	"os"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// OwnMounts changes the mount namespace of the calling thread only. Later tests read /proc/self,
// which shows the namespace of the process's first thread.
func TestOwnMountsKeepsProcessNamespace(t *testing.T) {
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
		t.Errorf("the process's mount namespace was %s, and is %s", before, after)
	}
}
