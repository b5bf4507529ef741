package cleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// The place of a run that was killed together with its cleaner is removed. The place of a live run
// stays. A place that is younger than leftAfter stays, too, because its run may be starting. R070.
func TestClearLeft(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if err := os.Chmod(os.Getenv("XDG_RUNTIME_DIR"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := control.EnsureRuntimeDir(); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-2 * leftAfter)
	for _, c := range []struct {
		name        string
		dead, young bool
		removed     bool
	}{
		{"killed", true, false, true},
		{"killed just now", true, true, false},
		{"alive", false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := MakePlace(rules.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Remove)
			if p.lock == nil {
				t.Fatal("the place has no lock")
			}
			if err := os.WriteFile(filepath.Join(p.Scratch(), "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if c.dead {
				p.lock.Close()
			}
			if !c.young {
				if err := os.Chtimes(p.dir, long, long); err != nil {
					t.Fatal(err)
				}
			}
			ClearLeft()
			if _, err := os.Lstat(p.dir); errors.Is(err, fs.ErrNotExist) != c.removed {
				t.Errorf("the place: %v, want it removed: %v", err, c.removed)
			}
		})
	}
}

// The kernel may give the device number of a mount that is gone to a later mount. The cleaner of the
// earlier mount ends the FUSE connection of its own mount only.
func TestAfterMountSparesLaterMount(t *testing.T) {
	const inNamespace = "ROOTSFS_TEST_OWN_MOUNTS"
	if os.Geteuid() != 0 || mountpoint.CheckFUSE() != nil {
		t.Skip("needs root and FUSE")
	}
	if os.Getenv(inNamespace) == "" { // this process mounts nothing over /sys, so another one does
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // the mounts are private
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if err := unix.Mount("fusectl", "/sys/fs/fuse/connections", "fusectl", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		t.Skip("fusectl cannot be mounted: ", err)
	}
	for _, c := range []struct {
		name    string
		isLater bool
	}{{"a later mount", true}, {"the mount itself", false}} {
		t.Run(c.name, func(t *testing.T) {
			point := t.TempDir()
			connection, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", connection.Fd())
			if err := unix.Mount("rootsfs", point, mountpoint.FSType, 0, data); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Unmount(point, unix.MNT_DETACH) }()
			in, err := mountpoint.Find(point)
			if err != nil {
				t.Fatal(err)
			}
			id := in.ID
			if c.isLater {
				id += 1000 // of the mount that is gone
			}
			if err := afterMount(slog.Default(), point, strconv.Itoa(id), in.Dev); err != nil {
				t.Error(err)
			}
			fds := []unix.PollFd{{Fd: int32(connection.Fd()), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, 0); err != nil {
				t.Fatal(err)
			}
			if isEnded := fds[0].Revents&unix.POLLERR != 0; isEnded == c.isLater {
				t.Errorf("the connection has ended: %v", isEnded)
			}
			if _, err := mountpoint.Find(point); (err == nil) != c.isLater {
				t.Errorf("the mount: %v", err)
			}
		})
	}
}
