package beneath

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// Stage is the stage of a root, for the owner's operations on it: they look at both sides
// apart, and bring changes from one to the other.
type Stage struct{ st *staged }

// StageOf is the stage of the lease's root. ok is false if the root is not staged.
func StageOf(l *guard.Lease) (s Stage, ok bool) {
	st := stageOf(l)
	return Stage{st}, st != nil
}

// Store is where the changes lie.
func (s Stage) Store() *draft.Store { return s.st.store }

// Upper is the top of the upper directory, alone. Nothing can be changed through it.
func (s Stage) Upper() Dir { return Dir{fd: s.st.up, local: true} }

// Source is the top of the source, alone. Only the owner's apply can change something through
// it.
func (s Stage) Source(l *guard.Lease) Dir {
	return Dir{fd: s.st.fd, local: true, source: l.Op() == names.OpApply}
}

// Applied is a path at which the source has what the stage had.
type Applied struct {
	Path string
	// Upper is the stage's file as it was compared; the zero Info if the stage had removed it.
	Upper Info
	// Source is the source's file with the same contents; zero if it is not known.
	Source rules.Identity
}

// Clear drops what the stage has at a path, because the source has the same by now. What is seen
// stays the same at each moment: the record goes first, while the upper directory still has the
// name. If a program has changed the file since it was compared, or can write to it, the file
// stays in the stage, as a change to what the source has now. A directory stays raised as long
// as the store is open: programs may work in it.
func (s Stage) Clear(l *guard.Lease, a Applied) error {
	st := s.st
	st.mu.Lock()
	defer st.mu.Unlock()
	parent, base := splitRel(a.Path)
	dir, err := st.openUpperDir(parent)
	if err == unix.ELOOP || IsAbsent(err) { //nolint:errorlint // bare errno
		return st.store.Clear(a.Path)
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	up, err := lookAt(dir, base)
	switch {
	case err != nil:
		return err
	case !up.is && a.Upper.Mode != 0:
		return st.rebase(a.Path, true) // a program has removed or moved it since
	case !up.is:
		return st.store.Clear(a.Path)
	case up.info.IsDir() || !isAsCompared(&up.info, &a.Upper):
		return st.rebase(a.Path, false)
	}
	st.swaps.Lock()
	defer st.swaps.Unlock()
	if st.isWritten(up.info.ID()) {
		return st.rebase(a.Path, false)
	}
	return st.lower(l, &a, dir, base, &up.info)
}

// isAsCompared reports whether a file was not changed. A name that it lost, such as one that was
// cleared before, is no change.
func isAsCompared(now, then *Info) bool {
	if now.ID() != then.ID() || now.Nlink == then.Nlink {
		return now.ID() == then.ID() && now.Ctime == then.Ctime
	}
	return now.Mode == then.Mode && now.UID == then.UID && now.GID == then.GID && now.Size == then.Size && now.Mtime == then.Mtime
}

// rebase records what the source has now as what the stage's file, or its removal, is a change
// of.
func (st *staged) rebase(rel string, isRemoved bool) error {
	fd, err := openLong(st.fd, rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err == unix.ELOOP || IsAbsent(err) { //nolint:errorlint // bare errno
		return st.store.Clear(rel)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	info, err := stat(fd)
	if err != nil {
		return err
	}
	rec := draft.Record{Path: rel, Whiteout: isRemoved, Base: baseOf(&info)}
	if info.IsRegular() && info.Size <= maxHashed {
		rec.Base.Hash = hashLower(fd, &info)
	}
	if sum, ok := EntriesHash(rel, fd); ok {
		rec.Base.Hash = sum
	}
	if err := st.store.Replace(rec); err != nil {
		return err
	}
	return atStep("cleared")
}

// lower drops a file of the upper directory, and gives its place to that of the source: the
// identity, and the descriptors that programs have open. A file with several names stays what it
// is for them, because each name gets a file of its own in the source. The caller holds st.mu
// and st.swaps.
func (st *staged) lower(l *guard.Lease, a *Applied, dir int, base string, up *Info) error {
	if err := st.store.Clear(a.Path); err != nil {
		return err
	}
	if err := atStep("cleared"); err != nil {
		return err
	}
	fd, low := -1, Info{}
	if st.links(up) == 1 && a.Source != (rules.Identity{}) {
		var err error
		if fd, err = openLong(st.fd, a.Path, unix.O_PATH|unix.O_NOFOLLOW); err == nil {
			defer unix.Close(fd)
			low, err = stat(fd)
		}
		if err != nil || low.ID() != a.Source || low.Nlink != 1 {
			fd = -1
		}
	}
	if fd >= 0 {
		st.ids.place(low.ID(), up.ID())
	}
	unlink := func() error { return change(l, func() error { return unix.Unlinkat(dir, base, 0) }) }
	if err := withAccess(l, dir, unlink); err != nil || fd < 0 {
		return err
	}
	st.swapDown(up.ID(), low.ID(), fd, a.Path)
	return nil
}

// atStep calls AtStep, if a test has set it.
func atStep(point string) error {
	if AtStep == nil {
		return nil
	}
	return AtStep(point)
}

// Discard drops what the stage has at a path, so that what the source has is seen again. A
// whiteout goes first, while the upper directory still has the name: alone it would be a removal,
// which the owner's next apply would bring to the source. A program that has the removed file
// open goes on with it, as after an unlink. A directory that the source has, too, gets the
// attributes of the source's.
func (s Stage) Discard(l *guard.Lease, rel string) error {
	st := s.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if done, err := st.discardDir(l, rel); done || err != nil {
		return err
	}
	rec, _ := st.store.Has(rel)
	if rec.Whiteout {
		shown := rec
		shown.Whiteout = false
		if err := st.store.Replace(shown); err != nil {
			return err
		}
	}
	if err := st.removeUpper(l, rel); err != nil {
		return err
	}
	if err := atStep("removed"); err != nil {
		return err
	}
	if err := st.store.Clear(rel); err != nil || !rec.Whiteout {
		return err
	}
	if low, err := openLong(st.fd, rel, unix.O_PATH|unix.O_NOFOLLOW); err == nil {
		defer unix.Close(low)
		if info, err := stat(low); err == nil {
			st.setGone(info.ID(), rel, false)
		}
	}
	return nil
}

// discardDir discards what was changed of a directory that both sides have. done reports
// whether there is one.
func (st *staged) discardDir(l *guard.Lease, rel string) (done bool, err error) {
	if !st.isRaised(rel) {
		return false, nil
	}
	low, err := st.openLowerDir(rel)
	if err != nil {
		return false, nil //nolint:nilerr // the source has none
	}
	defer unix.Close(low)
	up, err := st.openUpperDir(rel)
	if err != nil {
		return false, err
	}
	defer unix.Close(up)
	info, err := stat(low)
	if err == nil {
		err = copyAttributes(l, low, &info, changeable(up), info.Mode)
	}
	if err == nil {
		err = st.rebase(rel, false)
	}
	return true, err
}

// removeUpper removes a name of the upper directory, if it has it.
func (st *staged) removeUpper(l *guard.Lease, rel string) error {
	parent, base := splitRel(rel)
	if rel == "" {
		return nil
	}
	dir, err := st.openUpperDir(parent)
	if err == unix.ELOOP || IsAbsent(err) { //nolint:errorlint // bare errno
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	got, err := lookAt(dir, base)
	if err != nil || !got.is {
		return err
	}
	flags := 0
	if got.info.IsDir() {
		flags = unix.AT_REMOVEDIR
	}
	unlink := func() error { return change(l, func() error { return unix.Unlinkat(dir, base, flags) }) }
	if err := withAccess(l, dir, unlink); err != nil {
		return err
	}
	if got.info.IsDir() {
		st.store.SetUpperDir(rel, false)
	}
	return nil
}

// withAccess makes a change in a directory of the upper directory, also in one that its owner
// may not write to, such as those of Go's module cache.
func withAccess(l *guard.Lease, dir int, f func() error) error {
	err := f()
	if err != unix.EACCES || unix.Geteuid() == 0 { //nolint:errorlint // bare errno
		return err
	}
	was, serr := stat(dir)
	if serr != nil || Chmod(l, changeable(dir), was.Mode&0o7777|0o300) != nil {
		return err
	}
	return errors.Join(f(), Chmod(l, changeable(dir), was.Mode&0o7777))
}

// Below resolves a path from one side's directory, following no link, whatever lies there. The
// caller closes the result. A last element that must be a directory is asked for by isDir.
func (d Dir) Below(rel string, isDir bool) (Dir, error) {
	last := uint64(unix.O_NOFOLLOW)
	if isDir {
		last = unix.O_DIRECTORY
	}
	d.owned = false
	if rel == "" {
		return d, nil
	}
	return walkFrom(nil, d, rel, last)
}

// Own reads the attributes of what d refers to as its file system has them, whatever identity
// a stage shows.
func (d Dir) Own() (Info, error) { return stat(d.fd) }

// Own is the same of a file that may be changed.
func (w Changeable) Own() (Info, error) { return stat(w.FD()) }

// BaseOf returns the facts about a file that a stage records.
func BaseOf(info *Info) draft.Base { return baseOf(info) }

// MaxHashed is the size of the largest file whose contents a stage records the hash of.
const MaxHashed = maxHashed

// HashOf is the SHA-256 of an open file's contents.
func HashOf(fd int) ([32]byte, error) { return hashOf(fd) }

// CopyAttributes gives a new file the owner, ACL, attributes of the user and times of another,
// and a mode. Set-id bits are left out.
func CopyAttributes(l *guard.Lease, from int, info *Info, to Changeable, mode uint32) error {
	return copyAttributes(l, from, info, to, mode)
}

// Alone asks the kernel to let nobody open a file for writing while somebody looks at it: an
// open(2) for writing waits until end is called. fd is open for reading. stays reports whether
// nobody has begun to wait. The error is EAGAIN if somebody has the file open for writing. The
// kernel refuses this to others than the file's owner: then nobody waits, and stays reports
// true.
func Alone(fd int) (stays func() bool, end func(), err error) {
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	if err == unix.EAGAIN { //nolint:errorlint // bare errno
		return nil, nil, err
	}
	if err != nil {
		return func() bool { return true }, func() {}, nil
	}
	return func() bool {
			now, err := unix.FcntlInt(uintptr(fd), unix.F_GETLEASE, 0)
			return err == nil && now == unix.F_RDLCK
		}, func() {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
		}, nil
}

// SyncAll writes all of the file system to the disk that d lies on.
func (d Dir) SyncAll(l *guard.Lease) error {
	fd, err := Reopen(d.fd, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return change(l, func() error { return unix.Syncfs(fd) })
}

// IsAbsent reports whether an error says that there is nothing at a path, or that a part of
// it is no directory.
func IsAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}
