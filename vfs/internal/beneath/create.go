package beneath

import (
	"bytes"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// Owner is the user for whom a new file or directory is made. A daemon that runs as root makes the
// file with the owner's file-system uid and gid, so that the file does not belong to another user
// even for a moment. Owner.as and Mknod describe exceptions. Any other daemon makes the file with
// the daemon's own ids.
type Owner struct {
	UID, GID uint32
}

// as runs f with the owner's file-system ids. setfsuid(2) changes them for the calling thread only,
// so the goroutine is tied to the thread meanwhile. With an ordinary user's uid, the thread has no
// file-system capabilities.
//
// f can be refused here although the kernel has allowed the request: the caller may have the
// permission through a supplementary group, which FUSE does not report. Then fix runs
// instead, as root: fix does the same as f and changes the owner afterwards. fix runs with the
// caller's file-system gid, so that the kernel chooses the group of the new file: the
// caller's, or the directory's if that has the set-group-id bit.
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

// CreateFile makes the file called base, which must not exist, and opens it.
func CreateFile(l *guard.Lease, d Dir, base string, flags int, mode uint32, o Owner) (Changeable, Info, error) {
	if err := checkRoom(); err != nil {
		return Changeable{}, Info{}, err
	}
	w, info, err := create(l, d, base, flags|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_NOCTTY, mode, o)
	if err != nil {
		return Changeable{}, Info{}, err
	}
	if int64(w.FD()) >= descriptors.keptLimit.Load() {
		descriptors.scarce.Store(true) // this descriptor is kept, because the file exists; the next is refused
	}
	if err := keepSetgid(l, w, &info, mode); err != nil {
		w.Close()
		return Changeable{}, Info{}, err
	}
	return w, info, nil
}

// Tmpfile makes a file without a name in the directory.
func Tmpfile(l *guard.Lease, d Dir, flags int, mode uint32, o Owner) (Changeable, Info, error) {
	w, info, err := create(l, d, ".", flags&^unix.O_CREAT|unix.O_TMPFILE, mode, o)
	if err == nil {
		h := w.Handle()
		err = h.KeepOrClose()
	}
	if err != nil {
		return Changeable{}, Info{}, err
	}
	return w, info, nil
}

// create makes a file on the owner's behalf, with all permissions of mode.
func create(l *guard.Lease, d Dir, base string, flags int, mode uint32, o Owner) (w Changeable, info Info, err error) {
	dirfd, u, err := d.begin(l)
	if err != nil {
		return Changeable{}, Info{}, err
	}
	defer u.end()
	if base != "." {
		if err := u.willMake(base); err != nil {
			return Changeable{}, Info{}, err
		}
	}
	fd := -1
	openat := func() error {
		return change(l, func() (err error) {
			fd, err = unix.Openat(dirfd, base, flags|unix.O_CLOEXEC, mode)
			return err
		})
	}
	err = o.as(openat, func() error {
		if err := openat(); err != nil {
			return err
		}
		return o.chownNew(l, changeable(fd), mode)
	})
	if err == nil {
		info, err = stat(fd)
	}
	ownID := info.ID()
	if err == nil && u != nil {
		u.st.ids.forget(ownID)
	}
	showIn(l, &info)
	if err == nil {
		err = unmask(l, changeable(fd), d, &info, mode)
	}
	if err != nil {
		_ = unix.Close(fd)
		return Changeable{}, Info{}, err
	}
	if u == nil {
		return changeable(fd), info, nil
	}
	h, err := u.st.trackUpper(fd, ownID, isWritable(flags), anyTime)
	return Changeable{fdPlusOne: fd + 1, tracked: h.tracked}, info, err
}

// keepSetgid sets the set-group-id bit of a new file again. In a set-group-id directory the kernel
// drops that bit if the thread that creates the file is not in the group. For the caller, the
// kernel applies this rule to mode before it sends the FUSE request, with the caller's
// supplementary groups, which the thread here does not have.
func keepSetgid(l *guard.Lease, w Changeable, info *Info, mode uint32) error {
	if mode&unix.S_ISGID == 0 || info.Mode&unix.S_ISGID != 0 || info.IsDir() || unix.Geteuid() != 0 {
		return nil
	}
	if err := Chmod(l, w, info.Mode&07777|unix.S_ISGID); err != nil {
		return err
	}
	info.Mode |= unix.S_ISGID
	return nil
}

// chownNew changes the owner of a new file to o.UID, and restores the mode bits that the change of
// the owner clears. The file has its group already, see Owner.as.
func (o Owner) chownNew(l *guard.Lease, w Changeable, mode uint32) error {
	if err := Chown(l, w, int(o.UID), -1); err != nil {
		return err
	}
	if mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		return Chmod(l, w, mode&07777)
	}
	return nil
}

// makeNode creates a directory, regular file, FIFO, socket or symbolic link by calling make, and
// returns the attributes of the new file. It is for system calls that return no descriptor. Mknod
// creates devices itself.
func makeNode(l *guard.Lease, d Dir, base string, mode uint32, o Owner, make func(dirfd int) error) (Info, error) {
	if err := makeName(l, d, base, mode, o, make); err != nil {
		return Info{}, err
	}
	info, err := StatIn(d, base)
	if err == nil {
		err = unmaskName(l, d, base, &info, mode)
	}
	return info, err
}

