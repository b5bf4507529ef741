package initproc

import (
	"strings"

	"golang.org/x/sys/unix"
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
func (b *builder) open(path string, flags uint64) (int, error) {
	rel := strings.TrimPrefix(path, "/")
	if rel == "" {
		rel = "."
	}
	return unix.Openat2(b.root, rel, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// attach mounts what fd is at a path.
func (b *builder) attach(fd int, at string) error {
	target, err := b.open(at, unix.O_PATH)
	if err != nil {
		return step(err, "find %s in the new root", at)
	}
	defer unix.Close(target)
	err = unix.MoveMount(fd, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return step(err, "mount %s", at)
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

// rebind shows a directory or file of the new root at another place of it.
func (b *builder) rebind(from, at string, attrs uint64) error {
	src, err := b.open(from, unix.O_PATH)
	if err != nil {
		return step(err, "find %s in the new root", from)
	}
	defer unix.Close(src)
	fd, err := clone(src, "", attrs)
	if err != nil {
		return step(err, "copy the mount of %s", from)
	}
	defer unix.Close(fd)
	return b.attach(fd, at)
}
