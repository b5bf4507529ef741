package mount

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// Who has the descriptor of the connection answers for the mount: nothing that
// this process starts gets it.
func TestChildrenDoNotGetTheConnection(t *testing.T) {
	newTestMount(t, guard.ReadOnly, nil)
	fds := openDevices()
	if len(fds) == 0 {
		t.Fatal("no descriptor of the connection was found")
	}
	for _, fd := range fds {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %d, %v", fd, flags, err)
		}
	}
	out, err := exec.Command("ls", "-l", "/proc/self/fd").Output()
	if err != nil || strings.Contains(string(out), fuseDevice) {
		t.Errorf("a child has %s, %v", out, err)
	}
}
