package beneath

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
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

// Clear drops what the stage has at a path, because the source has the same by now. What is seen
// stays the same at each moment: the record goes first, while the upper directory still has the
// name. A directory stays as long as something is in it.
func (s Stage) Clear(l *guard.Lease, rel string) error {
	st := s.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if rec, _ := st.store.Has(rel); !rec.Whiteout && st.isRaised(rel) {
		if err := st.removeUpper(l, rel); err != nil {
			if err == unix.ENOTEMPTY { //nolint:errorlint // bare errno
				err = nil
			}
			return err
		}
	}
	if err := st.store.Clear(rel); err != nil {
		return err
	}
	if AtStep != nil {
		if err := AtStep("cleared"); err != nil {
			return err
		}
	}
	err := st.removeUpper(l, rel)
	if err == unix.ENOTEMPTY { //nolint:errorlint // bare errno
		err = nil
	}
	return err
}

// Discard drops what the stage has at a path, so that what the source has is seen again. A
// whiteout goes first, while the upper directory still has the name: alone it would be a removal,
// which the owner's next apply would bring to the source.
func (s Stage) Discard(l *guard.Lease, rel string) error {
	st := s.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if rec, _ := st.store.Has(rel); rec.Whiteout {
		rec.Whiteout = false
		if err := st.store.Replace(rec); err != nil {
			return err
		}
	}
	if err := st.removeUpper(l, rel); err != nil {
		return err
	}
	if AtStep != nil {
		if err := AtStep("removed"); err != nil {
			return err
		}
	}
	return st.store.Clear(rel)
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
