package mountpoint

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// ErrNotDetached is why Detached makes no mount: it takes root, and a kernel that gives
// out copies of one (Linux 6.15).
var ErrNotDetached = errors.New("no detached mount can be made here")

// Attach makes a mount at a directory, which is empty and resolved, and returns the
// connection's descriptor, which no child of this process inherits. Whoever has it answers
// for all that the mount shows. Anybody but root needs fusermount3.
func Attach(point string, opts *fuse.MountOptions) (device *os.File, err error) {
	if os.Geteuid() != 0 {
		return attachByHelper(point, opts)
	}
	if device, err = openDevice(); err != nil {
		return nil, err
	}
	mnt, err := makeMount(device, opts)
	switch {
	case err == nil:
		err = move(mnt, point)
		_ = mnt.Close()
	case lacksMounts(err):
		err = mountAt(point, device, opts)
	}
	if err != nil {
		_ = device.Close()
		return nil, err
	}
	return device, nil
}

// mountAt mounts a connection by mount(2), where the kernel (before Linux 5.2) or a
// filter of system calls has nothing newer.
func mountAt(point string, device *os.File, opts *fuse.MountOptions) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	options := append(superOptions(opts), connectionOptions(device)...)
	if slices.Contains(options, "ro") {
		flags |= unix.MS_RDONLY
	}
	err := unix.Mount(opts.FsName, point, "fuse."+opts.Name, flags, strings.Join(options, ","))
	return os.NewSyscallError("mount", err)
}

// Detached makes a mount that is in no mount namespace, and returns the descriptors of the
// connection and of the mount. Nobody finds the mount by a path, and the kernel takes it
// away with the last of those that have a copy of it, however they end.
func Detached(opts *fuse.MountOptions) (device, mnt *os.File, err error) {
	if device, err = openDevice(); err != nil {
		return nil, nil, err
	}
	if mnt, err = makeMount(device, opts); err == nil {
		var probe *os.File
		if probe, err = Copy(mnt); err == nil {
			return device, mnt, probe.Close()
		}
		_ = mnt.Close()
	}
	_ = device.Close()
	if lacksMounts(err) {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotDetached, err)
	}
	return nil, nil, fmt.Errorf("make a detached mount: %w", err)
}

// lacksMounts reports whether an error says that the kernel has no detached mounts, or
// gives this process none. A resource that is used up is neither.
func lacksMounts(err error) bool {
	return slices.ContainsFunc([]unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP, unix.ENODEV},
		func(e unix.Errno) bool { return errors.Is(err, e) })
}

