package initproc

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

const (
	// rootSize bounds the minimal root's own files: most are copies of files of /etc, of at most
	// layout.CopyMax bytes each.
	rootSize = "64m"

	// bindAttrs are added to the flags of every bind, except those of devices. readOnlyAttrs also
	// forbid writing where file modes would permit it.
	bindAttrs     = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	readOnlyAttrs = bindAttrs | unix.MOUNT_ATTR_RDONLY

	// scratch is a directory with files and directories that are bound elsewhere. It stays in the
	// root while the command runs, and the command may not enter it.
	scratch = "/.rootsfs"
	// emptyDir and emptyFile are mounted on entries that the command must not see.
	emptyDir  = scratch + "/empty"
	emptyFile = scratch + "/none"
	// sysDir is where the copies of sysctls are.
	sysDir = scratch + "/sys"
	// treeAt is where a tree that the caller has opened is mounted while its directories are
	// bound. The mount lies in the host's root, and is unmounted together with the host's root. (A
	// separate unmount would take a while.)
	treeAt = "/usr"
)

// builder makes the minimal root in the mount namespace of this process. Its methods resolve the
// paths of the sandbox in the new root, which only this process can see so far.
type builder struct {
	root   int // the new root's descriptor
	limits int // descriptor of /proc/sys/user, whose path is hidden when forbidNested needs it
	layout *layout.Layout
	files  map[string]int // descriptors that the caller has opened, by name
	late   *lateMounts    // nil: nothing is shown later
	// socketsReachable is the reason why the host's sockets can be reached; see mountHost.
	// nil: they cannot be reached.
	socketsReachable error
}

// buildRoot makes the root described by a layout and moves this process into it. The mount
// namespace must be this process's own.
func buildRoot(l *layout.Layout, files map[string]int) (*builder, error) {
	// No mount made here may reach the host's namespace.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, step(err, "make the mounts private")
	}
	root, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "size", rootSize, "mode", "0755")
	if err != nil {
		return nil, err
	}
	b := &builder{root: root, layout: l, files: files}
	// Mount the new root over the host's root, the only directory that surely exists.
	if err := unix.MoveMount(root, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, step(err, "mount the new root")
	}
	// makeSkeleton copies files of the host, so it runs before bindRoots, whose mount at treeAt
	// hides a directory of the host.
	return b, runSteps(b.mountDevpts, b.mountProc, b.makeSkeleton, b.mountPrivateFS, b.bindHost, b.bindRoots, b.pivotRoot, b.sealRoot, b.forbidNested)
}

// mountPrivateFS mounts the file system that the command can fill.
func (b *builder) mountPrivateFS() error {
	// One inode for every 4 KiB: a limit in bytes alone does not bound empty files.
	fd, err := newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755",
		"size", strconv.FormatInt(b.layout.TmpSize, 10), "nr_inodes", strconv.FormatInt(b.layout.TmpSize/4096, 10))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for dir, mode := range layout.PrivateModes {
		name := strings.TrimPrefix(dir, layout.PrivateDir+"/")
		if err := unix.Mkdirat(fd, name, 0o755); err != nil {
			return step(err, "make %s", dir)
		}
		// mkdir's mode is cut by the umask.
		if err := unix.Fchmodat(fd, name, mode, 0); err != nil {
			return step(err, "set the mode of %s", dir)
		}
	}
	if err := runtimeLink(fd); err != nil {
		return err
	}
	return b.mount(fd, layout.PrivateDir)
}

// runtimeLink makes /run/user/UID a link to layout.Runtime, the command's XDG_RUNTIME_DIR. GnuPG
// looks for a directory for its sockets in /run/user/UID and does not read XDG_RUNTIME_DIR. Without
// the link GnuPG would use HOME, but no sockets can be made in a HOME that is kept.
func runtimeLink(fd int) error {
	user := strings.TrimPrefix(layout.Run, layout.PrivateDir+"/") + "/user"
	if err := unix.Mkdirat(fd, user, 0o755); err != nil {
		return step(err, "make /run/user")
	}
	return step(unix.Symlinkat(layout.Runtime, fd, user+"/"+strconv.Itoa(os.Getuid())), "make a link to %s", layout.Runtime)
}

