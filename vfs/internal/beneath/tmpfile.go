package beneath

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// TempPrefix begins the names of files that are not finished. A new file has no
// such name at any time where the file system knows files without a name
// (O_TMPFILE); one that replaces another has it for the moment between getting a
// name and taking the other's, because only a rename can replace. One that is
// found when nothing is being written was left by a daemon that died, or when its root
// ended: see vfs.Tree.CleanTemp.
const TempPrefix = ".rootsfs-tmp-"

// Nameless makes a file without a name in d, to be given one by Link when it is
// complete: whatever happens before, nothing is left behind. ok is false where
// the file system has no such files.
func Nameless(l *guard.Lease, d Dir, mode uint32, o Owner) (fd int, ok bool, err error) {
	fd, _, err = Tmpfile(l, d, unix.O_RDWR, mode, o)
	switch err {
	case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOSYS:
		// EISDIR comes from kernels and servers that take O_TMPFILE for
		// the O_DIRECTORY it contains.
		return -1, false, nil
	}
	return fd, true, err
}

// Name gives a file that has none its name, which must be free.
func Name(l *guard.Lease, fd int, d Dir, base string) error {
	proc, err := procFD()
	if err != nil {
		return err
	}
	return change(l, func() error {
		return unix.Linkat(proc, strconv.Itoa(fd), d.FD, base, unix.AT_SYMLINK_FOLLOW)
	})
}

// Step takes a reference to one name of a directory, whatever it is and without
// following it, as one step of a resolution that began at the root: other file
// systems are entered only where the grant allows it, and a directory is shown
// to the lease. The caller has judged the name.
func Step(l *guard.Lease, d Dir, name string) (Dir, Info, error) {
	if err := Enter(l, &d, name); err != nil {
		return Dir{}, Info{}, err
	}
	fd, err := open(d.FD, name, unix.O_PATH|unix.O_NOFOLLOW, resolveFlags(l))
	if err != nil {
		return Dir{}, Info{}, err
	}
	next := Dir{FD: fd, Domain: d.Domain, owned: true, across: l.OtherFileSystems()}
	info, err := Stat(fd)
	if err == nil && info.IsDir() && l.HasNested() {
		var entered uint64
		if entered, err = l.EnterNested(info.ID()); entered != 0 {
			next.Domain = entered
		}
	}
	if err != nil {
		next.Close()
		return Dir{}, Info{}, err
	}
	return next, info, nil
}

// OpenForRemoval opens a directory whose entries are to be removed, for reading
// them. Unlike any resolution it never enters another file system, also where
// the grant allows that: EXDEV.
func OpenForRemoval(d Dir, name string) (Dir, Info, error) {
	const strict = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV
	fd, err := open(d.FD, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, strict)
	if err != nil {
		if names.Reason(err) == names.Escaped {
			err = unix.EXDEV
		}
		return Dir{}, Info{}, err
	}
	return identified(fd)
}

func identified(fd int) (Dir, Info, error) {
	info, err := Stat(fd)
	if err != nil {
		_ = unix.Close(fd)
		return Dir{}, Info{}, err
	}
	return Dir{FD: fd, owned: true}, info, nil
}

// Held makes a Dir of a descriptor that Keep gave out; closing the Dir closes it.
func Held(fd int) Dir { return Dir{FD: fd, owned: true} }

// Dup gives the directory another descriptor, the caller's to close.
func Dup(d Dir) (int, error) {
	fd, err := unix.FcntlInt(uintptr(d.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = Hold(fd)
	}
	return fd, err
}
