package sandbox

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Standard input that is a file or /dev/null reaches the command as that, because programs
// look (rg searches standard input if it is a pipe, and the directory if it is not). The
// command could do more with a descriptor of the caller's than read it: open it again for
// writing (/proc/self/fd/0), or change the file's mode and times. So the file is opened
// anew, for reading, through a read-only mount of that one file: by root before the start,
// for a user by the init, in its own namespace. At level Landlock a user's command gets a
// file opened for reading: that it can change modes there is among the holes of that level.
// Where none of it can be had, the file is copied through a pipe.

// stdinAt is where bwrap shows the file.
const stdinAt = scratch + "-stdin"

// stdinFile is what the init opens in the place of the command's pipe.
type stdinFile struct {
	Path   string `json:"path"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Offset int64  `json:"offset"`
	// Shown: Path is inside, on a mount that is read-only already.
	Shown bool `json:"shown,omitempty"`
	Taken bool `json:"taken,omitempty"` // by the init: it is standard input
}

// IsNull reports whether a file is /dev/null. The Go runtime opens it in the place of a
// standard stream that was closed when the process began.
func IsNull(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// IsFile reports whether a file is a regular file that has a name and can be read.
func IsFile(f *os.File) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink == 0 {
		return false
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE != unix.O_WRONLY && flags&unix.O_PATH == 0
}

// stdin opens the caller's file for the command, as input. Without one standard input is
// to be a pipe, or the init opens it, which conf says.
func (l *launch) stdin() {
	if f := l.o.Stdin; f != nil && IsFile(f) {
		l.input = l.openStdin(f)
	}
}

func (l *launch) openStdin(f *os.File) *os.File {
	offset, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_CUR)
	if err != nil {
		return nil
	}
	var own *os.File
	if os.Geteuid() == 0 {
		own = readOnly(int(f.Fd()))
	} else if l.level == Namespaces || l.level == Bubblewrap {
		l.conf.Stdin = sameFile(f, offset)
	}
	if own == nil && (l.level == Landlock || l.level == None) {
		own, _ = os.Open(ownFD(int(f.Fd()))) // nil: a pipe
	}
	if own == nil {
		return nil
	}
	if _, err := unix.Seek(int(own.Fd()), offset, unix.SEEK_SET); err != nil {
		own.Close()
		return nil
	}
	return own
}

// sameFile names a file so that it can be opened elsewhere; nil if its name does not lead
// to it.
func sameFile(f *os.File, offset int64) *stdinFile {
	path, err := os.Readlink(ownFD(int(f.Fd())))
	var here, there unix.Stat_t
	if err != nil || !strings.HasPrefix(path, "/") || unix.Fstat(int(f.Fd()), &here) != nil || unix.Lstat(path, &there) != nil || here.Dev != there.Dev || here.Ino != there.Ino {
		return nil
	}
	return &stdinFile{Path: path, Dev: here.Dev, Ino: here.Ino, Offset: offset}
}

// readOnly opens a file again for reading, through a read-only mount of its own; nil if
// that cannot be had.
func readOnly(fd int) *os.File {
	mnt, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil
	}
	defer unix.Close(mnt)
	if unix.MountSetattr(mnt, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: closed}) != nil {
		return nil
	}
	f, err := os.Open(ownFD(mnt))
	if err != nil {
		return nil
	}
	return f
}

// takeStdin opens the file that the command is to read, if the caller has named one. If
// that fails, standard input stays the pipe.
func (p *initProc) takeStdin() {
	s := p.conf.Stdin
	if s == nil {
		return
	}
	fd, err := unix.Open(s.Path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Dev != s.Dev || st.Ino != s.Ino {
		return // another one has the name by now
	}
	var f *os.File
	if s.Shown {
		f, _ = os.Open(ownFD(fd)) // nil: there is a pipe
	} else {
		f = readOnly(fd)
	}
	if f == nil {
		return
	}
	if _, err := unix.Seek(int(f.Fd()), s.Offset, unix.SEEK_SET); err != nil {
		f.Close()
		return
	}
	if unix.Dup3(int(f.Fd()), 0, 0) == nil {
		s.Taken = true
	}
	f.Close()
}

// ownNull opens /dev/null anew for the streams that are: the one that was passed is of the
// host's mounts.
func ownNull(terminals [3]bool) error {
	for fd := range 3 {
		var st unix.Stat_t
		if terminals[fd] || unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return step(err, "look at stream %d", fd)
		}
		null, err := unix.Open(os.DevNull, flags&unix.O_ACCMODE|unix.O_CLOEXEC, 0)
		if err != nil {
			return step(err, "open %s", os.DevNull)
		}
		err = unix.Dup3(null, fd, 0)
		unix.Close(null)
		if err != nil {
			return step(err, "take over stream %d", fd)
		}
	}
	return nil
}
