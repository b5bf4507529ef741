package mountpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

func TestDetach(t *testing.T) {
	requireMounts(t)
	point := tempPoint(t, "a mount", 0)
	if err := Detach(point, false); !errors.Is(err, ErrNotMounted) {
		t.Errorf("nothing mounted: %v", err)
	}
	mountTmpfs(t, point)
	err := Detach(point, true)
	oneLine(t, err, "tmpfs", "left alone")
	if !errors.Is(err, ErrNotOurs) {
		t.Errorf("not ours: %v", err)
	}
	if err := unix.Unmount(point, 0); err != nil {
		t.Fatal(err)
	}

	serve(t, point, "rootsfs")
	link := filepath.Join(filepath.Dir(point), "link")
	if err := os.Symlink(filepath.Base(point), link); err != nil {
		t.Fatal(err)
	}
	if err := Detach(link, false); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(point); !errors.Is(err, ErrNotMounted) {
		t.Errorf("after Detach: %v", err)
	}
}

// The error of Detach names the process that holds the mount, and says how the process holds the
// mount. holders also lists a mount that lies inside.
func TestDetachBusy(t *testing.T) {
	requireMounts(t)
	self := fmt.Sprintf("(pid %d, ", os.Getpid())
	tests := []struct {
		name string
		hold func(t *testing.T, point string) (holder string, release func())
	}{
		{"open file", func(t *testing.T, point string) (string, func()) {
			f, err := os.Open(filepath.Join(point, "f"))
			if err != nil {
				t.Fatal(err)
			}
			return self + "open " + names.ShellWord(point+"/f") + ")", func() { f.Close() }
		}},
		{"working directory", func(t *testing.T, point string) (string, func()) {
			cmd := exec.Command("sleep", "1000")
			cmd.Dir = point
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("sleep (pid %d, working directory %s)", cmd.Process.Pid, names.ShellWord(point)), func() { kill(cmd) }
		}},
		{"mount inside", func(t *testing.T, point string) (string, func()) {
			// The tmpfs goes on the top directory of the mount: the served tree has no
			// other directory.
			mountTmpfs(t, point)
			return "", func() { unix.Unmount(point, 0) }
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			point := tempPoint(t, "a mount", 0)
			serve(t, point, "rootsfs")
			in, err := Find(point)
			if err != nil {
				t.Fatal(err)
			}
			holder, release := tt.hold(t, point)
			// A tmpfs covers the mount, so Detach would find the tmpfs at this path.
			// Only holders is tested in this case: it must list the tmpfs.
			if holder == "" {
				if got := holders(in); len(got) == 0 || !strings.Contains(got[0], "tmpfs") {
					t.Errorf("holders: %q", got)
				}
				release()
				return
			}
			err = Detach(point, false)
			oneLine(t, err, names.ShellWord(point)+" is in use by ", holder)
			if !errors.Is(err, ErrBusy) {
				t.Errorf("got %v", err)
			}
			release()
			if err := Detach(point, false); err != nil {
				t.Errorf("released: %v", err)
			}
		})
	}
}

