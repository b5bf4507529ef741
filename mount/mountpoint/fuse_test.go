package mountpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/distro"
)

func TestCheckFUSE(t *testing.T) {
	dir := t.TempDir()
	// Instead of the FUSE device the test has one that every user may open, so it needs no FUSE.
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
	// finding returns a look-up in PATH that finds only bin.
	finding := func(bin string) func(string) (string, error) {
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
		says []string // parts of the error; nil: no error
	}{
		{"root", fuseCheck{device: device, number: number, look: finding("")}, nil},
		{"root, no device", fuseCheck{device: dir + "/none", look: finding(suid)}, []string{dir + "/none is missing", "modprobe fuse"}},
		{"a file", fuseCheck{device: file, number: number}, []string{file + " is a regular file and not the FUSE device", "mknod"}},
		{"a directory", fuseCheck{device: dir, number: number}, []string{dir + " is a directory and not", "--device /dev/fuse"}},
		{"another device", fuseCheck{device: device, number: fuseNumber}, []string{"/dev/null is another device (1, 3) and not"}},
		{"user", fuseCheck{device: device, number: number, uid: 1000, look: finding(suid)}, nil},
		{"user, version 2", fuseCheck{device: device, number: number, uid: 1000, look: finding(old)}, nil},
		{"inside of a sandbox", fuseCheck{device: dir + "/none", noNewPrivs: true, look: finding(suid)}, []string{"another rootsfs run", "start rootsfs outside"}},
		{"user, no device", fuseCheck{device: dir + "/none", uid: 1000, look: finding(suid)}, []string{"modprobe fuse"}},
		{"user, no helper", fuseCheck{device: device, number: number, uid: 1000, look: finding("")}, []string{"fusermount3 is not in PATH", distro.Install("fuse3")}},
		{"user, helper gone", fuseCheck{device: device, number: number, uid: 1000, look: finding(dir + "/fusermount3")}, []string{dir + "/fusermount3", "fuse3"}},
		{"user, helper without the bit", fuseCheck{device: device, number: number, uid: 1000, look: finding(plain)}, []string{plain + " is the first in PATH and not set-user-id root", distro.Install("fuse3")}},
		{"user, no new privileges", fuseCheck{device: device, number: number, uid: 1000, look: finding(suid), noNewPrivs: rootOwned}, nil},
	}
	if rootOwned {
		tests[len(tests)-1].says = []string{"no_new_privs"}
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.c.uid != 0 && tt.says == nil && !rootOwned {
				t.Skip("only root can make a program that is set-user-id root")
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

// A set-user-id helper must also lie where only root can replace it. Elsewhere, another program
// could replace the helper by a link between the check and the start of the helper.
func TestHelperInAWritableDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a set-user-id file")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "fusermount3")
	if err := os.WriteFile(bin, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(bin, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	linkDir := filepath.Join(dir, "links")
	if err := os.Mkdir(linkDir, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(linkDir, "fusermount3")
	if err := os.Symlink(bin, link); err != nil {
		t.Fatal(err)
	}
	checkFinding := func(path string) fuseCheck {
		return fuseCheck{look: func(string) (string, error) { return path, nil }}
	}
	for _, path := range []string{bin, link} { // helper returns the program's own path, not that of the link
		if got, err := checkFinding(path).helper(); err != nil || got != bin {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	for _, letOthersWrite := range []func() error{
		func() error { return os.Chown(dir, 1000, 1000) },
		func() error { return errors.Join(os.Chown(dir, 0, 0), os.Chmod(dir, 0o777)) },
	} {
		if err := letOthersWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := checkFinding(link).helper(); err == nil || !strings.Contains(err.Error(), "others than root can write") {
			t.Errorf("%q, %v", got, err)
		}
	}
}
