package vfs

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/claims"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// Moving a directory gives everything in it another path, and patterns are about paths. So a
// directory is moved only if no pattern is about anything in it, at the present path or at
// the new one. To find out, rename walks through the directory, in roots with patterns only.
// Meanwhile no operation makes a name in the root (guard.Lease.Moving).

// Flags of Rename. They are the flags of renameat2(2).
const (
	RenameNoReplace = unix.RENAME_NOREPLACE
	RenameExchange  = unix.RENAME_EXCHANGE
)

// Rename moves a name within one root. If the right to delete is missing, Rename replaces no file.
// Across two roots, or the boundary of a nested one, the error is EXDEV.
func (t *Tree) Rename(ctx context.Context, c guard.Caller, oldDir At, oldName string, newDir At, newName string, flags uint32) error {
	from, err := t.child(names.OpRename, oldDir, oldName)
	if err != nil {
		return err
	}
	to, err := t.child(names.OpRename, newDir, newName)
	if err != nil {
		return err
	}
	if flags&^(RenameNoReplace|RenameExchange) != 0 {
		return &guard.Error{Op: names.OpRename, Path: from, Kind: names.Invalid, Err: unix.EINVAL}
	}
	req := guard.Request{Caller: c, Op: names.OpRename, Path: from, Epoch: oldDir.Epoch, Path2: to}
	return gate.Run(ctx, t.reg, req, func(l *guard.Lease) error {
		return t.rename(&move{
			ctx: ctx, l: l, c: c, oldDir: oldDir, oldName: oldName, newDir: newDir, newName: newName, asked: from,
			flags: flags, mustBeNew: l.Narrowest()&guard.Delete == 0,
		})
	})
}

// RenamePath moves a name within one root. It follows links in the directories of both paths, but
// not a link in the last element, which is moved or replaced itself. Without overwrite, or without
// the right to delete, nothing is replaced (Exist). A locked file is neither moved nor replaced
// (Locked). The moved file must be in the state of the etag, unless the etag is "". Across two
// roots, or the boundary of a nested one, the error is EXDEV. An error's Path is old or to,
// whichever the error is about.
func (t *Tree) RenamePath(ctx context.Context, c guard.Caller, old, to guard.Path, overwrite bool, etag string) error {
	req := guard.Request{Caller: c, Op: names.OpRename, Path: old, Path2: to}
	return gate.Run(ctx, t.reg, req, func(l *guard.Lease) error {
		return t.renamePath(ctx, l, c, old, to, overwrite, etag)
	})
}

// renamePath is RenamePath after the gate. In a dry run, to may be the zero path. Then the old path
// is judged as the new one, too.
func (t *Tree) renamePath(ctx context.Context, l *guard.Lease, c guard.Caller, old, to guard.Path, overwrite bool, etag string) error {
	return doFollowed(ctx, l, old, false, func(q guard.Path) error {
		if q.IsRoot() {
			return rootError()
		}
		// This only finds links in the path. rename resolves the path again, under the locks.
		src, _, err := beneath.Parent(l, q, rules.ToChange)
		if err != nil {
			return err
		}
		src.Close()
		if to.Root == "" && l.IsDry() {
			to = q
		}
		return withPath(to, doFollowed(ctx, l, to, false, func(q2 guard.Path) error {
			if q2.IsRoot() {
				return rootError()
			}
			m := &move{
				ctx: ctx, l: l, c: c, asked: old, etag: etag, respectLocks: true,
				mustBeNew: !overwrite || l.Narrowest()&guard.Delete == 0,
			}
			m.oldDir.Path, m.oldName = q.Split()
			m.newDir.Path, m.newName = q2.Split()
			return t.rename(m)
		}))
	})
}

// move is the move of one name. Its paths have no links.
type move struct {
	ctx     context.Context
	l       *guard.Lease
	c       guard.Caller
	oldDir  At
	oldName string
	newDir  At
	newName string
	src     beneath.Dir // oldDir, open
	dst     beneath.Dir // newDir, open
	asked   guard.Path  // the old path as the caller gave it, for errors

	flags     uint32 // of renameat2(2); RenameExchange swaps the two files
	mustBeNew bool   // no file may be replaced
	etag      string // the moved file must be in this state; "": any
	// respectLocks refuses to move or replace a file that is locked, or that this tree is
	// changing, and to replace one that is open for writing.
	respectLocks bool
	ofDir        bool // a directory is moved, under the lock for directories; set only in roots with patterns
	replaces     bool // a file has the new name already; set only in roots with patterns
	moved        Info // the file with the old name; set only in roots with patterns
	// oldInfo and newInfo are the files that had the old and the new name when checkMovable looked
	// at them. oldInfo is zero if checkMovable need not look. newInfo is also zero if the new name
	// was free.
	oldInfo, newInfo Info
}

