package mountpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Attach makes a mount at a directory and returns the connection's descriptor, which no
// child of this process inherits. Whoever has it answers for all that the mount shows.
func Attach(point string, opts *fuse.MountOptions) (*os.File, error) {
	if opts.DirectMountStrict {
		return attachDirectly(point, opts)
	}
	return attachByHelper(point, opts)
}

// superOptions are the options of the file system, of opts and more.
func superOptions(opts *fuse.MountOptions, more ...string) string {
	all := append(more, opts.Options...)
	if opts.AllowOther {
		all = append(all, "allow_other")
	}
	return strings.Join(append(all, fmt.Sprintf("max_read=%d", opts.MaxWrite)), ",")
}

// attachDirectly mounts by mount(2), as root may.
func attachDirectly(point string, opts *fuse.MountOptions) (*os.File, error) {
	fd, err := unix.Open(Device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", Device, err)
	}
	flags := opts.DirectMountFlags
	if flags == 0 {
		flags = unix.MS_NOSUID | unix.MS_NODEV
	}
	data := superOptions(opts, fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d", fd, unix.S_IFDIR, os.Geteuid(), os.Getegid()))
	if err := unix.Mount(opts.FsName, point, "fuse."+opts.Name, flags, data); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), Device), nil
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
	cmd := exec.Command(bin, "-o", superOptions(opts, "fsname="+opts.FsName, "subtype="+opts.Name), "--", point)
	cmd.Env, cmd.ExtraFiles = []string{"_FUSE_COMMFD=3"}, []*os.File{theirs}
	out, err := cmd.CombinedOutput()
	_ = theirs.Close()
	if err != nil {
		text := strings.TrimSpace(string(bytes.TrimPrefix(out, []byte("fusermount3: "))))
		return nil, fmt.Errorf("%s: %w (%s)", bin, err, names.Quote(text))
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
