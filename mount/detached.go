package mount

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// A detached mount is in no mount namespace, so nobody finds it by a path, it needs no
// place, and the kernel takes it away with the last of those that have a copy of it,
// however they end.

// ErrNotDetached is why New makes no detached mount: it takes root, and a kernel that
// gives out copies of one (Linux 6.15).
var ErrNotDetached = errors.New("no detached mount can be made here")

// openDetached mounts nowhere, and returns the connection's descriptor.
func (m *Mount) openDetached(opts *fuse.MountOptions) (dev int, err error) {
	dev, err = unix.Open(mountpoint.Device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	mnt, err := makeDetached(dev, opts)
	if err != nil {
		_ = unix.Close(dev)
		if !lacksMounts(err) {
			return -1, fmt.Errorf("make a detached mount: %w", err)
		}
		return -1, fmt.Errorf("%w: %w", ErrNotDetached, err)
	}
	m.detached = os.NewFile(uintptr(mnt), "detached mount")
	return dev, nil
}

// newDetached mounts nowhere, for go-fuse's server.
func (m *Mount) newDetached(opts *fuse.MountOptions) (*fuse.Server, error) {
	dev, err := m.openDetached(opts)
	if err != nil {
		return nil, err
	}
	// From here on the device is go-fuse's, which closes it when it fails. It is to take
	// it and not to mount anything there.
	opts.DirectMount, opts.DirectMountStrict = false, false
	srv, err := fuse.NewServer(m.raw, "/dev/fd/"+strconv.Itoa(dev), opts)
	if err != nil {
		m.LetGo()
		return nil, err
	}
	return srv, nil
}

// lacksMounts reports whether an error says that the kernel has no detached mounts, or
// gives this process none. A resource that is used up is neither.
func lacksMounts(err error) bool {
	return slices.ContainsFunc([]unix.Errno{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL, unix.EOPNOTSUPP, unix.ENODEV},
		func(e unix.Errno) bool { return errors.Is(err, e) })
}

// makeDetached makes the mount of a connection, with what go-fuse gives to mount(2).
func makeDetached(dev int, opts *fuse.MountOptions) (int, error) {
	fs, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	attrs := unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	flags := slices.Clone(opts.Options)
	if opts.AllowOther {
		flags = append(flags, "allow_other")
	}
	for _, f := range flags {
		if f == "ro" {
			attrs |= unix.MOUNT_ATTR_RDONLY
		}
		if err := unix.FsconfigSetFlag(fs, f); err != nil {
			return -1, fmt.Errorf("%s: %w", f, err)
		}
	}
	for _, o := range [][2]string{
		{"source", opts.FsName}, {"subtype", opts.Name}, {"fd", strconv.Itoa(dev)},
		{"rootmode", strconv.FormatUint(unix.S_IFDIR, 8)},
		{"user_id", strconv.Itoa(os.Geteuid())}, {"group_id", strconv.Itoa(os.Getegid())},
		{"max_read", strconv.Itoa(opts.MaxWrite)},
	} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("%s: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	mnt, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return -1, err
	}
	probe, err := copyMount(mnt)
	if err != nil {
		_ = unix.Close(mnt)
		return -1, err
	}
	_ = unix.Close(probe)
	return mnt, nil
}

func copyMount(mnt int) (int, error) {
	return unix.OpenTree(mnt, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
}

// deviceOf is the device number of a mount, as mountinfo has it, asked of the kernel
// and not of the mount's server.
func deviceOf(mnt int) (string, error) {
	var st unix.Statx_t
	err := unix.Statx(mnt, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st)
	return fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor), err
}

// Copy returns a copy of a detached mount, for whoever is to attach it (move_mount(2)),
// and to close. The error wraps ErrNotDetached when the mount is not, or not any more.
func (m *Mount) Copy() (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.detached == nil {
		return nil, &guard.Error{Op: names.OpMount, Kind: names.Invalid, Err: ErrNotDetached}
	}
	fd, err := copyMount(int(m.detached.Fd()))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "copy of a detached mount"), nil
}

// Attach puts a detached mount at a point, an existing, empty directory, resolved;
// there it is like one that was made there.
func (m *Mount) Attach(point string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.detached == nil {
		return &guard.Error{Op: names.OpMount, Kind: names.Invalid, Err: ErrNotDetached}
	}
	if err := unix.MoveMount(int(m.detached.Fd()), "", unix.AT_FDCWD, point, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return mountpoint.CannotMount(point, err)
	}
	_ = m.detached.Close()
	m.detached = nil
	info, err := mountpoint.Find(point)
	if err != nil {
		_ = unix.Unmount(point, unix.MNT_DETACH) // which Detach would have to find
		return err
	}
	m.at.Store(&info)
	return nil
}

// LetGo lets go of a detached mount: from then on it is there for as long as somebody
// has a copy. Nobody should keep it who serves it, once there is something to be
// written in it: a process that is killed while it holds the last copy waits for
// itself (see Options.Outside).
func (m *Mount) LetGo() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.detached != nil {
		_ = m.detached.Close()
		m.detached = nil
	}
}
