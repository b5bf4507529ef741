package beneath

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// Changes of names in a staged root are made one at a time (staged.mu). Each prepares its files
// out of sight, writes its records by one write, and then makes one system call in the upper
// directory. After a crash before that call, programs see the state before the change: a
// whiteout does not hide a name that the upper directory has, and programs never see the base of a
// record.

// begin begins a change of names in a directory. It returns the descriptor for the change. In a
// staged root, begin raises the directory, returns its union, and locks st.mu until end.
func (d *Dir) begin(l *guard.Lease) (fd int, u *union, err error) {
	st := stageOf(l)
	switch {
	case st == nil || d.source:
		return d.fd, nil, nil
	case d.union == nil:
		return -1, nil, unix.EROFS // a directory of the source, which a stage never changes
	}
	st.mu.Lock()
	if err := d.union.toUpper(l); err != nil {
		st.mu.Unlock()
		return -1, nil, err
	}
	return d.union.up, d.union, nil
}

// end unlocks st.mu, which begin has locked. In an ordinary root, u is nil and end does nothing.
func (u *union) end() {
	if u != nil {
		u.st.mu.Unlock()
	}
}

// toUpper raises the directory. The caller holds st.mu. The error is ESTALE if another
// directory has its path by now.
func (u *union) toUpper(l *guard.Lease) error {
	if err := u.st.raise(l, u.rel); err != nil {
		return err
	}
	fd, err := u.st.openUpperDir(u.rel)
	if err != nil {
		return err
	}
	if u.up < 0 {
		u.up, u.extra = fd, append(u.extra, fd)
		return nil
	}
	defer unix.Close(fd)
	now, err := stat(fd)
	if err != nil {
		return err
	}
	if was, err := stat(u.up); err != nil || was.ID() != now.ID() {
		return unix.ESTALE
	}
	return nil
}

// willMake tells the store that a name is about to be made. It returns EEXIST if the source shows
// the name. The kernel refuses names that the upper directory has.
func (u *union) willMake(name string) error {
	if u == nil {
		return nil
	}
	_, low, err := u.look(name)
	if err == nil && low.exists {
		err = unix.EEXIST
	}
	if err == nil {
		u.st.store.AddUpper(join(u.rel, name), false)
	}
	return err
}

// madeName records a file that was made under a name of the directory.
func (u *union) madeName(name string) {
	if u == nil {
		return
	}
	made, err := lookAt(u.up, name)
	if err != nil || !made.exists {
		return
	}
	u.st.ids.forget(made.info.ID())
	if made.info.IsDir() {
		u.st.store.AddUpper(join(u.rel, name), true)
	}
}

// record returns the record of the source's file at a name.
func (u *union) record(name string, low *side, whiteout bool) draft.Record {
	rec := draft.Record{Path: join(u.rel, name), Whiteout: whiteout, Base: baseOf(&low.info)}
	if isGitIndex(rec.Path) {
		if ref, err := open(u.lowDir(), name, unix.O_PATH|unix.O_NOFOLLOW, stayBeneath|unix.RESOLVE_NO_XDEV); err == nil {
			rec.Base.Hash, _ = EntriesHash(rec.Path, ref)
			_ = unix.Close(ref)
		}
	}
	return rec
}

// isEmpty reports whether a subdirectory shows no names.
func (u *union) isEmpty(name string) (bool, error) {
	sub := &union{st: u.st, rel: join(u.rel, name), up: -1, low: -1}
	defer sub.close()
	list, err := sub.names(true)
	return len(list) == 0, err
}

// remove removes a name: with AT_REMOVEDIR that of an empty directory, else that of any other
// file.
func (u *union) remove(l *guard.Lease, name string, flags int) error {
	up, low, err := u.look(name)
	if err != nil {
		return err
	}
	seen := up
	if !up.exists {
		seen = low
	}
	switch {
	case !seen.exists:
		return unix.ENOENT
	case flags == 0 && seen.info.IsDir():
		return unix.EISDIR
	case flags != 0 && !seen.info.IsDir():
		return unix.ENOTDIR
	}
	if flags != 0 && low.exists && low.info.IsDir() {
		if empty, err := u.isEmpty(name); err != nil || !empty {
			return errOr(err, unix.ENOTEMPTY)
		}
	}
	if !up.exists {
		if err := u.mayRemove(&low.info); err != nil {
			return err
		}
	}
	if low.exists {
		if err := u.st.note(u.record(name, &low, true)); err != nil {
			return err
		}
	}
	if !up.exists {
		u.st.setGone(low.info.ID(), join(u.rel, name), true)
		// A removal sets the directory's time, too. Git uses this time to find untracked names.
		return Utimes(l, changeable(u.up), Omit, Now)
	}
	if err := change(l, func() error { return unix.Unlinkat(u.up, name, flags) }); err != nil {
		return err
	}
	u.st.store.DropUpper(join(u.rel, name))
	return nil
}

func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// mayRemove checks the permissions as the kernel does before it removes a name. The kernel itself
// does not check them here, because the upper directory has no such name.
func (u *union) mayRemove(low *Info) error {
	dir, err := stat(u.up)
	if err != nil {
		return err
	}
	if err := unix.Faccessat(u.up, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return err
	}
	if uid := unix.Geteuid(); uid != 0 && dir.Mode&unix.S_ISVTX != 0 && int(low.UID) != uid && int(dir.UID) != uid {
		return unix.EPERM
	}
	return nil
}
