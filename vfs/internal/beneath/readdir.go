package beneath

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Names is a directory that is open for reading its names.
type Names struct {
	Dir
	merged *mergedNames // of a staged root
}

// openNames opens a directory for reading its names.
func openNames(d Dir) (Names, error) {
	fd, err := openToRead(d.fd)
	return namesOf(d, fd, err)
}

// namesOf returns the Names of the directory d, which was opened as fd, unless err is not nil.
func namesOf(d Dir, fd int, err error) (Names, error) {
	if err != nil {
		return Names{}, err
	}
	n := Names{Dir: Dir{fd: fd, owned: true, across: d.across, local: d.local}}
	if d.union != nil {
		n.merged, n.union = &mergedNames{}, &union{st: d.union.st, rel: d.union.rel, up: -1, low: -1}
		if d.union.up == d.fd {
			n.union.up = fd
		} else {
			n.union.low = fd
		}
	}
	return n, nil
}

// openToRead opens a directory for reading its names.
func openToRead(dirfd int) (int, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err == unix.EACCES { //nolint:errorlint // bare errno
		// Resolving "." needs the permission to search the directory; reading the names does not.
		return Reopen(dirfd, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	return fd, err
}

// openToReadQuietly is openToRead for a reading that no caller has asked for, see openQuietly.
func openToReadQuietly(dirfd int) (int, error) {
	fd, err := openQuietly(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY, stayBeneath)
	if err != nil {
		return openToRead(dirfd)
	}
	return fd, nil
}

// OpenDirNames resolves and judges a directory of the lease's root, and opens it for
// reading its names: as OpenDir and openNames, but in one system call where possible.
func OpenDirNames(l *guard.Lease, rel string) (Names, error) {
	return openDirNames(l, rel, open, openNames)
}

// OpenDirNamesQuietly is OpenDirNames for a reading that no caller has asked for, see
// openQuietly.
func OpenDirNamesQuietly(l *guard.Lease, rel string) (Names, error) {
	return openDirNames(l, rel, openQuietly, quietNames)
}

func openDirNames(l *guard.Lease, rel string, openAt func(dirfd int, rel string, flags, resolve uint64) (int, error), openNames func(Dir) (Names, error)) (Names, error) {
	if rel != "" && len(rel) <= chunk && l.Source().File() == "" && !l.HasNested() && !spells(l, rel) && stageOf(l) == nil {
		if err := l.Judge().Dir(rel); err != nil {
			return Names{}, err
		}
		top := Root(l)
		// Without O_NOFOLLOW, so that a link is ELOOP, not ENOTDIR.
		fd, err := openAt(top.fd, rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, top.resolve())
		return namesOf(top, fd, err)
	}
	d, err := OpenDir(l, rel)
	if err != nil {
		return Names{}, err
	}
	defer d.Close()
	return openNames(d)
}

// OpenSubdir opens the subdirectory called name for reading its names: one step of a walk
// that has begun at the root. As in a resolution from the root, a link is not followed, and
// another file system is not entered unless the grant allows it. The caller judges the name,
// and calls CrossChild for the opened directory.
func (n *Names) OpenSubdir(name string) (Names, error) {
	if n.union != nil {
		return openUnionNames(n.Dir, name)
	}
	fd, err := openQuietly(n.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, n.resolve())
	return namesOf(n.Dir, fd, err)
}

// OpenForRemoval opens a directory for reading names that will be removed. Unlike a
// resolution, it enters no other file system even if the grant allows that: the error is then EXDEV,
// or Escaped in a staged root.
func OpenForRemoval(l *guard.Lease, d Dir, name string) (n Names, info Info, err error) {
	if d.union != nil {
		if n, err = openUnionNames(d, name); err != nil {
			return Names{}, Info{}, err
		}
	} else {
		fd, err := open(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, stayBeneath|unix.RESOLVE_NO_XDEV)
		if err != nil {
			if names.Reason(err) == names.Escaped {
				err = unix.EXDEV
			}
			return Names{}, Info{}, err
		}
		n, _ = namesOf(d, fd, nil)
		n.across = false
	}
	if info, err = n.Stat(l); err != nil {
		n.Close()
	}
	return n, info, err
}

// IsOpen reports whether the directory was opened.
func (n *Names) IsOpen() bool { return n.owned }

// Handle returns a lasting descriptor of the directory. In an ordinary root, the result is the
// descriptor of the Names itself, and Close then leaves that descriptor open. In a staged root, the
// result is a duplicate. The duplicate moves to the upper directory when the directory is raised,
// while the Names goes on reading from its own descriptor.
func (n *Names) Handle() (Handle, error) {
	if n.union == nil {
		n.owned = false
		return Handle{fd: n.fd}, nil
	}
	ownID, err := n.ownID(n.fd)
	if err != nil {
		return Handle{}, err
	}
	fd, err := unix.FcntlInt(uintptr(n.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return Handle{}, err
	}
	return n.handle(fd, ownID, false)
}

// ByKernel lets Read return the kernel's offsets, which mean nothing to another Names of the
// directory. It is for a reader that keeps the Names from the first name to the last.
func (n *Names) ByKernel() {
	if n.merged != nil {
		n.merged.byKernel = true
	}
}

// Close closes the directory.
func (n *Names) Close() {
	n.merged.close()
	n.Dir.Close()
}

// openUnionNames opens a subdirectory of a staged root for reading its names.
func openUnionNames(d Dir, name string) (Names, error) {
	sub, err := step(nil, d, name, unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return Names{}, err
	}
	defer sub.Close()
	return quietNames(sub)
}

// quietNames is openNames for a reading that no caller has asked for, see openQuietly.
func quietNames(d Dir) (Names, error) {
	fd, err := openToReadQuietly(d.fd)
	n, err := namesOf(d, fd, err)
	if err == nil && n.merged != nil {
		n.merged.quiet = true
	}
	return n, err
}

// Read reads the next names of the directory into buf, and returns those for which keep
// returns true. more is false at the end of the directory. If shared is set, the names are
// parts of one string, see parseDirents.
func (n *Names) Read(buf []byte, shared bool, keep func(e *Entry) bool) (list []Entry, more bool, err error) {
	if n.merged != nil {
		return n.merged.read(n.union, buf, keep)
	}
	got := 0
	err = retry(func() (err error) { got, err = unix.Getdents(n.fd, buf); return err })
	if err != nil || got == 0 {
		return nil, false, err
	}
	text := ""
	if shared {
		text = string(buf[:got])
	}
	return parseDirents(buf[:got], text, keep), true, nil
}

// Refresh sets the present path of an open directory of a staged root: the names of the source
// in it depend on the path.
func (n *Names) Refresh(rel string) {
	if n.union == nil || n.union.rel == rel {
		return
	}
	n.union.close()
	n.union = &union{st: n.union.st, rel: rel, up: -1, low: -1}
}

// SeekTo sets the position in the directory to the offset (Off) of an entry that Read returned.
func (n *Names) SeekTo(off int64) error {
	if n.merged != nil {
		return n.merged.seek(off)
	}
	_, err := unix.Seek(n.fd, off, unix.SEEK_SET)
	return err
}

// EachName calls f with every name in a directory but "." and "..", until f returns
// false.
func EachName(d Dir, f func(e *Entry) bool) error {
	n, err := openNames(d)
	if err != nil {
		return err
	}
	defer n.Close()
	buf := make([]byte, 32<<10)
	for wanted, more := true, true; wanted && more; {
		_, more, err = n.Read(buf, false, func(e *Entry) bool {
			if wanted && e.Name != "." && e.Name != ".." {
				wanted = f(e)
			}
			return false
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Dup returns the directory with a duplicate descriptor. The caller must close the result.
func Dup(d Dir) (Dir, error) {
	fd, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = keepOrClose(fd)
	}
	if err != nil {
		return Dir{}, err
	}
	if d.union != nil {
		u := &union{st: d.union.st, rel: d.union.rel, up: -1, low: -1}
		if d.union.up == d.fd {
			u.up = fd
		} else {
			u.low = fd
		}
		d.union = u
	}
	d.fd, d.owned = fd, true
	return d, nil
}

// SyncDir writes the names of a directory to the disk.
func SyncDir(l *guard.Lease, d Dir) error {
	from := d.fd
	if d.union != nil {
		if from = d.union.upDir(); from < 0 {
			return d.union.st.store.Sync() // only records have changed it
		}
	}
	fd, err := openToRead(from)
	if err != nil {
		return err
	}
	defer Close(fd)
	return Fsync(l, changeable(fd), false)
}
