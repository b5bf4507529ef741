package beneath

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// Stage is the stage of a root, for the owner's operations on it. They see the upper directory
// and the source separately, and bring changes from one to the other.
type Stage struct{ st *staged }

// StageOf returns the stage of the lease's root. ok is false if the root is not staged.
func StageOf(l *guard.Lease) (s Stage, ok bool) {
	st := stageOf(l)
	return Stage{st}, st != nil
}

// Store returns the store with the changes.
func (s Stage) Store() *draft.Store { return s.st.store }

// Source returns the top of the source, without the upper directory. Only the owner's apply can
// change files through it.
func (s Stage) Source(l *guard.Lease) Dir {
	return Dir{fd: s.st.fd, local: true, source: l.Op() == names.OpApply}
}

// Applied describes a path at which the source has the stage's change by now.
type Applied struct {
	Path string
	// Upper describes the stage's file at the time of the comparison with the source. It is the
	// zero Info if the stage had removed the file.
	Upper Info
	// Source is the source's file with the same contents; zero if it is not known.
	Source rules.Identity
}

// Clear drops a path from the stage, because the source has the same by now. Programs see the
// same contents at each moment: the record is dropped first, while the upper directory still
// has the name. If a program has changed the file since the comparison, or has it open for writing,
// the file stays in the stage, as a change of the source's new file. A directory stays in the upper
// directory as long as the store is open: programs may work in the directory.
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
	up, err := st.lookIn(l, dir, base)
	switch {
	case err != nil:
		return err
	case !up.exists && a.Upper.Mode != 0:
		return st.rebase(a.Path, true) // a program has removed or moved it since
	case !up.exists:
		return st.store.Clear(a.Path)
	case up.info.IsDir() && up.info.Mode == a.Upper.Mode:
		return st.clearDir(l, a.Path, &up.info)
	case up.info.IsDir() || !st.isAsCompared(&up.info, &a.Upper):
		return st.rebase(a.Path, false)
	}
	st.swaps.Lock()
	defer st.swaps.Unlock()
	st.lowered.Add(1)
	if st.isWritten(up.info.ID()) {
		return st.rebase(a.Path, false)
	}
	return st.lower(l, &a, dir, base, &up.info)
}

// clearDir is Clear for a directory. If the stage and the source have each created the directory,
// the stage's directory gets the attributes of the source's directory: otherwise the mode of the
// stage's directory would count as a change from then on.
func (st *staged) clearDir(l *guard.Lease, rel string, up *Info) error {
	if rec, ok := st.store.RecordOf(rel); ok && rec.Base.Kind != draft.Nothing {
		return st.rebase(rel, false)
	}
	low, err := st.openLowerDir(rel)
	if err == unix.EACCES { //nolint:errorlint // bare errno
		// The source's directory lies in a directory that was just applied, and whose mode does not
		// let this process in. The record keeps the inner directory from being compared again.
		return st.store.Replace(draft.Record{Path: rel, Base: draft.Base{Kind: draft.Dir, Mode: up.Mode}})
	}
	if err != nil {
		return st.rebase(rel, false) // the source has none by now
	}
	info, err := stat(low)
	_ = unix.Close(low)
	if err != nil || info.Mode == up.Mode {
		return errors.Join(err, st.rebase(rel, false))
	}
	_, err = st.discardDir(l, rel)
	return err
}

// isAsCompared reports whether now and then describe the same file, unchanged. A different number
// of hard links, for example after an earlier Clear, does not count as a change.
func (st *staged) isAsCompared(now, then *Info) bool {
	if now.ID() != then.ID() || now.Nlink == then.Nlink {
		return st.isUnchanged(now, then)
	}
	return now.Mode == then.Mode && now.UID == then.UID && now.GID == then.GID && now.Size == then.Size && now.Mtime == then.Mtime
}

