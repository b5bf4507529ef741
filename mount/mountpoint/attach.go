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

// Attach mounts at point, an empty directory whose path has no links, and returns the
// connection's descriptor, which no child of this process inherits. The process that has
// the descriptor answers every request to the mount. Users other than root need fusermount3.
func Attach(point string, opts *fuse.MountOptions) (device *os.File, err error) {
	if os.Geteuid() != 0 {
		return attachByHelper(point, opts)
	}
	if device, err = openDevice(); err != nil {
		return nil, err
	}
	if err := attach(point, device, opts); err != nil {
		_ = device.Close()
		return nil, err
	}
	return device, nil
}

// attach mounts a connection by mount(2), as root. The mount point is named by a descriptor,
// because mount(2) would follow a link that another process has put at point meanwhile.
func attach(point string, device *os.File, opts *fuse.MountOptions) error {
	dir, err := Top(point)
	if err != nil {
		return err
	}
	defer dir.Close()
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	options := append(superOptions(opts),
		fmt.Sprintf("fd=%d", device.Fd()), fmt.Sprintf("rootmode=%o", unix.S_IFDIR),
		fmt.Sprintf("user_id=%d", os.Geteuid()), fmt.Sprintf("group_id=%d", os.Getegid()))
	if slices.Contains(options, "ro") {
		flags |= unix.MS_RDONLY
	}
	err = unix.Mount(opts.FsName, fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), "fuse."+opts.Name, flags, strings.Join(options, ","))
	return os.NewSyscallError("mount", err)
}

// Top opens the directory at point without asking the daemon of a mount there. A link at the
// end of point is not followed.
func Top(point string) (*os.File, error) {
	fd, err := unix.Open(point, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", names.Quote(point), err)
	}
	return os.NewFile(uintptr(fd), point), nil
}

// openDevice opens /dev/fuse: a new connection, to be given to one mount.
func openDevice() (*os.File, error) {
	fd, err := unix.Open(Device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", Device, err)
	}
	return os.NewFile(uintptr(fd), Device), nil
}

// superOptions returns the file-system options that mount(2) and fusermount3 both take.
func superOptions(opts *fuse.MountOptions) []string {
	all := append(slices.Clone(opts.Options), fmt.Sprintf("max_read=%d", opts.MaxWrite))
	if opts.AllowOther {
		all = append(all, "allow_other")
	}
	return all
}

// attachByHelper mounts by fusermount3, which sends the connection's descriptor over a socket.
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
	helperEnd := os.NewFile(uintptr(fds[1]), "socket of "+bin)
	options := append(superOptions(opts), "fsname="+opts.FsName, "subtype="+opts.Name)
	cmd := exec.Command(bin, "-o", strings.Join(options, ","), "--", point)
	cmd.Env, cmd.ExtraFiles = []string{"_FUSE_COMMFD=3"}, []*os.File{helperEnd}
	output, err := cmd.CombinedOutput()
	_ = helperEnd.Close()
	if err != nil {
		return nil, fmt.Errorf("%s: %w (%s)", bin, err, helperText(output))
	}
	fd, err := receiveDescriptor(fds[0])
	if err != nil {
		return nil, fmt.Errorf("receive the descriptor from %s: %w", bin, err)
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
	return -1, errors.New("no descriptor was sent")
}

// readAheadKiB is how far the kernel reads ahead of a sequential reader. The kernel's
// default of 128 KiB is less than one READ of this mount, so the reader waits for every
// request. With 512 KiB or more the next requests are answered while the reader copies
// (measured with a cold cache: 1,000 MB/s against 500; larger windows gain nothing).
const readAheadKiB = 1024

// WidenReadAhead widens the window of the mount with the device dev. FUSE_INIT can only
// narrow it (process_init_reply in fs/fuse/inode.c takes the smaller value), so WidenReadAhead
// writes the attribute of the backing device. Only root may write the attribute.
func WidenReadAhead(dev string) error {
	return os.WriteFile("/sys/class/bdi/"+dev+"/read_ahead_kb", fmt.Append(nil, readAheadKiB), 0)
}

// CannotServe returns the error for a mount with the flag how, which the kernel does not support. The
// error tells why, with a remedy.
func CannotServe(how string, why error, remedy string) error {
	return errorf(ErrNoFUSE, "%s: %v; %s", how, why, remedy)
}

// CannotMount returns an error that tells why mounting at point failed, with a remedy.
func CannotMount(point string, err error) error {
	remedy := "`rootsfs doctor` says what is missing"
	switch {
	case errors.Is(err, unix.EPERM):
		remedy = "in a container, root needs the right to mount (--cap-add SYS_ADMIN), and the security module must allow it"
	case strings.Contains(err.Error(), "could not determine username"):
		remedy = fmt.Sprintf("fusermount3 serves users that have a name: give uid %d an entry in /etc/passwd", os.Getuid())
	}
	return errorf(ErrNoFUSE, "cannot mount at %s: %v; %s", names.ShellWord(point), err, remedy)
}
