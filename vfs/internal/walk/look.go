package walk

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// The link count of a directory reveals how many directories are in it. On some file systems
// its size and blocks reveal how many names. If names may be hidden, a directory is shown with
// the link count of file systems that do not count links, and with the size of one block.
const (
	uncountedLinks  = 1
	uncountedSize   = 4096 // bytes
	uncountedBlocks = uncountedSize / 512
)

// SocketMark is the mode bit on the source that marks a socket made in a root: the sticky bit,
// which has no meaning for sockets. Sockets of the host are hidden: a program could not connect
// to them, because the kernel finds the listener by the inode of the mount. The mark
// distinguishes the two kinds of sockets without any state, so a socket that an earlier session has
// left can be removed.
const SocketMark = unix.S_ISVTX

// madeInside reports whether a file is a socket that was made in a root.
func madeInside(info *beneath.Info) bool {
	return info.Type() == unix.S_IFSOCK && info.Mode&SocketMark != 0
}

// Visible returns the error Hidden for a special file, unless the grant shows special files or the
// file is a socket that was made in a root. For all other files it applies Present to info.
func Visible(l *guard.Lease, info *beneath.Info) error {
	if info.Special() && !l.PosixFull() && !madeInside(info) {
		return &guard.Error{Kind: names.Hidden}
	}
	Present(l, info)
	return nil
}

// Present changes the attributes of a file for programs. If names may be hidden, it hides the
// number of names in a directory. For a socket it removes SocketMark. If the grant shows special
// files, Present changes nothing.
func Present(l *guard.Lease, info *beneath.Info) {
	switch {
	case l.PosixFull():
	case info.IsDir() && info.Nlink > 0 && l.Judge().Hides():
		info.Nlink, info.Size, info.Blocks = uncountedLinks, uncountedSize, uncountedBlocks
	case madeInside(info):
		info.Mode &^= SocketMark
	}
}

// Shown reports whether a name in the directory rel, which is open as d, may be seen,
// judged by the name and the type in its directory entry. For a socket it also reads the mode.
func Shown(l *guard.Lease, rel string, d beneath.Dir, e *beneath.Entry) bool {
	switch e.Type {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK, 0:
	case unix.S_IFSOCK:
		if info, err := beneath.StatAt(d, e.Name); err != nil || Visible(l, &info) != nil {
			return false
		}
	default:
		if !l.PosixFull() {
			return false
		}
	}
	if e.Name == "." || e.Name == ".." {
		return true
	}
	return !l.Judge().Patterned() || !errors.Is(l.Judge().As(rules.ToLook, rel, e.Name, TypeOf(e.Type)), names.Hidden)
}

// TypeOf returns the pattern.Type of the type bits of a mode (S_IFDIR and so on); 0 means Unknown.
func TypeOf(mode uint32) pattern.Type {
	switch mode {
	case 0:
		return pattern.Unknown
	case unix.S_IFDIR:
		return pattern.Dir
	case unix.S_IFLNK:
		return pattern.Link
	}
	return pattern.Other
}

// LookUp returns the attributes of a name in a directory; the caller has judged the
// name.
func LookUp(l *guard.Lease, d beneath.Dir, name string) (beneath.Info, error) {
	info, err := beneath.StatIn(d, name)
	if err == nil {
		err = Visible(l, &info)
	}
	if err == nil {
		_, err = beneath.CrossEntry(l, d, name, &info)
	}
	if err != nil {
		return beneath.Info{}, err
	}
	return info, nil
}

// ErrRemoved is the error of StillThere for a directory that was removed.
var ErrRemoved = errors.New("directory was removed")

// StillThere checks that an open directory lies at the path rel: a descriptor keeps serving a
// directory that was moved out of the root. stat returns the attributes of the directory. If
// it does not lie there, the error is ErrRemoved, ESTALE, or that of the look-up.
func StillThere(l *guard.Lease, rel string, stat func(*guard.Lease) (beneath.Info, error)) error {
	now, err := stat(l)
	if err != nil {
		return err
	}
	if now.Nlink == 0 {
		return ErrRemoved
	}
	d, err := beneath.OpenDir(l, rel)
	if err != nil {
		return Stale(err)
	}
	defer d.Close()
	there, err := d.Stat(l)
	if err != nil {
		return err
	}
	if there.ID() != now.ID() {
		return unix.ESTALE
	}
	return nil
}

// Stale turns the errors ENOENT, ENOTDIR and ELOOP of a resolution into ESTALE, and returns any
// other error unchanged. It is for callers that know that the file exists. On ESTALE the kernel
// looks the path up again.
func Stale(err error) error {
	switch err { //nolint:errorlint // errnos straight from a system call
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return unix.ESTALE
	}
	return err
}

// Passable reports whether a walk can skip the directory or name that gave the error, and go on.
func Passable(err error) bool {
	var e *guard.Error
	if errors.As(err, &e) {
		return e.Kind.Refusal() || e.Kind.About() == names.AboutRoot
	}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP),
		errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ESTALE), errors.Is(err, unix.EXDEV):
		return true
	}
	return false
}
