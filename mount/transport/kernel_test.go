package transport

import (
	"path/filepath"
	"strings"
	"testing"
)

// The reasons for a kernel that has no FUSE over io_uring and for one that was not tested
// differ. The first names the kernel that brought it.
func TestKernelWithoutSwitch(t *testing.T) {
	was := enableFile
	t.Cleanup(func() { enableFile = was })
	enableFile = filepath.Join(t.TempDir(), "enable_uring")
	for name, err := range map[string]error{"Suits": Suits(), "Check": Check(), "notOffered": notOffered()} {
		if err == nil || !strings.Contains(err.Error(), "does not offer FUSE over io_uring: that takes Linux 6.14") || strings.Contains(err.Error(), "tested") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