// rename judges a move and does it. Meanwhile, in a root with patterns, nobody can create a name in
// a directory that is moved.
func (t *Tree) rename(m *move) error {
	release, err := m.lockMoves()
	if err != nil {
		return err
	}
	defer release()
	defer func() { m.src.Close(); m.dst.Close() }()
	if err := m.resolveParents(); err != nil {
		return err
	}
	unlock, err := t.lockNames(m)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.checkMovable(); err != nil {
		return err
	}
	if err := m.judge(); err != nil || m.l.IsDry() {
		return err
	}
	err = t.replaceOrMove(m)
	from, to := m.from(), m.to()
	if err == unix.EINVAL && strings.HasPrefix(to, from+"/") { //nolint:errorlint // bare errno
		err = &guard.Error{Kind: names.Invalid, Err: errIntoItself}
	}
	if err != nil {
		return err
	}
	m.l.Notes().Moved(from, to, m.exchanges())
	dir := m.dst.Rel(m.newDir.Path.Rel())
	if m.l.Judge().Patterned() && !m.exchanges() {
		m.l.Notes().Part(dir, m.newName, m.moved.ID(), m.moved.IsDir()) // remembers only the judged file, not one that took its place
	}
	if !m.replaces {
		m.l.Notes().NewName(dir, m.newName)
	}
	return nil
}

var errIntoItself = errors.New("a directory cannot be moved into itself")

func (m *move) exchanges() bool { return m.flags&RenameExchange != 0 }

// from and to return the old and the new path, below the root.
func (m *move) from() string { return relIn(m.src, m.oldDir.Path, m.oldName) }
func (m *move) to() string   { return relIn(m.dst, m.newDir.Path, m.newName) }

// lockMoves acquires the lock of Lease.Moving if a directory is moved. Otherwise it acquires
// that of Lease.Making, which several operations can hold at the same time. In a root without
// patterns it acquires no lock.
func (m *move) lockMoves() (unlock func(), err error) {
	if !m.l.Judge().Patterned() {
		return func() {}, nil
	}
	m.ofDir, err = isDirAt(m.l, m.oldDir.Path, m.oldName)
	if err == nil && !m.ofDir && m.exchanges() {
		m.ofDir, err = isDirAt(m.l, m.newDir.Path, m.newName)
	}
	if err != nil {
		return nil, err
	}
	if !m.ofDir {
		return m.l.Making(m.ctx)
	}
	return m.l.Moving(m.ctx)
}

// isDirAt reports whether the file called name in dir is a directory. If isDirAt cannot look at the
// file, because the name does not exist or may not be seen, it reports false without an error: the
// operation itself fails later.
func isDirAt(l *guard.Lease, dir guard.Path, name string) (bool, error) {
	p, err := dir.Join(name)
	if err != nil {
		return false, err
	}
	d, info, err := nodeAt(l, At{Path: p}, rules.ToLook)
	if err != nil {
		return false, nil
	}
	d.Close()
	return info.IsDir(), nil
}

// resolveParents opens the directories of the two names. The new name is judged later, together
// with the file that gets it.
func (m *move) resolveParents() (err error) {
	if m.src, err = parentAt(m.l, m.oldDir, m.oldName, rules.ToChange); err != nil {
		return withPath(m.asked, err)
	}
	if m.dst, err = m.openNewDir(); err != nil {
		return err
	}
	if err := beneath.Enter(m.l, &m.dst, m.newName); err != nil {
		return err
	}
	if m.src.Domain != m.dst.Domain {
		return withPath(m.asked, unix.EXDEV)
	}
	return nil
}

// openNewDir opens the directory of the new name. Most names stay in their directory, which is
// open already.
func (m *move) openNewDir() (beneath.Dir, error) {
	if m.oldDir.Path == m.newDir.Path && m.oldDir.ID == m.newDir.ID && !m.l.HasNested() {
		if d, ok := m.src.Share(); ok {
			return d, nil
		}
	}
	return dirAt(m.l, m.newDir)
}