func TestDetachLazy(t *testing.T) {
	requireMounts(t)
	point := tempPoint(t, "m", 0)
	serve(t, point, "rootsfs")
	f, err := os.Open(filepath.Join(point, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Detach(point, true); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(point); !errors.Is(err, ErrNotMounted) {
		t.Errorf("after Detach: %v", err)
	}
	// A lazy detach is no revocation, as the comment of Detach says.
	if _, err := f.Read(make([]byte, 4)); err != nil {
		t.Errorf("the held file: %v", err)
	}
}

// An ordinary user mounts and unmounts through fusermount3. The test runs in a child with its own
// mount namespace, so that the test can let users open /dev/fuse there.
func TestUserThroughHelper(t *testing.T) {
	requireMounts(t)
	if _, err := findHelper(exec.LookPath); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	point := tempPoint(t, "a mount", nobody)
	cmd := exec.Command(publicCopy(t))
	cmd.Env = append(os.Environ(), childEnv+"=unshared", childDirEnv+"="+point)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// childUnshared is root in its own mount namespace. It runs two children as a user: childRefused
// while the FUSE device has mode 0600, and childUser after users may open the device.
func childUnshared(point string) error {
	device := point + ".fuse"
	var st unix.Stat_t
	if err := unix.Stat(Device, &st); err != nil {
		return err
	}
	if err := unix.Mknod(device, unix.S_IFCHR|0o600, int(st.Rdev)); err != nil {
		return fmt.Errorf("mknod %s: %w", device, err)
	}
	if err := unix.Mount(device, Device, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", device, err)
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	asUser := func(what string) error {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childEnv+"="+what)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", what, err, out)
		}
		return nil
	}
	if err := asUser("refused"); err != nil {
		return err
	}
	if err := os.Chmod(device, 0o666); err != nil {
		return err
	}
	return asUser("user")
}

// childRefused checks that CheckFUSE reports a device that this user cannot open, and that the user
// then really cannot mount.
func childRefused(point string) error {
	err := CheckFUSE()
	if !errors.Is(err, ErrNoFUSE) || !strings.Contains(err.Error(), "chmod 0666 /dev/fuse") {
		return fmt.Errorf("CheckFUSE with a closed device: %v", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if cmd, err := startChild(exe, point, "rootsfs", nobody); err == nil {
		kill(cmd)
		return errors.New("mounted although the device is closed")
	}
	return nil
}

// childUser runs in a child without root's rights. Its errors fail the test.
func childUser(point string) error {
	if err := CheckFUSE(); err != nil {
		return fmt.Errorf("CheckFUSE: %w", err)
	}
	if _, err := Check(point); err != nil {
		return err
	}
	for path, want := range map[string]string{"/tmp": "sticky", "/usr": "not yours", "/root/x": "not yours"} {
		if _, err := Check(path); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("Check(%s): %v, want %q", path, err, want)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	serve := func() (*exec.Cmd, error) { return startChild(exe, point, "rootsfs", uint32(os.Geteuid())) }
	cmd, err := serve()
	if err != nil {
		return fmt.Errorf("mount as a user: %w", err)
	}
	defer func() { kill(cmd) }()
	f, err := os.Open(filepath.Join(point, "f"))
	if err != nil {
		return err
	}
	err = Detach(point, false)
	if want := fmt.Sprintf("(pid %d, open %s)", os.Getpid(), names.ShellWord(point+"/f")); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("held: %v, want %q", err, want)
	}
	f.Close()
	if err := Detach(point, false); err != nil {
		return fmt.Errorf("released: %w", err)
	}
	kill(cmd)
	if cmd, err = serve(); err != nil {
		return fmt.Errorf("mount again: %w", err)
	}
	kill(cmd)
	if _, err := Check(point); !errors.Is(err, ErrStale) {
		return fmt.Errorf("stale: %v", err)
	}
	if err := ClearStale(point); err != nil {
		return fmt.Errorf("ClearStale: %w", err)
	}
	if _, err = Check(point); err != nil {
		return err
	}
	return attachAsUser(point)
}

// attachAsUser checks that Attach mounts for a user, and that no child inherits the descriptor that
// Attach returns.
func attachAsUser(point string) error {
	device, err := Attach(point, &fuse.MountOptions{FsName: "a source", Name: "rootsfs", MaxWrite: 64 << 10})
	if err != nil {
		return fmt.Errorf("Attach: %w", err)
	}
	if flags, err := unix.FcntlInt(device.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		return fmt.Errorf("a child inherits the connection: flags %#x, %w", flags, err)
	}
	if in, err := Find(point); err != nil || in.FSType != FSType || in.Owner != os.Geteuid() {
		return fmt.Errorf("attached: %+v, %w", in, err)
	}
	device.Close()
	return ClearStale(point)
}

func TestHoldersBounded(t *testing.T) {
	requireMounts(t)
	point := tempPoint(t, "m", 0)
	mountTmpfs(t, point)
	in, err := Find(point)
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxHolders + 3 {
		d := filepath.Join(point, fmt.Sprint(i))
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		mountTmpfs(t, d)
	}
	got := holders(in)
	if len(got) != maxHolders+1 || got[maxHolders] != "and others" || slices.Contains(got, "") {
		t.Errorf("got %q", got)
	}
}
