package transport

import (
	"path/filepath"
	"strings"
	"testing"
)

// The reason for a kernel without FUSE over io_uring differs from the reason for a kernel that was
// not tested. It names the first kernel that has FUSE over io_uring.
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
