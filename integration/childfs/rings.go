package childfs

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// HoldRings switches FUSE over io_uring on in the kernel, of which the switch is one for
// all, until the test has ended. Another process's tests can rely on the switch meanwhile:
// the process that has switched it on waits for the others before it switches it off. It
// skips the test where the kernel has no switch, or this is not root.
func HoldRings(t testing.TB) {
	t.Helper()
	const file = "/sys/module/fuse/parameters/enable_uring"
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	lock := func(how int) {
		for unix.Flock(int(f.Fd()), how) == unix.EINTR { //nolint:revive // once more
		}
	}
	lock(unix.LOCK_SH)
	was, err := os.ReadFile(file)
	off := err == nil && strings.TrimSpace(string(was)) == "N"
	if off {
		if _, err := f.WriteString("Y"); err != nil {
			t.Skip(err)
		}
	}
	t.Cleanup(func() {
		defer f.Close()
		if off {
			lock(unix.LOCK_EX)
			_ = os.WriteFile(file, []byte("N"), 0)
		}
	})
}
