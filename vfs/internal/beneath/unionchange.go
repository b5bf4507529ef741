package beneath

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// Changes of names in a staged root, one at a time (staged.mu). Each first prepares what is
// not seen yet, then writes its records by one write, and then makes one system call in the
// upper directory. A crash between the two leaves what is seen as it was: a whiteout does not
// hide a name that the upper directory has, and a base is only for the owner's later apply.

// begin begins a change of names in a directory. It returns the descriptor to make the change
// with, and for a directory of a staged root the union, which is locked until end. There the
// directory lies in the upper directory from then on.
func (d *Dir) begin(l *guard.Lease) (fd int, u *union, err error) {
	st := stageOf(l)
	switch {
	case st == nil:
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

// end ends what begin began. On an ordinary root u is nil.
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

// vacant returns EEXIST if the source shows a name. The upper directory's own names are the
// kernel's to refuse.
func (u *union) vacant(name string) error {
	if u == nil {
		return nil
	}
	_, low, err := u.look(name)
	if err == nil && low.is {
		err = unix.EEXIST
	}
	return err
}

// madeName notes a file that was made under a name of the directory.
func (u *union) madeName(name string) {
	if u == nil {
		return
	}
	made, err := lookAt(u.up, name)
	if err != nil || !made.is {
		return
	}
	u.st.ids.forget(made.info.ID())
	if made.info.IsDir() {
		u.st.store.SetUpperDir(join(u.rel, name), true)
	}
}

// madeFile notes a file that was made and is open.
func (u *union) madeFile(fd int) {
	if u == nil {
		return
	}
	if info, err := stat(fd); err == nil {
		u.st.ids.forget(info.ID())
	}
}

// record describes what the source has at a name.
func (u *union) record(name string, low *side, whiteout bool) draft.Record {
	return draft.Record{Path: join(u.rel, name), Whiteout: whiteout, Base: baseOf(&low.info)}
}

// isEmpty reports whether a subdirectory is seen to be empty.
func (u *union) isEmpty(name string) (bool, error) {
	sub := &union{st: u.st, rel: join(u.rel, name), up: -1, low: -1}
	defer sub.close()
	list, err := sub.names()
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
	if !up.is {
		seen = low
	}
	switch {
	case !seen.is:
		return unix.ENOENT
	case flags == 0 && seen.info.IsDir():
		return unix.EISDIR
	case flags != 0 && !seen.info.IsDir():
		return unix.ENOTDIR
	}
	if flags != 0 && low.is && low.info.IsDir() {
		if empty, err := u.isEmpty(name); err != nil || !empty {
			return cmpErr(err, unix.ENOTEMPTY)
		}
	}
	if !up.is {
		if err := u.mayRemove(&low.info); err != nil {
			return err
		}
	}
	if low.is {
		if err := u.st.note(u.record(name, &low, true)); err != nil {
			return err
		}
	}
	if !up.is {
		u.st.ids.lose(low.info.ID())
		// As the removal of a name does. Git looks at the time for names that it does not track.
		return Utimes(l, changeable(u.up), Omit, Now)
	}
	if err := change(l, func() error { return unix.Unlinkat(u.up, name, flags) }); err != nil {
		return err
	}
	if up.info.IsDir() {
		u.st.store.SetUpperDir(join(u.rel, name), false)
	}
	return nil
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// mayRemove asks as the kernel does before it removes a name of the directory. The upper
// directory has the mode of the source's, and no such name to remove.
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

// unionMove is a rename in a staged root.
type unionMove struct {
	l                *guard.Lease
	st               *staged
	from, to         *union
	oldName, newName string
	flags            uint
	old, new         [2]side // of the upper directory and the source
}

// oldRel and newRel are the two paths below the root.
func (m *unionMove) oldRel() string { return join(m.from.rel, m.oldName) }
func (m *unionMove) newRel() string { return join(m.to.rel, m.newName) }

func seenOf(s *[2]side) *side {
	if s[0].is {
		return &s[0]
	}
	return &s[1]
}

// run moves the name. What lies in the source only is copied up first, while nothing is locked.
func (m *unionMove) run() error {
	for range copyTries {
		missing, err := m.try()
		if missing == "" {
			return err
		}
		if err := m.st.copyUp(m.l, missing, false); err != nil {
			return err
		}
	}
	return unix.ESTALE
}

// try moves the name, unless a file has to be copied up before: then try returns its path.
func (m *unionMove) try() (missing string, err error) {
	m.st.mu.Lock()
	defer m.st.mu.Unlock()
	if err = m.from.toUpper(m.l); err == nil {
		err = m.to.toUpper(m.l)
	}
	if err == nil {
		m.old[0], m.old[1], err = m.from.look(m.oldName)
	}
	if err == nil {
		m.new[0], m.new[1], err = m.to.look(m.newName)
	}
	if err != nil {
		return "", err
	}
	if done, err := m.check(); done || err != nil {
		return "", err
	}
	if !m.old[0].is {
		return m.oldRel(), nil
	}
	if m.flags&unix.RENAME_EXCHANGE != 0 && !m.new[0].is {
		return m.newRel(), nil
	}
	if replaced := &m.new[1]; m.old[0].info.IsDir() && replaced.is && replaced.info.IsDir() {
		if err := m.st.raise(m.l, m.newRel()); err != nil { // an empty one
			return "", err
		}
	}
	return "", m.move()
}

// check refuses what rename(2) refuses, for what is seen, and a directory of the source, which
// is not moved: programs then copy it. done says that nothing is left to do.
func (m *unionMove) check() (done bool, err error) {
	from, to, old, target := m.oldRel(), m.newRel(), seenOf(&m.old), seenOf(&m.new)
	exchange := m.flags&unix.RENAME_EXCHANGE != 0
	switch {
	case !old.is || exchange && !target.is:
		return false, unix.ENOENT
	case m.flags&unix.RENAME_NOREPLACE != 0 && target.is:
		return false, unix.EEXIST
	case from == to:
		return true, nil
	case strings.HasPrefix(to, from+"/"), exchange && strings.HasPrefix(from, to+"/"):
		return false, unix.EINVAL
	case strings.HasPrefix(from, to+"/"):
		return false, unix.ENOTEMPTY
	case !exchange && !m.old[0].is && !m.new[0].is && target.is && old.info.ID() == target.info.ID():
		return true, nil // two names of one file
	case m.old[1].is && m.old[1].info.IsDir(), exchange && m.new[1].is && m.new[1].info.IsDir():
		return false, unix.EXDEV
	case exchange || !target.is:
		return false, nil
	case old.info.IsDir() && !target.info.IsDir():
		return false, unix.ENOTDIR
	case !old.info.IsDir() && target.info.IsDir():
		return false, unix.EISDIR
	case target.info.IsDir():
		if empty, err := m.to.isEmpty(m.newName); err != nil || !empty {
			return false, cmpErr(err, unix.ENOTEMPTY)
		}
	}
	return false, nil
}

// move writes the records and renames in the upper directory. Nothing is recorded as hidden at
// the new name: before the rename that would hide what is there.
func (m *unionMove) move() error {
	exchange := m.flags&unix.RENAME_EXCHANGE != 0
	var list []draft.Record
	if m.new[1].is {
		list = append(list, m.to.record(m.newName, &m.new[1], false))
	}
	if m.old[1].is {
		list = append(list, m.from.record(m.oldName, &m.old[1], !exchange))
	}
	if len(list) > 0 {
		if err := m.st.note(list...); err != nil {
			return err
		}
	}
	err := change(m.l, func() error { return unix.Renameat2(m.from.up, m.oldName, m.to.up, m.newName, m.flags) })
	if err != nil {
		return err
	}
	if !exchange && m.new[1].is && !m.new[0].is && !m.new[1].info.IsDir() {
		m.st.ids.lose(m.new[1].info.ID())
	}
	m.moveIndex(exchange)
	return nil
}

// moveIndex tells the store which directories lie in the upper directory now.
func (m *unionMove) moveIndex(exchange bool) {
	from, to, store := m.oldRel(), m.newRel(), m.st.store
	if exchange {
		const aside = "\x00" // no path
		if m.old[0].info.IsDir() {
			store.RenameUpperDir(from, aside)
		}
		if m.new[0].info.IsDir() {
			store.RenameUpperDir(to, from)
		}
		if m.old[0].info.IsDir() {
			store.RenameUpperDir(aside, to)
		}
		return
	}
	if m.old[0].info.IsDir() {
		store.SetUpperDir(to, false)
		store.RenameUpperDir(from, to)
	}
}
