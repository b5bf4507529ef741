package beneath

import (
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// Owner is on whose behalf a new object is made. A daemon running as root makes
// it with the file-system uid and gid of the caller, so that it never belongs
// to anybody else, not even for a moment; any other daemon makes it as itself.
type Owner struct {
	UID, GID uint32
}

// as runs f with the owner's file-system ids. setfsuid(2) changes them for the
// calling thread only, so the goroutine is tied to it meanwhile. Dropping the
// uid to an ordinary user's drops the file-system capabilities with it; where
// the caller has its right through a supplementary group, which FUSE does not
// tell, f is refused here although the kernel allowed it, and fix is then used
// instead: f as root, followed by a change of owner. fix runs with the caller's
// file-system gid, so that the kernel chooses the group of what is made: the
// caller's, or the directory's where that has the set-group-id bit.
func (o Owner) as(f func() error, fix func() error) error {
	if unix.Geteuid() != 0 || o.UID == 0 && o.GID == 0 {
		return f()
	}
	err := o.onThread(f)
	if err != unix.EACCES && err != unix.EPERM || fix == nil {
		return err
	}
	return Owner{UID: 0, GID: o.GID}.onThread(fix)
}

// onThread runs f with the owner's file-system ids.
func (o Owner) onThread(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsgid(int(o.GID)); err != nil {
		return err
	}
	defer func() { _ = unix.Setfsgid(0) }()
	if err := unix.Setfsuid(int(o.UID)); err != nil {
		return err
	}
	defer func() { _ = unix.Setfsuid(0) }()
	return f()
}

// OpenFile opens the regular file called base. Flags are those of open(2);
// O_TRUNC and O_CREAT are for the caller to do. It never opens anything but a
// regular file: the type is looked at first and, in case the name was exchanged
// in between, again on the descriptor, which O_NONBLOCK keeps from hanging on a
// FIFO.
func OpenFile(d Dir, base string, flags int) (int, Info, error) {
	before, err := StatIn(d, base)
	if err != nil {
		return -1, Info{}, err
	}
	if err := openable(&before); err != nil {
		return -1, Info{}, err
	}
	fd, err := openPlain(d, base, flags)
	if err != nil {
		return -1, Info{}, err
	}
	info, err := Stat(fd)
	if err == nil && info.ID() != before.ID() {
		err = unix.ESTALE
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, Info{}, err
	}
	return fd, info, nil
}

// openPlain resolves the last element like those before it: a file can be a
// mount point as well as a directory (mount --bind FILE FILE).
func openPlain(d Dir, base string, flags int) (fd int, err error) {
	flags |= unix.O_NOFOLLOW | unix.O_NOCTTY | unix.O_NONBLOCK | unix.O_LARGEFILE
	return open(d.FD, base, uint64(flags), d.resolve())
}

func openable(i *Info) error {
	switch i.Type() {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return unix.EISDIR
	case unix.S_IFLNK:
		return unix.ELOOP
	}
	return unix.ENXIO
}

// CreateFile makes the file called base, which must not exist, and opens it.
func CreateFile(l *guard.Lease, d Dir, base string, flags int, mode uint32, o Owner) (int, Info, error) {
	if err := room(); err != nil {
		return -1, Info{}, err
	}
	fd := -1
	make := func() error {
		return change(l, func() (err error) {
			fd, err = unix.Openat(d.FD, base, flags|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY, mode)
			return err
		})
	}
	err := o.as(make, func() error {
		if err := make(); err != nil {
			return err
		}
		return o.own(l, fd, mode)
	})
	if err != nil {
		return -1, Info{}, err
	}
	if int64(fd) >= descriptors.kept.Load() {
		descriptors.scarce.Store(true) // the last one: it is there already
	}
	info, err := Stat(fd)
	if err == nil {
		err = unmask(l, fd, d, &info, mode)
	}
	if err == nil {
		err = keepSetgid(l, fd, &info, mode)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, Info{}, err
	}
	return fd, info, nil
}

// keepSetgid sets the set-group-id bit that making a file in a set-group-id
// directory drops for somebody outside the group. The kernel in front of us has
// applied that rule to the mode already, with the caller's supplementary groups,
// which the thread that made the file does not have.
func keepSetgid(l *guard.Lease, fd int, info *Info, mode uint32) error {
	if mode&unix.S_ISGID == 0 || info.Mode&unix.S_ISGID != 0 || info.IsDir() || unix.Geteuid() != 0 {
		return nil
	}
	if err := Chmod(l, fd, info.Mode&07777|unix.S_ISGID); err != nil {
		return err
	}
	info.Mode |= unix.S_ISGID
	return nil
}

// own gives a file just made to the owner's uid and restores the bits that a
// change of owner clears. The file has its group already, see Owner.as.
func (o Owner) own(l *guard.Lease, fd int, mode uint32) error {
	if err := Chown(l, fd, int(o.UID), -1); err != nil {
		return err
	}
	if mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		return Chmod(l, fd, mode&07777)
	}
	return nil
}