// lockNames locks the new name, which another operation may be replacing. It also locks the old
// name if the move exchanges the two, or if m.respectLocks is set. In a dry run it locks nothing.
func (t *Tree) lockNames(m *move) (unlock func(), err error) {
	if m.l.IsDry() {
		return func() {}, nil
	}
	list := make([]claims.Name, 1, 2)
	if list[0], err = claims.NameOf(m.l, m.dst, m.newName); err != nil {
		return nil, err
	}
	if m.exchanges() || m.respectLocks {
		from, err := claims.NameOf(m.l, m.src, m.oldName)
		if err != nil {
			return nil, err
		}
		list = append(list, from)
	}
	return t.claims.LockNames(m.ctx, m.l, list...)
}

// checkMovable refuses to move or replace hidden names and roots. It also refuses to move a file
// that is not in the state of the etag.
func (m *move) checkMovable() error {
	oldInfo, err := checkMovableName(m.l, m.src, m.oldName)
	if err != nil {
		return withPath(m.asked, err)
	}
	m.oldInfo = oldInfo
	m.newInfo, err = checkMovableName(m.l, m.dst, m.newName)
	if err != nil && err != unix.ENOENT { //nolint:errorlint // bare errno
		// A name that a pattern hides gets the same refusal, whether it exists or not.
		if refused := m.judgeReplaced(); refused != nil {
			return refused
		}
		return err
	}
	if m.etag == "" {
		return nil
	}
	return withPath(m.asked, errOnly(inState(m.src, m.oldName, m.etag)))
}

// judge judges the move, in roots with patterns. It judges each new path, for the type of the file
// that gets the path, and everything in a moved directory. The old path was judged when it was
// resolved.
func (m *move) judge() error {
	if !m.l.Judge().Patterned() {
		return nil
	}
	// A file that has the new name already is judged, too.
	if _, newInfo, err := m.look(); err == nil && newInfo != (Info{}) {
		m.replaces = true
		if err := m.judgeReplaced(); err != nil {
			return err
		}
	}
	info, err := m.judgePlace(m.src, m.oldName, m.from(), m.to())
	if m.moved = info; err != nil || !m.exchanges() {
		return err
	}
	_, err = m.judgePlace(m.dst, m.newName, m.to(), m.from())
	return err
}

// judgeReplaced judges the effect of the move on the new name.
func (m *move) judgeReplaced() error {
	access := rules.ToMake
	if m.exchanges() {
		access = rules.ToChange
	}
	return beneath.Judge(m.l, m.dst, m.newDir.Path.Rel(), m.newName, access)
}

// judgePlace judges whether the file called name in d, whose path is from, may get the path to.
func (m *move) judgePlace(d beneath.Dir, name, from, to string) (Info, error) {
	info, err := beneath.StatIn(d, name)
	if err != nil {
		return Info{}, err
	}
	typ := walk.TypeOf(info.Type())
	if err := m.l.Judge().Moved(from, to, info.ID(), typ); err != nil || typ != pattern.Dir {
		return info, err
	}
	if !m.ofDir {
		return Info{}, &guard.Error{Kind: names.Conflict} // it was no directory when the lock was taken
	}
	return info, m.judgeBelow(from, to)
}

// judgeBelow judges the move of everything in the directory from to the path to.
func (m *move) judgeBelow(from, to string) error {
	// rename(2) never returns EINTR, so the end of m.ctx is ignored here and in Lease.Moving.
	ctx := context.WithoutCancel(m.ctx)
	w := walk.New(ctx, m.l, walk.Options{Keep: func(*Entry) bool { return true }})
	defer w.Close()
	if err := w.Start(from); err != nil {
		return err
	}
	judge := m.l.Judge().Move(from, to)
	for {
		e, err := w.Next()
		if e == nil {
			return err
		}
		name, typ := e.Name, walk.TypeOf(e.Type)
		w.Take()
		if err := judge(string(w.Path()), name, typ); err != nil {
			return err
		}
		if typ != pattern.Dir && typ != pattern.Unknown {
			continue
		}
		if err := m.enter(w, name, typ); err != nil {
			return err
		}
	}
}

var errUnread = errors.New("a directory in it cannot be read, so what it holds cannot be judged")

