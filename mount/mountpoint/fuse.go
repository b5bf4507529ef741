package mountpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/distro"
)

// Device is the path of the FUSE device. fuseConf is the path of the configuration of fusermount3.
// Both paths are the same on every distribution.
const (
	Device   = "/dev/fuse"
	fuseConf = "/etc/fuse.conf"
)

// fuseNumber is the device number of the FUSE device.
var fuseNumber = unix.Mkdev(10, 229)

// CheckFUSE returns an error if this process cannot mount with FUSE. It checks that the device
// exists, is the FUSE device and can be opened. For users other than root it also checks the
// helper that mounts for them, fusermount3 or fusermount. The error wraps ErrNoFUSE and says what
// to do. CheckFUSE opens /dev/fuse, which is harmless, and mounts nothing.
func CheckFUSE() error {
	return fuseCheck{
		device: Device, number: fuseNumber, uid: os.Geteuid(), look: exec.LookPath, noNewPrivs: noNewPrivs(),
	}.run()
}

// fuseCheck holds the dependencies of CheckFUSE, so that tests can replace them.
type fuseCheck struct {
	device     string
	number     uint64
	uid        int
	look       func(string) (string, error)
	noNewPrivs bool
}

func (c fuseCheck) run() error {
	// The kind of the file is checked before the file is opened: opening another device can
	// have effects.
	var st unix.Stat_t
	if err := unix.Stat(c.device, &st); err != nil {
		return c.deviceError(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != c.number {
		return c.wrongDeviceError(&st)
	}
	// A user other than root must be able to open the device, too: fusermount3 opens the device
	// with the rights of this user (measured: mode 0600 gives "Permission denied").
	fd, err := unix.Open(c.device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return c.deviceError(err)
	}
	unix.Close(fd)
	if c.uid == 0 {
		return nil
	}
	_, err = c.helper()
	return err
}

// helper returns the path of fusermount3, or of fusermount. It refuses a program that has neither
// the set-user-id bit of root nor file capabilities: PATH may name directories of a project (npx
// and virtual environments do this), whose programs must not be run. It also refuses a program that
// others could replace before the program is run: the returned path has no links, and only root
// can replace files in its directories. If c.noNewPrivs is true, it refuses every program. The
// error proposes no command that would give a refused program rights.
func (c fuseCheck) helper() (string, error) {
	bin, err := findHelper(c.look)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if real, err := filepath.EvalSymlinks(bin); err == nil {
		bin = real
	}
	if err := unix.Stat(bin, &st); err != nil {
		return "", errorf(ErrNoFUSE, "%s cannot be looked at: %v; %s", names.ShellWord(bin), err, distro.Install("fuse3"))
	}
	switch {
	case (st.Mode&unix.S_ISUID == 0 || st.Uid != 0) && !hasFileCaps(bin):
		return "", errorf(ErrNoFUSE, "%s is the first in PATH and not set-user-id root, so it cannot mount for users; %s, or take its directory out of PATH", names.ShellWord(bin), distro.Install("fuse3"))
	case !onlyRootReplaces(filepath.Dir(bin)):
		return "", errorf(ErrNoFUSE, "%s lies in a directory that others than root can write; %s, or take its directory out of PATH", names.ShellWord(bin), distro.Install("fuse3"))
	case c.noNewPrivs:
		return "", errorf(ErrNoFUSE, "this process may not gain privileges (no_new_privs is set, as sandboxes and some services do), so %s cannot mount: start rootsfs outside", names.ShellWord(bin))
	}
	return bin, nil
}

// onlyRootReplaces reports whether only root can replace root's files in a directory and in the
// directories above it. Others may write to such a directory if it is sticky. The path must have
// no links.
func onlyRootReplaces(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil || st.Uid != 0 || st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

func (c fuseCheck) deviceError(err error) error {
	d := names.ShellWord(c.device)
	switch {
	case errors.Is(err, unix.ENOENT) && c.noNewPrivs:
		return errorf(ErrNoFUSE, "%s is missing: this runs inside of a sandbox, such as another rootsfs run, which has no FUSE: start rootsfs outside of it, and give the outer run the roots", d)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return errorf(ErrNoFUSE, "%s is missing: load the module: modprobe fuse (in a container, pass the device in: --device /dev/fuse)", d)
	case errors.Is(err, unix.EACCES) && c.uid != 0:
		return errorf(ErrNoFUSE, "%s may not be opened by this user, who needs to read and write it: root can allow it: chmod 0666 %[1]s; to keep that, %s, whose udev rules set it", d, distro.Install("fuse3"))
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return errorf(ErrNoFUSE, "%s may not be opened (%v): a container or a security module withholds it; start the container with --device /dev/fuse --cap-add SYS_ADMIN", d, err)
	}
	return errorf(ErrNoFUSE, "%s cannot be opened: %v", d, err)
}

// wrongDeviceError returns the error for a file at the device's path that is not the FUSE device.
// The error names the kind of the file. A container runtime creates a directory there if it is
// asked for a device that the host lacks.
func (c fuseCheck) wrongDeviceError(st *unix.Stat_t) error {
	what := "a special file"
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		what = "a regular file"
	case unix.S_IFDIR:
		what = "a directory"
	case unix.S_IFCHR:
		what = fmt.Sprintf("another device (%d, %d)", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	return errorf(ErrNoFUSE, "%s is %s and not the FUSE device, which is the character device 10, 229: put it right: mv %[1]s %[1]s.old && mknod -m 0666 %[1]s c 10 229 && modprobe fuse (in a container, start it with --device /dev/fuse)", names.ShellWord(c.device), what)
}

// findHelper returns the path of fusermount3 or, if there is none, of fusermount (version 2).
func findHelper(look func(string) (string, error)) (string, error) {
	for _, name := range []string{"fusermount3", "fusermount"} {
		if bin, err := look(name); err == nil {
			return bin, nil
		}
	}
	return "", errorf(ErrNoFUSE, "fusermount3 is not in PATH, and without it only root can mount; %s", distro.Install("fuse3"))
}

// hasFileCaps reports whether a program has file capabilities: some distributions give the
// helper cap_sys_admin instead of the set-user-id bit.
func hasFileCaps(path string) bool {
	n, err := unix.Getxattr(path, "security.capability", nil)
	return err == nil && n > 0
}

// noNewPrivs reports whether this process and its children can gain no privileges, so that
// the set-user-id bit of a program has no effect (prctl(2), PR_SET_NO_NEW_PRIVS).
func noNewPrivs() bool {
	v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return err == nil && v == 1
}

// CheckAllowOther returns an error if this user may not mount with allow_other, which lets
// other users into the mount. Root may. Any other user needs the line user_allow_other in
// /etc/fuse.conf, and the error says how to add it.
func CheckAllowOther() error { return checkAllowOther(fuseConf, os.Geteuid()) }

func checkAllowOther(conf string, uid int) error {
	if uid == 0 {
		return nil
	}
	const remedy = "to let other users into the mount, root must add the line user_allow_other to %s"
	data, err := os.ReadFile(conf)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errorf(err, remedy+" (the file does not exist yet)", names.ShellWord(conf))
	case err != nil:
		return errorf(err, remedy+" (the file cannot be read: %v)", names.ShellWord(conf), err)
	}
	for line := range strings.Lines(string(data)) {
		// As in libfuse, a line counts only if it has nothing but the word and perhaps a comment.
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "user_allow_other" {
			return nil
		}
	}
	return errorf(fs.ErrPermission, remedy, names.ShellWord(conf))
}
