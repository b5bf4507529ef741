package beneath

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// To move a directory of the source, all its visible contents are copied up. For a directory
// beyond these bounds the error is EXDEV, and programs then copy it themselves.
const (
	maxMovedNames = 4096
	maxMovedBytes = 64 << 20
)

// unionMove is a rename in a staged root.
type unionMove struct {
	l                *guard.Lease
	st               *staged
	from, to         *union
	oldName, newName string
	flags            uint
	old, new         [2]side        // of the upper directory and the source
	whiteouts        []draft.Record // for the names of the source in directories that are moved
}

// oldRel and newRel are the two paths below the root.
func (m *unionMove) oldRel() string { return join(m.from.rel, m.oldName) }
func (m *unionMove) newRel() string { return join(m.to.rel, m.newName) }

func seenOf(s *[2]side) *side {
	if s[0].exists {
		return &s[0]
	}
	return &s[1]
}

// run moves the name. Files that only the source has are copied up first, without a lock.
func (m *unionMove) run() error {
	for range copyTries {
		missing, err := m.try()
		if missing == "" {
			return err
		}
		if err := m.st.copyAll(m.l, missing); err != nil {
			return err
		}
	}
	return unix.ESTALE
}

// try moves the name. If a file must be copied up first, try returns the file's path and moves
// nothing.
func (m *unionMove) try() (missing string, err error) {
	m.whiteouts = nil
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
	if isCopied, err := m.isCopied(&m.old, m.oldRel()); err != nil {
		return "", err
	} else if !isCopied {
		return m.oldRel(), nil
	}
	if m.flags&unix.RENAME_EXCHANGE != 0 {
		if isCopied, err := m.isCopied(&m.new, m.newRel()); err != nil {
			return "", err
		} else if !isCopied {
			return m.newRel(), nil
		}
	}
	if replaced := &m.new[1]; m.old[0].info.IsDir() && !m.new[0].exists && replaced.exists {
		if err := m.st.raise(m.l, m.newRel()); err != nil { // an empty directory
			return "", err
		}
	}
	return "", m.move()
}

// isCopied reports whether the upper directory has everything that is to be moved from rel.
func (m *unionMove) isCopied(sides *[2]side, rel string) (bool, error) {
	low := &sides[1]
	if !low.exists || !low.info.IsDir() || sides[0].exists && !sides[0].info.IsDir() {
		return sides[0].exists, nil
	}
	t := lowerTree{names: maxMovedNames, bytes: maxMovedBytes, complete: sides[0].exists}
	sub := &union{st: m.st, rel: rel, up: -1, low: -1}
	defer sub.close()
	err := t.walk(sub)
	m.whiteouts = append(m.whiteouts, t.found...)
	return t.complete, err
}

// lowerTree finds the visible files of the source in a directory.
type lowerTree struct {
	names    int64 // that may still be found
	bytes    int64 // that may still be copied
	complete bool  // the upper directory has all these files, too
	found    []draft.Record
}

func (t *lowerTree) walk(u *union) error {
	dir := u.lowDir()
	if dir < 0 {
		return nil
	}
	var list []string
	err := namesIn(dir, true, func(e *Entry) {
		if !u.hides(e.Name) {
			list = append(list, e.Name)
		}
	})
	if err != nil {
		return err
	}
	if t.names -= int64(len(list)); t.names < 0 {
		return unix.EXDEV
	}
	for _, name := range list {
		if err := t.add(u, name); err != nil {
			return err
		}
	}
	return nil
}

func (t *lowerTree) add(u *union, name string) error {
	up, low, err := u.look(name)
	if err != nil || !low.exists {
		return err
	}
	t.found = append(t.found, u.record(name, &low, true))
	if !up.exists {
		t.complete = false
		if low.info.IsRegular() {
			t.bytes -= low.info.Size
		}
		if t.bytes < 0 {
			return unix.EXDEV
		}
	}
	if !low.info.IsDir() || up.exists && !up.info.IsDir() {
		return nil
	}
	sub := &union{st: u.st, rel: join(u.rel, name), up: -1, low: -1}
	defer sub.close()
	return t.walk(sub)
}