// enter makes w enter the subdirectory called name. If the subdirectory cannot be read, its
// contents cannot be judged: enter returns an error, and nothing is moved.
func (m *move) enter(w *walk.Walker, name string, typ pattern.Type) error {
	ok, err := w.Enter(name)
	if err != nil || ok || typ == pattern.Unknown {
		return err
	}
	info, err := beneath.StatAt(w.Dir(), name)
	if err == unix.ENOENT || err == nil && !info.IsDir() { //nolint:errorlint // bare errno
		return nil // the subdirectory is gone
	}
	return &guard.Error{Kind: names.Permission, Err: errUnread}
}

// replaceOrMove moves the name. A file that the move replaces goes to the trash, if the root has a
// trash.
func (t *Tree) replaceOrMove(m *move) error {
	t.keepBeforeRemoval(m.l, m.c, m.newDir, m.dst, m.newName)
	if m.flags != 0 {
		return beneath.Rename(m.l, m.src, m.oldName, m.dst, m.newName, uint(m.flags))
	}
	if m.ofDir {
		m.oldInfo = Info{} // judging a directory can take long, so look at the files again
	}
	oldInfo, newInfo, err := m.look()
	absent := newInfo == (Info{})
	switch {
	case err != nil:
		return err
	case !absent && m.mustBeNew:
		return unix.EEXIST
	case absent && (m.mustBeNew || m.respectLocks):
		return t.whileUnlocked(m, &oldInfo, func() error { return beneath.RenameNew(m.l, m.src, m.oldName, m.dst, m.newName) })
	case absent || newInfo.ID() == oldInfo.ID(): // two names of one file: nothing is replaced
		return t.whileUnlocked(m, &oldInfo, func() error { return beneath.Rename(m.l, m.src, m.oldName, m.dst, m.newName, 0) })
	}
	replace := func() error {
		end, err := t.trash.Keep(m.ctx, m.l, m.dst, m.newName, m.to())
		if err != nil {
			return err
		}
		return end(beneath.Rename(m.l, m.src, m.oldName, m.dst, m.newName, 0))
	}
	if !m.respectLocks {
		return replace()
	}
	done, err := t.claims.BeginReplacing(m.ctx, m.l, newInfo.ID())
	if err != nil {
		return err
	}
	replaced := false
	defer func() { done(replaced && newInfo.IsRegular() && newInfo.Nlink <= 1) }()
	err = t.whileUnlocked(m, &oldInfo, func() error { return withFileLock(m.l, m.dst, m.newName, &newInfo, replace) })
	replaced = err == nil
	return err
}

// look returns the attributes of the files that have the two names: those that checkMovable has
// read, if m.oldInfo is set, otherwise the present ones. newInfo is zero if the new name is free.
func (m *move) look() (oldInfo, newInfo Info, err error) {
	if m.oldInfo != (Info{}) {
		return m.oldInfo, m.newInfo, nil
	}
	if oldInfo, err = beneath.StatIn(m.src, m.oldName); err != nil {
		return oldInfo, newInfo, withPath(m.asked, err)
	}
	newInfo, err = beneath.StatIn(m.dst, m.newName)
	return oldInfo, newInfo, beneath.IgnoreAbsent(err)
}

// whileUnlocked runs put. With respectLocks it does so only while no other program holds a lock
// on the moved file. info has the attributes of that file.
func (t *Tree) whileUnlocked(m *move, info *Info, put func() error) error {
	if !m.respectLocks {
		return put()
	}
	begun := false
	err := withFileLock(m.l, m.src, m.oldName, info, func() error { begun = true; return put() })
	if err == unix.ELOOP { //nolint:errorlint // bare errno
		err = &guard.Error{Kind: names.Conflict} // a link by now
	}
	if !begun {
		err = withPath(m.asked, err)
	}
	return err
}

// withPath sets the path of an error about one of an operation's two paths. An error that has a
// path keeps it.
func withPath(p guard.Path, err error) error {
	var e *guard.Error
	var errno unix.Errno
	switch {
	case errors.As(err, &e):
		if e.Path.Root != "" {
			return err
		}
		w := *e
		w.Path = p
		return &w
	case errors.As(err, &errno):
		return &guard.Error{Path: p, Kind: names.KindOf(errno), Err: errno}
	}
	return err
}
