package mount

import (
	"os"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// newServer mounts. Whoever has the connection's descriptor answers for all the
// mount shows, so no child of this process may inherit it: go-fuse opens it
// without O_CLOEXEC when it mounts directly (as root; fusermount3's it marks).
func newServer(files fuse.RawFileSystem, point string, opts *fuse.MountOptions) (*fuse.Server, error) {
	if !opts.DirectMountStrict {
		return fuse.NewServer(files, point, opts)
	}
	// Nothing is forked until the descriptor is marked.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	srv, err := fuse.NewServer(files, point, opts)
	if err == nil {
		for _, fd := range openDevices() {
			unix.CloseOnExec(fd)
		}
	}
	return srv, err
}

// openDevices are this process's descriptors of fuseDevice that a child would inherit.
func openDevices() []int {
	const dir = "/proc/self/fd/"
	list, _ := os.ReadDir(dir)
	var fds []int
	for _, e := range list {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// Nearly all are marked, and need not be looked at any further.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		// Not followed: that would ask somebody's daemon.
		if target, err := os.Readlink(dir + e.Name()); err == nil && target == mountpoint.Device {
			fds = append(fds, fd)
		}
	}
	return fds
}
