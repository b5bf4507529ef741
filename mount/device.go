package mount

import (
	"os"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
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

// openDevices are this process's descriptors of fuseDevice.
func openDevices() []int {
	const dir = "/proc/self/fd/"
	list, _ := os.ReadDir(dir)
	var fds []int
	for _, e := range list {
		// Not followed: that would ask somebody's daemon.
		if target, err := os.Readlink(dir + e.Name()); err == nil && target == fuseDevice {
			if fd, err := strconv.Atoi(e.Name()); err == nil {
				fds = append(fds, fd)
			}
		}
	}
	return fds
}
