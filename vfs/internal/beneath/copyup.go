package beneath

import (
	"crypto/sha256"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// A file of the source is copied up before it is changed. A copy with all attributes is
// prepared in the store. Then the state of the source's file is recorded. Then the copy is
// renamed to its place in the upper directory. A directory of the source is raised: an empty
// directory with the same attributes is made in the upper directory.

const (
	// copyTries is how often an operation tries to copy or open a file that is changed or replaced
	// meanwhile.
	copyTries = 3
	// copyPiece is how many bytes are copied between two checks whether the root has ended.
	copyPiece = 4 << 20
	// maxHashed is the size of the largest file whose contents are hashed for its record.
	maxHashed = 16 << 20
)

// baseOf returns the facts about a file of the source that the store records.
func baseOf(low *Info) draft.Base {
	b := draft.Base{Kind: draft.Other, Ino: low.Ino, Birth: low.ID().Birth, Mtime: nanos(low.Mtime), Ctime: nanos(low.Ctime), Size: low.Size, Mode: low.Mode}
	switch low.Type() {
	case unix.S_IFREG:
		b.Kind = draft.File
	case unix.S_IFDIR:
		b.Kind = draft.Dir
	case unix.S_IFLNK:
		b.Kind = draft.Link
	}
	return b
}

// note writes records to the store, before the caller makes the change that they are for. With
// AtStep, a test can end the operation before or after the records are written.
func (st *staged) note(list ...draft.Record) error {
	if err := atStep("recording"); err != nil {
		return err
	}
	if err := st.store.Note(list...); err != nil {
		return err
	}
	return atStep("recorded")
}

// AtStep, unless nil, is called at points of a change in a staged root. Tests set it: if it
// returns an error, the operation ends there, as if the process were killed.
var AtStep func(point string) error

// tempName is a name in the store's directory for copies in progress.
func (st *staged) tempName() string { return strconv.FormatUint(st.temps.Add(1), 10) }

// dropTemp removes a copy that did not get to its place. After the end of the root, the copy stays
// until the store is opened again.
func (st *staged) dropTemp(l *guard.Lease, name string, flags int) {
	_ = change(l, func() error { return unix.Unlinkat(st.tmp, name, flags) })
}

// copyUp copies the file at a path to the upper directory, unless it lies there already. With
// empty, a regular file is copied without its contents.
func (st *staged) copyUp(l *guard.Lease, rel string, empty bool) error {
	for range copyTries {
		fd, lower, err := st.open(rel, unix.O_PATH|unix.O_NOFOLLOW)
		if err != nil {
			return err
		}
		if lower {
			err = st.copyOpen(l, rel, fd, empty)
		}
		_ = unix.Close(fd)
		if !lower || err != unix.ESTALE { //nolint:errorlint // bare errno
			return err
		}
	}
	return unix.ESTALE
}

// mayChange checks the permissions that the kernel would check before an ordinary user changes
// a file of the source: its contents, or its attributes. For the copy, which belongs to the
// user, the kernel allows everything.
func (st *staged) mayChange(rel string, contents bool) error {
	uid := unix.Geteuid()
	if uid == 0 {
		return nil
	}
	fd, lower, err := st.open(rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	info, err := stat(fd)
	switch {
	case err != nil || !lower || int(info.UID) == uid:
		return err
	case contents:
		return unix.Faccessat(unix.AT_FDCWD, procPath(fd), unix.W_OK, unix.AT_EACCESS)
	}
	return unix.EPERM
}

// copyOpen copies the source's file at a path. fd is a reference to the file. The error is
// ESTALE if the file was changed or replaced meanwhile.
func (st *staged) copyOpen(l *guard.Lease, rel string, fd int, empty bool) error {
	info, err := stat(fd)
	if err != nil {
		return err
	}
	if info.IsDir() {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.raise(l, rel)
	}
	c := &upCopy{st: st, l: l, name: st.tempName()}
	if err := c.prepare(fd, &info, empty); err != nil {
		c.drop()
		return err
	}
	st.mu.Lock()
	err = c.place(rel, &info)
	st.mu.Unlock()
	c.drop()
	return err
}

// upCopy is a copy in progress.
type upCopy struct {
	st    *staged
	l     *guard.Lease
	name  string // in the store's directory for copies
	named bool   // the name exists
	isDir bool
	base  draft.Base // describes the source's file
}

// drop removes the copy, if it did not get to its place.
func (c *upCopy) drop() {
	if !c.named {
		return
	}
	flags := 0
	if c.isDir {
		flags = unix.AT_REMOVEDIR
	}
	c.st.dropTemp(c.l, c.name, flags)
}

// prepare makes the copy of a file, complete with its attributes.
func (c *upCopy) prepare(from int, info *Info, empty bool) error {
	st, l := c.st, c.l
	c.base = baseOf(info)
	switch info.Type() {
	case unix.S_IFREG:
		return c.prepareFile(from, info, empty)
	case unix.S_IFLNK:
		target, err := Readlink(from)
		if err != nil {
			return err
		}
		c.base.Hash = sha256.Sum256([]byte(target))
		err = change(l, func() error { return unix.Symlinkat(target, st.tmp, c.name) })
		if err != nil {
			return err
		}
	default:
		if err := change(l, func() error {
			return unix.Mknodat(st.tmp, c.name, info.Mode&unix.S_IFMT|0o600, int(decodeDev(info.Rdev)))
		}); err != nil {
			return err
		}
	}
	c.named = true
	fd, err := open(st.tmp, c.name, unix.O_PATH|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return copyAttributes(l, from, info, changeable(fd), info.Mode)
}

func (c *upCopy) prepareFile(from int, info *Info, empty bool) error {
	var to int
	err := change(c.l, func() (err error) {
		to, err = unix.Openat(c.st.tmp, c.name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(to)
	c.named = true
	err = change(c.l, func() error { return unix.Fchmod(to, 0o600) }) // whatever the umask is
	if err != nil {
		return err
	}
	if !empty {
		if err := c.st.store.WillWrite(info.Size); err != nil {
			return err
		}
		if c.base.Hash, err = copyContents(c.l, from, to, info); err != nil {
			return err
		}
	} else if info.Size <= maxHashed {
		c.base.Hash = hashLower(from, info)
	}
	return copyAttributes(c.l, from, info, changeable(to), info.Mode)
}

// hashLower returns the hash of a file of the source that is not copied. It returns zero if the
// file cannot be read, or was changed meanwhile. Without a hash, the owner's next touch(1) counts
// as a change.
func hashLower(from int, info *Info) (sum [sha256.Size]byte) {
	in, err := reopenQuietly(from)
	if err != nil {
		return sum
	}
	defer unix.Close(in)
	got, err := hashOf(in)
	now, serr := stat(in)
	if err != nil || serr != nil || now.Size != info.Size || now.Mtime != info.Mtime || now.Ctime != info.Ctime {
		return sum
	}
	return got
}

// reopenQuietly opens a file of the source for reading. If permitted, it leaves the access time
// alone.
func reopenQuietly(from int) (int, error) {
	in, err := Reopen(from, unix.O_RDONLY|unix.O_NOATIME)
	if err == unix.EPERM { //nolint:errorlint // bare errno
		in, err = Reopen(from, unix.O_RDONLY)
	}
	return in, err
}

// copyAttributes gives a new file the owner, ACL, user attributes and times of another file, and
// sets a mode. If this process runs as an ordinary user, the user stays the owner. Set-id bits are
// left out unless the file is a directory, because nothing in a stage runs as another user. An ACL
// that the new file has from the default ACL of its directory is removed. A link gets owner and
// times only.
func copyAttributes(l *guard.Lease, from int, info *Info, to Changeable, mode uint32) error {
	if err := Chown(l, to, int(info.UID), int(info.GID)); err != nil && err != unix.EPERM { //nolint:errorlint // bare errno
		return err
	}
	if info.Type() == unix.S_IFLNK {
		return Utimes(l, to, Stamp{timespec(info.Atime)}, Stamp{timespec(info.Mtime)})
	}
	if err := CopyXattrs(l, from, to); err != nil {
		return err
	}
	if !info.IsDir() {
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	if err := Chmod(l, to, mode&0o7777); err != nil {
		return err
	}
	return Utimes(l, to, Stamp{timespec(info.Atime)}, Stamp{timespec(info.Mtime)})
}

func timespec(t unix.StatxTimestamp) unix.Timespec {
	return unix.Timespec{Sec: t.Sec, Nsec: int64(t.Nsec)}
}

// place records the state of the source's file and renames the copy to its path in the upper
// directory. The caller holds st.mu. The error is ESTALE if the path shows another file of the
// source by now. If the upper directory has a file at the path by now, place leaves that file alone
// and returns nil.
func (c *upCopy) place(rel string, low *Info) error {
	st := c.st
	parent, _ := splitRel(rel)
	if err := st.raise(c.l, parent); err != nil {
		return err
	}
	dir, err := st.openUpperDir(parent)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	fd, lower, err := st.open(rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	now, err := stat(fd)
	if sum, ok := EntriesHash(rel, fd); ok {
		c.base.Hash = sum
	}
	_ = unix.Close(fd)
	switch {
	case err != nil:
		return err
	case !lower:
		return nil
	case now.ID() != low.ID():
		return unix.ESTALE
	}
	if err := st.note(draft.Record{Path: rel, Base: c.base}); err != nil {
		return err
	}
	return c.moveTo(rel, dir, low)
}

// moveTo renames the copy to its name in the upper directory, and moves open descriptors of the
// source's file to it. The times of the directory stay.
func (c *upCopy) moveTo(rel string, dir int, low *Info) error {
	st, l := c.st, c.l
	_, base := splitRel(rel)
	was, err := stat(dir)
	if err != nil {
		return err
	}
	st.swaps.Lock()
	defer st.swaps.Unlock()
	move := func() error {
		return change(l, func() error { return unix.Renameat2(st.tmp, c.name, dir, base, unix.RENAME_NOREPLACE) })
	}
	st.followers.tell(func(f Follower) { f.Copying(rel, 1) })
	st.store.AddUpper(rel, false)
	if err = move(); err == unix.EACCES && unix.Geteuid() != 0 { //nolint:errorlint // bare errno
		// A directory in which its owner may not write, such as those of Go's module cache.
		if err = Chmod(l, changeable(dir), was.Mode&0o7777|0o300); err == nil {
			err = move()
			if back := Chmod(l, changeable(dir), was.Mode&0o7777); err == nil {
				err = back
			}
		}
	}
	if err != nil {
		st.followers.tell(func(f Follower) { f.Copying(rel, -1) })
		return err
	}
	c.named = false
	if err := Utimes(l, changeable(dir), Stamp{timespec(was.Atime)}, Stamp{timespec(was.Mtime)}); err != nil {
		return err
	}
	fd, err := open(dir, base, unix.O_PATH|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	up, err := stat(fd)
	if err != nil {
		return err
	}
	st.ids.recordCopy(up.ID(), low.ID())
	st.swapUp(low.ID(), up.ID(), fd)
	return nil
}

// raise makes a directory of the source, and those above it, in the upper directory. The
// caller holds st.mu.
func (st *staged) raise(l *guard.Lease, rel string) error {
	if st.isRaised(rel) {
		return nil
	}
	parent, _ := splitRel(rel)
	if err := st.raise(l, parent); err != nil {
		return err
	}
	if st.isHidden(rel) {
		return unix.ENOENT
	}
	low, err := st.openLowerDir(rel)
	if err != nil {
		return err
	}
	defer unix.Close(low)
	info, err := stat(low)
	if err != nil {
		return err
	}
	if foldsNames(low) {
		return unix.EOPNOTSUPP // the directory in the upper directory would distinguish the spellings
	}
	dir, err := st.openUpperDir(parent)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	c := &upCopy{st: st, l: l, name: st.tempName(), isDir: true, base: baseOf(&info)}
	c.base.Hash = XattrsHash(low)
	if err = c.raiseTo(rel, dir, low, &info); err != nil {
		c.drop()
		return err
	}
	st.store.AddUpper(rel, true)
	st.tellRaised(rel)
	return nil
}

func (c *upCopy) raiseTo(rel string, dir, low int, info *Info) error {
	st, l := c.st, c.l
	if err := mkdirPrivate(l, st.tmp, c.name); err != nil {
		return err
	}
	c.named = true
	fd, err := open(st.tmp, c.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, stayBeneath)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	mode := info.Mode & 0o7777
	if uid := unix.Geteuid(); uid != 0 && int(info.UID) != uid && unix.Faccessat(unix.AT_FDCWD, procPath(low), unix.W_OK, unix.AT_EACCESS) != nil {
		mode &^= 0o222 // the user may not make names in the source's directory, but owns the raised one
	}
	// An ordinary user cannot move a directory to another parent without the permission to write to
	// the moved directory.
	movable := mode
	if unix.Geteuid() != 0 {
		movable |= 0o300
	}
	if err := copyAttributes(l, low, info, changeable(fd), movable); err != nil {
		return err
	}
	if err := st.note(draft.Record{Path: rel, Base: c.base}); err != nil {
		return err
	}
	if err := c.moveTo(rel, dir, info); err != nil {
		return err
	}
	if movable == mode {
		return nil
	}
	return Chmod(l, changeable(fd), mode)
}

// mkdirPrivate makes a directory with mode 0700 in a directory of the store, whatever the umask is.
func mkdirPrivate(l *guard.Lease, dir int, name string) error {
	err := change(l, func() error { return unix.Mkdirat(dir, name, 0o700) })
	if err == nil {
		err = change(l, func() error { return unix.Fchmodat(dir, name, 0o700, 0) })
	}
	return err
}

// openUpperDir opens a directory of the upper directory. The caller holds st.mu.
func (st *staged) openUpperDir(rel string) (int, error) {
	if rel == "" {
		return unix.FcntlInt(uintptr(st.up), unix.F_DUPFD_CLOEXEC, 0)
	}
	return st.reach(rel, unix.O_PATH|unix.O_DIRECTORY)
}