// makeName is the part of makeNode that creates the file, before its attributes are read.
func makeName(l *guard.Lease, d Dir, base string, mode uint32, o Owner, make func(dirfd int) error) error {
	dirfd, u, err := d.begin(l)
	if err != nil {
		return err
	}
	defer u.end()
	if err := u.willMake(base); err != nil {
		return err
	}
	err = o.as(func() error { return make(dirfd) }, func() error {
		if err := make(dirfd); err != nil {
			return err
		}
		fd, err := openChild(d, base)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		// The owner is changed only if the file can still be the one just created:
		// somebody may have put another file under the name.
		info, err := stat(fd)
		if err != nil || info.UID != 0 || info.Nlink > 2 || info.Nlink == 2 && !info.IsDir() {
			return err
		}
		return o.chownNew(l, changeable(fd), mode)
	})
	if err == nil {
		u.madeName(base)
	}
	return err
}

// Mkdir makes a directory called base in d.
func Mkdir(l *guard.Lease, d Dir, base string, mode uint32, o Owner) (Info, error) {
	return makeNode(l, d, base, mode&^(unix.S_ISUID|unix.S_ISGID), o, func(dirfd int) error {
		return change(l, func() error { return unix.Mkdirat(dirfd, base, mode) })
	})
}

// Mknod makes a regular file, FIFO, socket or device; dev is in FUSE's form.
func Mknod(l *guard.Lease, d Dir, base string, mode, dev uint32, o Owner) (Info, error) {
	if t := mode & unix.S_IFMT; t == unix.S_IFCHR || t == unix.S_IFBLK {
		// To make a device, a thread needs a capability that it loses with the change
		// of its file-system uid. The kernel has checked that the caller has the capability.
		dirfd, u, err := d.begin(l)
		if err != nil {
			return Info{}, err
		}
		err = u.willMake(base)
		if err == nil {
			err = change(l, func() error { return unix.Mknodat(dirfd, base, mode, int(decodeDev(dev))) })
		}
		u.end()
		if err != nil {
			return Info{}, err
		}
		info, err := StatIn(d, base)
		if err == nil {
			err = unmaskName(l, d, base, &info, mode)
		}
		return info, err
	}
	return makeNode(l, d, base, mode&07777, o, func(dirfd int) error {
		return change(l, func() error { return unix.Mknodat(dirfd, base, mode, 0) })
	})
}

// Symlink makes a link. The target is not looked at.
func Symlink(l *guard.Lease, target string, d Dir, base string, o Owner) (Info, error) {
	return makeNode(l, d, base, 0, o, func(dirfd int) error {
		return change(l, func() error { return unix.Symlinkat(target, dirfd, base) })
	})
}

// TempPrefix begins the temporary names of unfinished files. If the file system supports
// O_TMPFILE, a new file never has a temporary name. A file that replaces another has a temporary
// name for a moment, because only a rename can replace. A temporary name that is found while no
// operation writes was left behind by a dead daemon, or when its root ended: see
// vfs.Tree.CleanTemp.
const TempPrefix = ".rootsfs-tmp-"

// Nameless makes a file without a name in d. Link names it when it is complete. If the process
// dies before, no file is left behind. ok is false if the file system has no such files.
func Nameless(l *guard.Lease, d Dir, mode uint32, o Owner) (w Changeable, ok bool, err error) {
	w, _, err = Tmpfile(l, d, unix.O_RDWR, mode, o)
	switch err {
	case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOSYS:
		// EISDIR comes from kernels and servers that take O_TMPFILE for
		// the O_DIRECTORY it contains.
		return Changeable{}, false, nil
	}
	return w, true, err
}

// The umask of the process must not apply to new files: the umask of the program that asks
// has been applied already, and a peer has none. A umask cannot be set for one call, and setting
// it to 0 would affect everything else in the process and the programs that it starts. So
// a new file gets back the permissions that the umask took. Until then it has fewer
// permissions than it will have, never more.

// unmask gives a file just made in d the permissions of mode that the umask of the process
// has taken. w may be any descriptor of the file.
func unmask(l *guard.Lease, w Changeable, d Dir, info *Info, mode uint32) error {
	lost := mode & 0o777 &^ info.Mode
	if lost == 0 || info.Type() == unix.S_IFLNK {
		return nil
	}
	lost &= processUmask()
	if lost == 0 || HasDefaultACL(d) { // a default ACL takes the umask's place
		return nil
	}
	if err := Chmod(l, w, info.Mode&0o7777|lost); err != nil {
		return err
	}
	info.Mode |= lost
	return nil
}

// unmaskName is unmask for a file of which there is no descriptor.
func unmaskName(l *guard.Lease, d Dir, base string, info *Info, mode uint32) error {
	if mode&0o777&^info.Mode == 0 {
		return nil
	}
	fd, err := openChild(d, base)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now, err := Stat(l, fd)
	if err != nil || now.ID() != info.ID() {
		return err // somebody has put another file under the name
	}
	return unmask(l, changeable(fd), d, info, mode)
}

// processUmask reads the umask of the process from /proc, because umask(2) cannot read the umask
// without setting it. If /proc does not show the umask, processUmask returns 0.
func processUmask() uint32 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nUmask:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 8, 32)
	if err != nil {
		return 0
	}
	return uint32(mask)
}