// bindHost shows the host's directories and files.
func (b *builder) bindHost() error {
	for _, m := range b.layout.Binds {
		if err := b.mountHost(m); err != nil && !m.Optional {
			return err
		}
	}
	for _, path := range b.layout.Masks {
		if err := b.rebind(emptyFile, path, readOnlyAttrs); err != nil {
			return err
		}
	}
	for _, m := range b.layout.PrivateBinds {
		if err := b.rebind(m.From, m.To, bindAttrs); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) bind(m layout.Bind) error {
	attrs := uint64(readOnlyAttrs)
	switch {
	case m.Device:
		attrs = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	case m.Write:
		attrs = bindAttrs
	}
	fd, opened := b.files[m.File()]
	if !opened {
		var err error
		if fd, err = clone(unix.AT_FDCWD, m.From, attrs); err != nil {
			return step(err, "bind %s", m.From)
		}
	} else if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attrs}); err != nil {
		return step(err, "bind %s", m.From)
	}
	defer unix.Close(fd)
	return b.mount(fd, m.To)
}

// maxTerminals is how many terminals the command can have. By default all mounts of devpts, except
// the host's, share 3,072 terminals (kernel.pty.max less kernel.pty.reserve).
const maxTerminals = "256"

// mountDevpts gives the command terminals of its own, without those of the host.
func (b *builder) mountDevpts() error {
	fd, err := newFS("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "ptmxmode", "0666", "mode", "0600", "max", maxTerminals)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return b.mount(fd, "/dev/pts")
}

// bindRoots binds the roots from the tree. If the layout has spare directories, it keeps the whole
// tree open, too: see keepTree.
func (b *builder) bindRoots() error {
	l := b.layout
	from := l.TreeFrom
	if fd, opened := b.files[layout.TreeFile]; opened {
		defer unix.Close(fd)
		from = treeAt
		// Parts of a mount can be bound only if it is attached in this namespace.
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, treeAt, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return step(err, "mount the tree of roots")
		}
	}
	if l.FlatAt != "" {
		return b.bindTree(from, l.FlatAt)
	}
	if err := b.keepTree(from); err != nil {
		return err
	}
	for _, top := range l.Tops {
		if err := b.bindTree(from+top, top); err != nil && !errors.Is(err, unix.ENOENT) { // the tree may lack it
			return err
		}
	}
	for _, p := range l.Nested {
		if err := b.bindTree(from+p, p); err != nil {
			return err
		}
	}
	return nil
}

// bindTree binds one path of the tree at a path in the sandbox.
func (b *builder) bindTree(from, at string) error {
	for try := 1; ; try++ {
		fd, err := clone(unix.AT_FDCWD, from, bindAttrs)
		if err != nil {
			return step(err, "bind %s of the tree of roots", at)
		}
		err = b.mount(fd, at)
		unix.Close(fd)
		if !isVanished(err) || try == bindTries {
			return err
		}
	}
}

// pivotRoot makes the new root this process's root and unmounts the host's.
func (b *builder) pivotRoot() error {
	if err := unix.Fchdir(b.root); err != nil {
		return step(err, "enter the new root")
	}
	// If both arguments are the same, the old root lies on top of the new one and needs no
	// directory (pivot_root(2), NOTES).
	if err := unix.PivotRoot(".", "."); err != nil {
		return step(err, "pivot_root")
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return step(err, "let go of the host's root")
	}
	return step(unix.Chdir("/"), "enter the new root")
}

// sealRoot takes all permissions from scratch and makes the root itself read-only. Mounts in the
// root keep their flags.
func (b *builder) sealRoot() error {
	defer unix.Close(b.root)
	if err := unix.Chmod(scratch, 0); err != nil {
		return step(err, "close %s", scratch)
	}
	if err := b.keepRoot(); err != nil {
		return err
	}
	err := unix.MountSetattr(b.root, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	return step(err, "make the new root read-only")
}
