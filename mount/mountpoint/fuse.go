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

// Device is the FUSE device, and fuseConf the configuration of fusermount3, where every
// distribution has them.
const (
	Device   = "/dev/fuse"
	fuseConf = "/etc/fuse.conf"
)

// fuseNumber is the device number of the FUSE device.
var fuseNumber = unix.Mkdev(10, 229)

// CheckFUSE returns why this process cannot mount with FUSE, or nil. It checks that the device
// exists, is the FUSE device and can be opened, and that users other than root have the
// set-user-id helper fusermount3. The error wraps ErrNoFUSE and names what to install
// or load. It opens /dev/fuse, which is harmless, and mounts nothing.
func CheckFUSE() error {
	return fuseCheck{
		device: Device, number: fuseNumber, uid: os.Geteuid(), look: exec.LookPath, noNewPrivs: noNewPrivs(),
	}.run()
}

// fuseCheck holds the dependencies of CheckFUSE, for tests.
type fuseCheck struct {
	device     string
	number     uint64
	uid        int
	look       func(string) (string, error)
	noNewPrivs bool
}

func (c fuseCheck) run() error {
	// The kind is checked before the device is opened: opening another device can have
	// effects.
	var st unix.Stat_t
	if err := unix.Stat(c.device, &st); err != nil {
		return c.deviceError(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != c.number {
		return c.wrongDeviceError(&st)
	}
	// Checked for users too: fusermount3 opens the device with the rights of the user who
	// runs it (measured: mode 0600 gives "Permission denied").
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

// helper finds fusermount3, and refuses one that is not set-user-id root: PATH may name
// directories of a project (npx, virtual environments), whose programs must not be run. It also
// refuses a file that others could replace before it is run: the returned path has no links, and
// only root can write the directories in it. The error proposes no command that would give such a
// file rights.
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
	case !onlyRootWrites(filepath.Dir(bin)):
		return "", errorf(ErrNoFUSE, "%s lies in a directory that others than root can write; %s, or take its directory out of PATH", names.ShellWord(bin), distro.Install("fuse3"))
	case c.noNewPrivs:
		return "", errorf(ErrNoFUSE, "this process may not gain privileges (no_new_privs is set, as sandboxes and some services do), so %s cannot mount: start rootsfs outside", names.ShellWord(bin))
	}
	return bin, nil
}

// onlyRootWrites reports whether only root can replace files in a directory and in those above
// it. The path must have no links.
func onlyRootWrites(dir string) bool {
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

// wrongDeviceError returns an error that names the file at the device's path that is not the FUSE
// device. A container runtime creates a directory there if it is asked for a device that the host
// lacks.
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

// findHelper returns the path of fusermount3, or of fusermount (version 2) without it.
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
// a set-user-id program has no effect (prctl(2), PR_SET_NO_NEW_PRIVS).
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
		// As libfuse reads the file: the line has nothing but the word and a comment.
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "user_allow_other" {
			return nil
		}
	}
	return errorf(fs.ErrPermission, remedy, names.ShellWord(conf))
}
