package beneath

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// Link gives a file another name, which must be free. A file without a name gets its first name.
// The descriptor of the file may be O_PATH.
func Link(l *guard.Lease, w Changeable, d Dir, base string) error {
	proc, err := procFD()
	if err != nil {
		return err
	}
	dirfd, u, err := d.begin(l)
	if err != nil {
		return err
	}
	defer u.end()
	if err := u.willMake(base); err != nil {
		return err
	}
	if err := w.check(); u != nil && err != nil {
		return err
	}
	return change(l, func() error {
		return unix.Linkat(proc, strconv.Itoa(w.FD()), dirfd, base, unix.AT_SYMLINK_FOLLOW)
	})
}

// Unlink removes a name of a file that is not a directory.
func Unlink(l *guard.Lease, d Dir, base string) error {
	return remove(l, d, base, 0)
}

// Rmdir removes an empty directory.
func Rmdir(l *guard.Lease, d Dir, base string) error {
	return remove(l, d, base, unix.AT_REMOVEDIR)
}

// remove removes a name; flags are those of unlinkat(2).
func remove(l *guard.Lease, d Dir, base string, flags int) error {
	dirfd, u, err := d.begin(l)
	if err != nil {
		return err
	}
	if u != nil {
		defer u.end()
		return u.remove(l, base, flags)
	}
	return change(l, func() error { return unix.Unlinkat(dirfd, base, flags) })
}

// IgnoreAbsent returns nil for ENOENT, and any other error as it is: a removal that finds
// nothing has nothing to do.
func IgnoreAbsent(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// Rename moves a name; flags are those of renameat2(2).
func Rename(l *guard.Lease, from Dir, oldBase string, to Dir, newBase string, flags uint) error {
	if st := stageOf(l); st != nil && !(from.source && to.source) {
		if from.union == nil || to.union == nil {
			return unix.EROFS
		}
		m := unionMove{l: l, st: st, from: from.union, to: to.union, oldName: oldBase, newName: newBase, flags: flags}
		return m.run()
	}
	return change(l, func() error { return unix.Renameat2(from.fd, oldBase, to.fd, newBase, flags) })
}

// RenameNew moves a name to one that must be free. If the file system cannot refuse to replace
// (EINVAL), like NFS and many FUSE file systems, RenameNew first checks that the new name is free.
// Then only the claims of the Tree (package claims) keep the name free between check and rename.
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
