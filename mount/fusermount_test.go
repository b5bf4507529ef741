//go:build linux

package mount

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

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/distro"
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
		t.Errorf("after: %v", err)
	}
}

// Each way to hold a mount is named together with the process.
func TestDetachBusy(t *testing.T) {
	requireMounts(t)
	self := fmt.Sprintf("(pid %d, ", os.Getpid())
	tests := []struct {
		name string
		hold func(t *testing.T, point string) (says string, release func())
	}{
		{"open file", func(t *testing.T, point string) (string, func()) {
			f, err := os.Open(filepath.Join(point, "f"))
			if err != nil {
				t.Fatal(err)
			}
			return self + "open '" + point + "/f')", func() { f.Close() }
		}},
		{"mapping", func(t *testing.T, point string) (string, func()) {
			f, err := os.Open(filepath.Join(point, "f"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			m, err := unix.Mmap(int(f.Fd()), 0, 4, unix.PROT_READ, unix.MAP_PRIVATE)
			if err != nil {
				t.Fatal(err)
			}
			return self + "mapping of '" + point + "/f')", func() { unix.Munmap(m) }
		}},
		{"working directory", func(t *testing.T, point string) (string, func()) {
			cmd := exec.Command("sleep", "1000")
			cmd.Dir = point
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("sleep (pid %d, working directory '%s')", cmd.Process.Pid, point), func() { kill(cmd) }
		}},
		{"mount inside", func(t *testing.T, point string) (string, func()) {
			// On the root itself: the served tree has no other directory.
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
			says, release := tt.hold(t, point)
			if says == "" { // covered: Detach sees the other mount, the search must see it too
				if got := holders(in); len(got) == 0 || !strings.Contains(got[0], "tmpfs") {
					t.Errorf("holders: %q", got)
				}
				release()
				return
			}
			err = Detach(point, false)
			oneLine(t, err, "'"+point+"' is in use by ", says)
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
		t.Errorf("after: %v", err)
	}
	// What the doc comment says: lazy is not revocation.
	if _, err := f.Read(make([]byte, 4)); err != nil {
		t.Errorf("the held file: %v", err)
	}
}

// The same as an ordinary user, through fusermount3, in a mount namespace of
// its own, so that /dev/fuse can be opened to users there.
func TestUserThroughHelper(t *testing.T) {
	requireMounts(t)
	if _, err := lookHelper(exec.LookPath); err != nil {
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

// childUnshared is root in a mount namespace of its own: it checks what a user
// is told about a device of mode 0600, opens it, and becomes that user.
func childUnshared(point string) error {
	device := point + ".fuse"
	var st unix.Stat_t
	if err := unix.Stat(fuseDevice, &st); err != nil {
		return err
	}
	if err := unix.Mknod(device, unix.S_IFCHR|0o600, int(st.Rdev)); err != nil {
		return fmt.Errorf("mknod %s: %w", device, err)
	}
	if err := unix.Mount(device, fuseDevice, "", unix.MS_BIND, ""); err != nil {
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

// childRefused checks the premise of CheckFUSE as well as its words: where it
// says no, fusermount3 cannot mount.
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
	if _, err := CheckMountpoint(point); err != nil {
		return err
	}
	for path, want := range map[string]string{"/tmp": "sticky", "/usr": "not yours", "/root/x": "not yours"} {
		if _, err := CheckMountpoint(path); err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("CheckMountpoint(%s): %v, want %q", path, err, want)
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
	if want := fmt.Sprintf("(pid %d, open '%s/f')", os.Getpid(), point); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), want) {
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
	if _, err := CheckMountpoint(point); !errors.Is(err, ErrStale) {
		return fmt.Errorf("stale: %v", err)
	}
	if err := ClearStale(point); err != nil {
		return fmt.Errorf("ClearStale: %w", err)
	}
	_, err = CheckMountpoint(point)
	return err
}

func TestCheckFUSE(t *testing.T) {
	dir := t.TempDir()
	// A device that everybody may open stands in, for the test needs no FUSE.
	const device = "/dev/null"
	number := unix.Mkdev(1, 3)
	file := filepath.Join(dir, "fuse")
	suid := filepath.Join(dir, "suid", "fusermount3")
	plain := filepath.Join(dir, "plain", "fusermount3")
	old := filepath.Join(dir, "old", "fusermount")
	for file, mode := range map[string]os.FileMode{
		file: 0o666, suid: 0o755 | os.ModeSetuid, plain: 0o755, old: 0o755 | os.ModeSetuid,
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	rootOwned := os.Geteuid() == 0
	in := func(bin string) func(string) (string, error) {
		return func(name string) (string, error) {
			if filepath.Base(bin) == name {
				return bin, nil
			}
			return "", exec.ErrNotFound
		}
	}
	tests := []struct {
		name string
		c    fuseCheck
		says []string // nil: no error
	}{
		{"root", fuseCheck{device: device, number: number, look: in("")}, nil},
		{"root, no device", fuseCheck{device: dir + "/none", look: in(suid)}, []string{dir + "/none is missing", "modprobe fuse"}},
		{"a file", fuseCheck{device: file, number: number}, []string{file + " is a regular file and not the FUSE device", "mknod"}},
		{"a directory", fuseCheck{device: dir, number: number}, []string{dir + " is a directory and not", "--device /dev/fuse"}},
		{"another device", fuseCheck{device: device, number: fuseNumber}, []string{"/dev/null is another device (1, 3) and not"}},
		{"user", fuseCheck{device: device, number: number, uid: 1000, look: in(suid)}, nil},
		{"user, version 2", fuseCheck{device: device, number: number, uid: 1000, look: in(old)}, nil},
		{"user, no device", fuseCheck{device: dir + "/none", uid: 1000, look: in(suid)}, []string{"modprobe fuse"}},
		{"user, no helper", fuseCheck{device: device, number: number, uid: 1000, look: in("")}, []string{"fusermount3 is not in PATH", distro.Install("fuse3")}},
		{"user, helper gone", fuseCheck{device: device, number: number, uid: 1000, look: in(dir + "/fusermount3")}, []string{dir + "/fusermount3", "fuse3"}},
		{"user, helper without the bit", fuseCheck{device: device, number: number, uid: 1000, look: in(plain)}, []string{plain + " is not set-user-id root", "chmod u+s " + plain}},
		{"user, no new privileges", fuseCheck{device: device, number: number, uid: 1000, look: in(suid), noNewPrivs: rootOwned}, nil},
	}
	if rootOwned {
		tests[len(tests)-1].says = []string{"no_new_privs"}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.c.uid != 0 && tt.says == nil && !rootOwned {
				t.Skip("only root can make a set-user-id program of root's")
			}
			err := tt.c.run()
			if tt.says == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			oneLine(t, err, tt.says...)
			if !errors.Is(err, ErrNoFUSE) {
				t.Errorf("%v does not wrap ErrNoFUSE", err)
			}
		})
	}
	oneLine(t, fuseCheck{device: device}.deviceError(unix.EPERM), "container", device)
	oneLine(t, fuseCheck{device: device, number: number, uid: 1000}.deviceError(unix.EACCES), "this user", "chmod 0666 "+device)
}

func TestCheckAllowOther(t *testing.T) {
	tests := []struct {
		name, conf string
		ok         bool
	}{
		{"alone", "user_allow_other\n", true},
		{"no final newline", "mount_max = 5\nuser_allow_other", true},
		{"spaces and a comment", " \tuser_allow_other \t# yes\r\n", true},
		{"after a comment line", "# user_allow_other is below\nuser_allow_other\n", true},
		{"as Debian ships it", "# user_allow_other - Using\n\n#user_allow_other\n", false},
		{"indented comment", "  # user_allow_other\n", false},
		{"part of a word", "user_allow_others\nxuser_allow_other\n", false},
		{"with a value", "user_allow_other = 1\n", false},
		{"empty", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conf := filepath.Join(t.TempDir(), "fuse.conf")
			if err := os.WriteFile(conf, []byte(tt.conf), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := checkAllowOther(conf, 0); err != nil {
				t.Errorf("root: %v", err)
			}
			err := checkAllowOther(conf, 1000)
			if (err == nil) != tt.ok {
				t.Errorf("got %v", err)
			}
			if !tt.ok {
				oneLine(t, err, "add the line user_allow_other to "+conf)
			}
		})
	}
	absent := filepath.Join(t.TempDir(), "none")
	oneLine(t, checkAllowOther(absent, 1000), "add the line user_allow_other to "+absent, "does not exist yet")
	oneLine(t, checkAllowOther(t.TempDir(), 1000), "cannot be read")
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