// rebase records the source's present file as the base of the stage's change or removal. If the
// source has no file at the path, rebase drops the record.
func (st *staged) rebase(rel string, isRemoved bool) error {
	fd, err := openLong(st.fd, rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err == unix.ELOOP || IsAbsent(err) { //nolint:errorlint // bare errno
		return st.store.Clear(rel)
	}
	if err == unix.EACCES { //nolint:errorlint // bare errno
		// The path lies in a directory whose mode does not let this process in: the owner has set
		// the mode, or the directory was just applied.
		return nil
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
	if info.IsDir() {
		rec.Base.Hash = XattrsHash(fd)
	}
	if err := st.store.Replace(rec); err != nil {
		return err
	}
	return atStep("cleared")
}

// lower drops a file from the upper directory. If the source's file is still a.Source and has one
// name, it gets the identity and the open descriptors of the dropped file. If the dropped file has
// several names, identity and descriptors stay with the file in the stage, because in the source
// each name gets its own file. The caller holds st.mu and st.swaps.
func (st *staged) lower(l *guard.Lease, a *Applied, dir int, base string, up *Info) error {
	if err := st.uncover(a.Path); err != nil {
		return err
	}
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
		st.ids.recordApplied(low.ID(), up.ID())
	}
	unlink := func() error { return change(l, func() error { return unix.Unlinkat(dir, base, 0) }) }
	if err := st.withAccess(l, dir, unlink); err != nil {
		return err
	}
	if st.store.DropUpper(a.Path); fd < 0 {
		return nil
	}
	st.swapDown(up.ID(), low.ID(), fd, a.Path)
	return nil
}

// uncover ends the whiteouts of the directories above a path, before programs are to see the
// source's file at the path. A directory that the stage has made anew has such a whiteout, which
// hides the source's directory. Each name that the stage has removed from the source's directory
// has a whiteout of its own.
func (st *staged) uncover(rel string) error {
	for above, _ := splitRel(rel); above != ""; above, _ = splitRel(above) {
		rec, _ := st.store.RecordOf(above)
		if !rec.Whiteout {
			continue
		}
		rec.Whiteout = false
		if err := st.store.Replace(rec); err != nil {
			return err
		}
		if err := atStep("cleared"); err != nil {
			return err
		}
	}
	return nil
}

// atStep calls AtStep, if a test has set it.
func atStep(point string) error {
	if AtStep == nil {
		return nil
	}
	return AtStep(point)
}

// Discard drops a path from the stage, so that programs see the source's file again. A whiteout
// is dropped first, while the upper directory still has the name: without that name, the
// whiteout would be a removal, which the owner's next apply would make. A program that has the
// discarded file open keeps it, as after an unlink. A directory that both sides have gets the
// attributes of the source's directory.
func (s Stage) Discard(l *guard.Lease, rel string) error {
	st := s.st
	st.mu.Lock()
	defer st.mu.Unlock()
	if done, err := st.discardDir(l, rel); done || err != nil {
		return err
	}
	rec, _ := st.store.RecordOf(rel)
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

// discardDir discards the changed attributes of a directory that both sides have. done is false
// if there is no such directory.
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
		err = st.permitOwner(l, up)
	}
	if err == nil {
		err = copyAttributes(l, low, &info, changeable(up), info.Mode)
	}
	if err == nil {
		err = st.rebase(rel, false)
	}
	return true, err
}

// removeUpper removes a path from the upper directory. It does nothing if the upper directory does
// not have the path, or if the path is the top.
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
	got, err := st.lookIn(l, dir, base)
	if err != nil || !got.exists {
		return err
	}
	flags := 0
	if got.info.IsDir() {
		flags = unix.AT_REMOVEDIR
	}
	unlink := func() error { return change(l, func() error { return unix.Unlinkat(dir, base, flags) }) }
	if err := st.withAccess(l, dir, unlink); err != nil {
		return err
	}
	st.store.DropUpper(rel)
	return nil
}

// lookIn describes the file that a directory of the upper directory has at a name. The caller
// holds st.mu.
func (st *staged) lookIn(l *guard.Lease, dir int, name string) (got side, err error) {
	err = st.withAccess(l, dir, func() (err error) { got, err = lookAt(dir, name); return err })
	return got, err
}

// permitOwner adds all permissions of the owner to the mode of a directory, unless this process
// runs as root. The mode is about to be replaced. Extended attributes can be written only with the
// permission to write to the directory.
func (st *staged) permitOwner(l *guard.Lease, dir int) error {
	info, err := stat(dir)
	if err != nil || unix.Geteuid() == 0 || info.Mode&0o700 == 0o700 {
		return err
	}
	return Chmod(l, changeable(dir), info.Mode&0o7777|0o700)
}

// Below resolves a path below d, which is a directory of the source or of the upper directory. It
// follows no link. With isDir it resolves only directories, otherwise files of any type. The caller
// must close the result.
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

// Own reads the attributes that d has on its file system, without the identity that a stage
// shows.
func (d Dir) Own() (Info, error) { return stat(d.fd) }

// Writable returns the error that this process would get for a new name in the directory.
func (d Dir) Writable() error {
	return unix.Faccessat(unix.AT_FDCWD, procPath(d.fd), unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}

// Own is Dir.Own for a file that may be changed.
func (w Changeable) Own() (Info, error) { return stat(w.FD()) }

// BaseOf returns the facts about a file that a stage records.
func BaseOf(info *Info) draft.Base { return baseOf(info) }

// HashOf returns the SHA-256 of an open file's contents.
func HashOf(fd int) ([32]byte, error) { return hashOf(fd) }

// CopyAttributes copies owner, ACL, user attributes and times from another file to a new one, and
// sets a mode. Only a directory keeps the set-id bits of mode. A link gets owner and times only.
func CopyAttributes(l *guard.Lease, from int, info *Info, to Changeable, mode uint32) error {
	return copyAttributes(l, from, info, to, mode)
}

// BlockWriters makes each open(2) of a file for writing wait until end is called (fcntl(2),
// F_SETLEASE), or until the kernel ends the lease (fs.lease-break-time, 45 seconds by default). fd
// is open for reading. stays reports whether the lease holds and no open is waiting. If the file is
// open for writing already, the error is EAGAIN. If the kernel refuses the lease for another
// reason, such as that this process does not own the file, no open waits, and stays reports true.
func BlockWriters(fd int) (stays func() bool, end func(), err error) {
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

// SyncAll writes the whole file system on which d lies to the disk.
func (d Dir) SyncAll(l *guard.Lease) error {
	fd, err := Reopen(d.fd, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return change(l, func() error { return unix.Syncfs(fd) })
}

// IsAbsent reports whether an error says that a path does not exist, or that a part of it is no
// directory.
func IsAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}
