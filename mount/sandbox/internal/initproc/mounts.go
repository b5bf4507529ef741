package initproc

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// newFS makes a file system that is mounted nowhere yet.
func newFS(kind string, attrs int, options ...string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, step(err, "open a new %s", kind)
	}
	defer unix.Close(fs)
	for i := 0; i < len(options); i += 2 {
		if err := unix.FsconfigSetString(fs, options[i], options[i+1]); err != nil {
			return -1, step(err, "set %s of the new %s", options[i], kind)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, step(err, "make a new %s", kind)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	return fd, step(err, "mount a new %s", kind)
}

// open opens a path of the new root.
func (b *builder) open(path string) (int, error) {
	return unix.Openat2(b.root, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// create makes an empty file or directory of the new root.
func (b *builder) create(parent int, at string, file bool) error {
	return createAt(parent, filepath.Base(at), file)
}

// mount attaches the mount of fd at a path. It makes the path if the new root lacks it.
func (b *builder) mount(fd int, at string) error {
	file, err := isFile(fd)
	if err != nil {
		return step(err, "look at %s", at)
	}
	target, err := openOrCreate(at, file, b.open, b.create)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	err = unix.MoveMount(fd, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return step(err, "mount %s", at)
}

// mkdir makes a directory of the new root, if it is not there.
func (b *builder) mkdir(path string) error {
	fd, err := openOrCreate(path, false, b.open, b.create)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// openOrCreate opens a path. If the path is missing, it creates an empty file or directory there,
// and the missing directories above it. It makes each of them with create, which gets a descriptor
// of the parent directory.
func openOrCreate(at string, file bool, open func(path string) (int, error), create func(parent int, at string, file bool) error) (int, error) {
	fd, err := open(at)
	if !errors.Is(err, unix.ENOENT) || at == "/" {
		return fd, step(err, "find %s", at)
	}
	parent, err := openOrCreate(filepath.Dir(at), false, open, create)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	if err := create(parent, at, file); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, step(err, "make %s", at)
	}
	fd, err = open(at)
	return fd, step(err, "find %s", at)
}

// createAt makes an empty file or directory in the directory dir.
func createAt(dir int, name string, file bool) error {
	if file {
		return unix.Mknodat(dir, name, unix.S_IFREG|0o644, 0)
	}
	return unix.Mkdirat(dir, name, 0o755)
}

// isFile reports whether a descriptor does not refer to a directory.
func isFile(fd int) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Mode&unix.S_IFMT != unix.S_IFDIR, err
}

// clone makes a detached copy of the mounts at a directory or file.
func clone(dirfd int, path string, attrs uint64) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE)
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	fd, err := unix.OpenTree(dirfd, path, flags)
	if err != nil {
		return -1, err
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attrs, Propagation: unix.MS_PRIVATE})
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// rebind shows a directory or file of the new root at another path in it.
func (b *builder) rebind(from, at string, attrs uint64) error {
	src, err := b.open(from)
	if err != nil {
		return step(err, "find %s in the new root", from)
	}
	defer unix.Close(src)
	fd, err := clone(src, "", attrs)
	if err != nil {
		return step(err, "copy the mount of %s", from)
	}
	defer unix.Close(fd)
	return b.mount(fd, at)
}

// The command can connect to a socket in any directory that it sees: neither a read-only
// mount nor Landlock before its ABI 9 refuses connect(2). So the system directories of the host
// are shown through overlays. A file of an overlay is the host's file, but a socket of an overlay
// has another inode than the socket that a server has bound, so connect(2) fails with ECONNREFUSED.
// In the same way, a FIFO of an overlay does not reach a process that has opened the host's FIFO.
// If an overlay cannot be mounted, the directory is bound, and sockets of the unix family are
// refused.

// mountHost shows a directory or file of the host: a system directory by an overlay if possible,
// everything else by a bind.
func (b *builder) mountHost(m layout.Bind) error {
	why := fmt.Errorf("%s is shown as it is", m.To)
	if m.System {
		if why = b.mountOverlay(m); why == nil {
			return nil
		}
	}
	err := b.bind(m)
	if err == nil && !m.Device && !m.Kernel && !m.Write && b.socketsReachable == nil {
		b.socketsReachable = why
	}
	return err
}

// mountOverlay shows a directory of the host by a read-only overlay. The kernel refuses an overlay
// of a directory with a mount in it, because the overlay would show the files under that mount.
func (b *builder) mountOverlay(m layout.Bind) error {
	// An overlay needs two layers. The second one is an empty directory.
	lower := strings.NewReplacer(`\`, `\\`, ":", `\:`).Replace(m.From) + ":" + ownFD(b.root) + emptyDir
	fd, err := newFS("overlay", readOnlyAttrs, "lowerdir", lower, "xino", "auto")
	if err != nil {
		return step(err, "show %s", m.From)
	}
	defer unix.Close(fd)
	return b.mount(fd, m.To)
}

// refreshEvery is how long the command may see an old state of a system directory. An
// overlay caches look-ups, and does not notice that the host has installed or replaced a
// program. The kernel drops unused cache entries when the overlay is configured anew.
const refreshEvery = 2 * time.Second

// refreshSystem makes the overlays drop their caches every refreshEvery. It returns at
// once if there are no overlays, and otherwise never.
func refreshSystem(l *layout.Layout) {
	var dirs []int
	for _, m := range l.Binds {
		if !m.System {
			continue
		}
		fd, err := openInside(m.To)
		if err != nil {
			continue // the root does not show this directory
		}
		var st unix.Statfs_t
		if unix.Fstatfs(fd, &st) != nil || st.Type != unix.OVERLAYFS_SUPER_MAGIC {
			unix.Close(fd) // a bind, not an overlay
			continue
		}
		dirs = append(dirs, fd)
	}
	for len(dirs) > 0 {
		time.Sleep(refreshEvery)
		for _, fd := range dirs {
			refresh(fd)
		}
	}
}

// refresh configures a file system anew, without changes.
func refresh(fd int) {
	fs, err := unix.Fspick(fd, "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return // try again the next time
	}
	defer unix.Close(fs)
	_ = unix.FsconfigReconfigure(fs) // try again the next time
}
