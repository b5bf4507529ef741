package mountpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// connectionsDir is the usual mount point of the fusectl file system.
const connectionsDir = "/sys/fs/fuse/connections"

// Abort ends the FUSE connection of the mount whose device is dev ("major:minor",
// Info.Dev). Waiting and later requests fail with ENOTCONN or ECONNABORTED, whatever the daemon
// does. Pages in the kernel's cache stay readable through existing descriptors and mappings, so
// an abort is a last resort and revokes nothing.
//
// Abort does not mount fusectl. If fusectl is not mounted, the error wraps ErrNoFusectl and
// tells how to mount it. If the connection has ended already, the error wraps
// fs.ErrNotExist. Only root and the user who mounted may abort.
func Abort(dev string) error { return abort(connectionsDir, dev) }

func abort(connections, dev string) error {
	// The connection's number is that of the device, in the kernel's encoding. The major
	// number of a FUSE file system without a block device is 0.
	minor, hasMajor0 := strings.CutPrefix(dev, "0:")
	id, err := strconv.ParseUint(minor, 10, 20)
	if !hasMajor0 || err != nil {
		return fmt.Errorf("device %q is not that of a FUSE connection", dev)
	}
	file := filepath.Join(connections, strconv.FormatUint(id, 10), "abort")
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		_, err = unix.Write(fd, []byte("1"))
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist) && !isFusectl(connections):
		return errorf(ErrNoFusectl, "connection %d cannot be aborted: fusectl is not mounted: mount -t fusectl fusectl %s", id, names.ShellWord(connections))
	case errors.Is(err, fs.ErrNotExist):
		return errorf(fs.ErrNotExist, "there is no FUSE connection %d: it has ended already", id)
	case errors.Is(err, fs.ErrPermission):
		return errorf(err, "connection %d cannot be aborted: only the user who mounted it and root may", id)
	}
	return &os.PathError{Op: "abort", Path: file, Err: err}
}

// isFusectl reports whether fusectl is mounted at dir. It checks the file system's type,
// because the kernel creates the empty directory even if fusectl is not mounted.
func isFusectl(dir string) bool {
	const fuseCtlMagic = 0x65735543 // FUSE_CTL_SUPER_MAGIC, fs/fuse/control.c
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && int64(st.Type) == fuseCtlMagic
}
