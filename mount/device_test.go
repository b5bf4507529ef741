package mount

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// Who has the descriptor of the connection answers for the mount: nothing that
// this process starts gets it.
func TestChildrenDoNotGetTheConnection(t *testing.T) {
	newTestMount(t, guard.ReadOnly, nil)
	if fds := openDevices(); len(fds) != 0 {
		t.Errorf("a child would inherit the descriptors %v", fds)
	}
	open := false
	list, err := os.ReadDir("/proc/self/fd")
	for _, e := range list {
		to, _ := os.Readlink("/proc/self/fd/" + e.Name()) // that of the list is gone
		open = open || to == mountpoint.Device
	}
	if !open {
		t.Fatalf("this process has no descriptor of the connection: %v, %v", list, err)
	}
	out, err := exec.Command("ls", "-l", "/proc/self/fd").Output()
	if err != nil || strings.Contains(string(out), mountpoint.Device) {
		t.Errorf("a child has %s, %v", out, err)
	}
}

// A descriptor of the device that a child would inherit is found.
func TestOpenDevices(t *testing.T) {
	fd, err := unix.Open(mountpoint.Device, unix.O_RDWR, 0)
	if err != nil {
		t.Skip("real mounts are needed: ", err)
	}
	defer unix.Close(fd)
	if fds := openDevices(); len(fds) != 1 || fds[0] != fd {
		t.Errorf("found %v, want %d", fds, fd)
	}
	unix.CloseOnExec(fd)
	if fds := openDevices(); len(fds) != 0 {
		t.Errorf("found %v, which nobody inherits", fds)
	}
}