// copyAll is copyUp for a path and everything that is seen below it.
func (st *staged) copyAll(l *guard.Lease, rel string) error {
	if err := l.Life().Ended(context.Background()); err != nil {
		return err
	}
	if err := st.copyUp(l, rel, false); err != nil {
		return err
	}
	if !st.isRaised(rel) {
		return nil
	}
	u := &union{st: st, rel: rel, up: -1, low: -1}
	list, err := u.names(true)
	u.close()
	for i := range list {
		if err == nil {
			err = IgnoreAbsent(st.copyAll(l, join(rel, list[i].Name)))
		}
	}
	return err
}

// check refuses moves that rename(2) would refuse for the visible files. done says that nothing
// is left to do.
func (m *unionMove) check() (done bool, err error) {
	from, to, old, target := m.oldRel(), m.newRel(), seenOf(&m.old), seenOf(&m.new)
	exchange := m.flags&unix.RENAME_EXCHANGE != 0
	switch {
	case !old.exists || exchange && !target.exists:
		return false, unix.ENOENT
	case m.flags&unix.RENAME_NOREPLACE != 0 && target.exists:
		return false, unix.EEXIST
	case from == to:
		return true, nil
	case strings.HasPrefix(to, from+"/"), exchange && strings.HasPrefix(from, to+"/"):
		return false, unix.EINVAL
	case strings.HasPrefix(from, to+"/"):
		return false, unix.ENOTEMPTY
	case !exchange && target.exists && m.old[0].exists == m.new[0].exists && old.info.ID() == target.info.ID():
		return true, nil // two names of one file: rename(2) leaves both
	case exchange || !target.exists:
		return false, nil
	case old.info.IsDir() && !target.info.IsDir():
		return false, unix.ENOTDIR
	case !old.info.IsDir() && target.info.IsDir():
		return false, unix.EISDIR
	case target.info.IsDir():
		if empty, err := m.to.isEmpty(m.newName); err != nil || !empty {
			return false, errOr(err, unix.ENOTEMPTY)
		}
	}
	return false, nil
}

// move writes the records and renames in the upper directory. It records no whiteout at the new
// name: before the rename, that would hide the file there.
func (m *unionMove) move() error {
	exchange := m.flags&unix.RENAME_EXCHANGE != 0
	list := m.whiteouts
	if m.new[1].exists {
		list = append(list, m.to.record(m.newName, &m.new[1], false))
	}
	if m.old[1].exists {
		list = append(list, m.from.record(m.oldName, &m.old[1], !exchange))
	}
	if len(list) > 0 {
		if err := m.st.note(list...); err != nil {
			return err
		}
	}
	err := m.st.store.MoveUpper(m.oldRel(), m.newRel(), exchange, func() error {
		return change(m.l, func() error { return unix.Renameat2(m.from.up, m.oldName, m.to.up, m.newName, m.flags) })
	})
	if err != nil {
		return err
	}
	if !exchange && m.new[1].exists && !m.new[0].exists && !m.new[1].info.IsDir() {
		m.st.setGone(m.new[1].info.ID(), m.newRel(), true)
	}
	m.tell(exchange)
	return nil
}

// tell reports to the followers which directories have another path now.
func (m *unionMove) tell(exchange bool) {
	from, to, st := m.oldRel(), m.newRel(), m.st
	if exchange {
		const aside = "\x00" // no path
		if m.old[0].info.IsDir() {
			st.tellMoved(from, aside)
		}
		if m.new[0].info.IsDir() {
			st.tellMoved(to, from)
			defer st.tellMerged(from)
		}
		if m.old[0].info.IsDir() {
			st.tellMoved(aside, to)
			st.tellMerged(to)
		}
		return
	}
	if m.old[0].info.IsDir() {
		st.tellMoved(from, to)
		st.tellMerged(to)
	}
}
