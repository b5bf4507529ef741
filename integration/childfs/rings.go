package childfs

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// HoldRings switches FUSE over io_uring on in the kernel until the test has ended. The kernel has one
// switch for all processes, so tests of other processes may rely on it meanwhile: the process
// that has switched it on waits for them before it switches it off. HoldRings skips the test if
// the kernel has no switch, or if the switch is off and this process may not turn it on.
func HoldRings(t testing.TB) {
	t.Helper()
	const file = "/sys/module/fuse/parameters/enable_uring"
	how := os.O_RDWR
	if os.Geteuid() != 0 {
		how = os.O_RDONLY // enough for the lock; only root turns the switch
	}
	f, err := os.OpenFile(file, how, 0)
	if err != nil {
		t.Skipf("the kernel has no switch for io_uring, or shows it to root alone: %v", err)
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
			t.Skipf("io_uring is off for FUSE, and only root turns it on: %v", err)
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