// Copy returns a copy of a detached mount, for a process that is to attach it.
func Copy(mnt *os.File) (*os.File, error) {
	fd, err := unix.OpenTree(int(mnt.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, os.NewSyscallError("open_tree", err)
	}
	return os.NewFile(uintptr(fd), "copy of a detached mount"), nil
}

// Move attaches a detached mount at a directory, which is empty and resolved.
func Move(mnt *os.File, point string) (Info, error) {
	if err := move(mnt, point); err != nil {
		return Info{}, CannotMount(point, err)
	}
	in, err := Find(point)
	if err != nil {
		_ = unix.Unmount(point, unix.MNT_DETACH) // which Detach would have to find
	}
	return in, err
}

// move attaches a detached mount, and follows no link at the end of point.
func move(mnt *os.File, point string) error {
	err := unix.MoveMount(int(mnt.Fd()), "", unix.AT_FDCWD, point, unix.MOVE_MOUNT_F_EMPTY_PATH)
	return os.NewSyscallError("move_mount", err)
}

// Top opens the top directory of a mount, which its server is not asked for.
func Top(point string) (*os.File, error) {
	fd, err := unix.Open(point, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", names.Quote(point), err)
	}
	return os.NewFile(uintptr(fd), point), nil
}

// DeviceOf returns the device number of a detached mount, as Info.Dev has it. It asks the
// kernel and not the mount's server.
func DeviceOf(mnt *os.File) (string, error) {
	var st unix.Statx_t
	err := unix.Statx(int(mnt.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st)
	return fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor), err
}

// openDevice opens /dev/fuse: a new connection, to be given to one mount.
func openDevice() (*os.File, error) {
	fd, err := unix.Open(Device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", Device, err)
	}
	return os.NewFile(uintptr(fd), Device), nil
}

// makeMount makes the mount of a connection, as root may. It is attached nowhere.
func makeMount(device *os.File, opts *fuse.MountOptions) (*os.File, error) {
	fs, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	attrs := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	options := append(superOptions(opts), "source="+opts.FsName, "subtype="+opts.Name)
	for _, option := range append(options, connectionOptions(device)...) {
		name, value, hasValue := strings.Cut(option, "=")
		if hasValue {
			err = unix.FsconfigSetString(fs, name, value)
		} else {
			err = unix.FsconfigSetFlag(fs, name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if name == "ro" {
			attrs |= unix.MOUNT_ATTR_RDONLY
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	return os.NewFile(uintptr(mnt), "detached mount"), nil
}

// connectionOptions are the options that tell the kernel whose the connection is.
func connectionOptions(device *os.File) []string {
	return []string{
		fmt.Sprintf("fd=%d", device.Fd()), fmt.Sprintf("rootmode=%o", unix.S_IFDIR),
		fmt.Sprintf("user_id=%d", os.Geteuid()), fmt.Sprintf("group_id=%d", os.Getegid()),
	}
}

// superOptions are the options of the file system that both ways to mount take.
func superOptions(opts *fuse.MountOptions) []string {
	all := append(slices.Clone(opts.Options), fmt.Sprintf("max_read=%d", opts.MaxWrite))
	if opts.AllowOther {
		all = append(all, "allow_other")
	}
	return all
}

// attachByHelper has fusermount3 mount, which passes the descriptor on over a socket.
func attachByHelper(point string, opts *fuse.MountOptions) (*os.File, error) {
	bin, err := fuseCheck{look: exec.LookPath}.helper()
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket for %s: %w", bin, err)
	}
	defer unix.Close(fds[0])
	theirs := os.NewFile(uintptr(fds[1]), "socket of "+bin)
	options := append(superOptions(opts), "fsname="+opts.FsName, "subtype="+opts.Name)
	cmd := exec.Command(bin, "-o", strings.Join(options, ","), "--", point)
	cmd.Env, cmd.ExtraFiles = []string{"_FUSE_COMMFD=3"}, []*os.File{theirs}
	output, err := cmd.CombinedOutput()
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("%s: %w (%s)", bin, err, helperText(output))
	}
	fd, err := receiveDescriptor(fds[0])
	if err != nil {
		return nil, fmt.Errorf("the descriptor from %s: %w", bin, err)
	}
	return os.NewFile(uintptr(fd), Device), nil
}

// receiveDescriptor receives one descriptor from a socket.
func receiveDescriptor(socket int) (int, error) {
	data, control := make([]byte, 4), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, data, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return -1, err
	}
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return -1, errors.New("none came")
}

// readAheadKiB is how far the kernel reads ahead of a sequential reader. Its default of
// 128 KiB is less than one of our requests, so that every request was waited for; with 512
// KiB or more the next ones are under way while the reader copies (measured: 1,000 MB/s
// against 500 cold, and no more beyond).
const readAheadKiB = 1024

// WidenReadAhead widens the window of the mount with the device dev. FUSE_INIT can only
// narrow it (process_init_reply in fs/fuse/inode.c takes the smaller value), so the backing
// device's attribute is the one way, and it is root's.
func WidenReadAhead(dev string) error {
	return os.WriteFile("/sys/class/bdi/"+dev+"/read_ahead_kb", fmt.Append(nil, readAheadKiB), 0)
}

// CannotMount explains why no mount could be made at point, or nowhere if point is "".
func CannotMount(point string, err error) error {
	remedy := "`rootsfs doctor` says what is missing"
	if errors.Is(err, unix.EPERM) {
		remedy = "whoever is root in a container needs the right to mount (--cap-add SYS_ADMIN), and a security module must let it be used"
	}
	if point != "" {
		point = " at " + names.ShellWord(point)
	}
	return errorf(ErrNoFUSE, "cannot mount%s: %v; %s", point, err, remedy)
}