// Tmpfile makes a file without a name in the directory.
func Tmpfile(l *guard.Lease, d Dir, flags int, mode uint32, o Owner) (int, Info, error) {
	fd := -1
	make := func() error {
		return change(l, func() (err error) {
			fd, err = unix.Openat(d.FD, ".", flags&^unix.O_CREAT|unix.O_TMPFILE|unix.O_CLOEXEC, mode)
			return err
		})
	}
	err := o.as(make, func() error {
		if err := make(); err != nil {
			return err
		}
		return o.own(l, fd, mode)
	})
	if err != nil {
		return -1, Info{}, err
	}
	if err := Hold(fd); err != nil {
		return -1, Info{}, err
	}
	info, err := Stat(fd)
	if err == nil {
		err = unmask(l, fd, d, &info, mode)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, Info{}, err
	}
	return fd, info, nil
}

// made makes an object that has no descriptor of its own (directory, node,
// link) and returns its attributes.
func made(l *guard.Lease, d Dir, base string, mode uint32, o Owner, make func() error) (Info, error) {
	err := o.as(make, func() error {
		if err := make(); err != nil {
			return err
		}
		fd, err := open(d.FD, base, unix.O_PATH|unix.O_NOFOLLOW, d.resolve())
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		// Only what is still ours is given away: somebody may have put
		// another file under the name.
		info, err := Stat(fd)
		if err != nil || info.UID != 0 || info.Nlink > 2 || info.Nlink == 2 && !info.IsDir() {
			return err
		}
		return o.own(l, fd, mode)
	})
	if err != nil {
		return Info{}, err
	}
	info, err := StatIn(d, base)
	if err == nil {
		err = unmaskName(l, d, base, &info, mode)
	}
	return info, err
}

// Mkdir, Mknod and Symlink make the name base in d.
func Mkdir(l *guard.Lease, d Dir, base string, mode uint32, o Owner) (Info, error) {
	return made(l, d, base, mode&^(unix.S_ISUID|unix.S_ISGID), o, func() error {
		return change(l, func() error { return unix.Mkdirat(d.FD, base, mode) })
	})
}

// Mknod makes a regular file, FIFO, socket or device; dev is in FUSE's form.
func Mknod(l *guard.Lease, d Dir, base string, mode, dev uint32, o Owner) (Info, error) {
	if t := mode & unix.S_IFMT; t == unix.S_IFCHR || t == unix.S_IFBLK {
		// Making a device takes a capability that a change of file-system
		// uid drops; the kernel has checked the caller's.
		if err := change(l, func() error { return unix.Mknodat(d.FD, base, mode, int(decodeDev(dev))) }); err != nil {
			return Info{}, err
		}
		info, err := StatIn(d, base)
		if err == nil {
			err = unmaskName(l, d, base, &info, mode)
		}
		return info, err
	}
	return made(l, d, base, mode&07777, o, func() error {
		return change(l, func() error { return unix.Mknodat(d.FD, base, mode, 0) })
	})
}

// Symlink makes a link; its target is text to us.
func Symlink(l *guard.Lease, target string, d Dir, base string, o Owner) (Info, error) {
	return made(l, d, base, 0, o, func() error {
		return change(l, func() error { return unix.Symlinkat(target, d.FD, base) })
	})
}

// Link gives what fd (O_PATH, or any open file) refers to another name.
func Link(l *guard.Lease, fd int, d Dir, base string, o Owner) (Info, error) {
	proc, err := procFD()
	if err != nil {
		return Info{}, err
	}
	err = change(l, func() error {
		return unix.Linkat(proc, strconv.Itoa(fd), d.FD, base, unix.AT_SYMLINK_FOLLOW)
	})
	if err != nil {
		return Info{}, err
	}
	return StatIn(d, base)
}

// Unlink and Rmdir remove the name.
func Unlink(l *guard.Lease, d Dir, base string) error {
	return change(l, func() error { return unix.Unlinkat(d.FD, base, 0) })
}

// Rmdir removes an empty directory.
func Rmdir(l *guard.Lease, d Dir, base string) error {
	return change(l, func() error { return unix.Unlinkat(d.FD, base, unix.AT_REMOVEDIR) })
}

// Rename moves a name; flags are those of renameat2(2).
func Rename(l *guard.Lease, from Dir, oldBase string, to Dir, newBase string, flags uint) error {
	return change(l, func() error { return unix.Renameat2(from.FD, oldBase, to.FD, newBase, flags) })
}

// RenameNew moves a name to one that must be free. Where the file system cannot refuse
// to replace (EINVAL), as NFS and many that a program serves, RenameNew looks first: then
// only the keys of a Tree keep the name free in between.
func RenameNew(l *guard.Lease, from Dir, oldBase string, to Dir, newBase string) error {
	err := Rename(l, from, oldBase, to, newBase, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL {
		return err
	}
	if _, err := StatIn(to, newBase); err != unix.ENOENT {
		if err == nil {
			err = unix.EEXIST
		}
		return err
	}
	return Rename(l, from, oldBase, to, newBase, 0)
}

// Readlink reads the target of the link that fd (O_PATH) refers to.
func Readlink(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	var n int
	err := retry(func() (err error) {
		n, err = unix.Readlinkat(fd, "", buf)
		return err
	})
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
