package vfs

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/claims"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// Moving a directory gives everything in it another path, and patterns are about
// paths. So a directory is moved only if no pattern is about anything in it,
// neither where it lies nor where it would. It costs a walk through the
// directory, in roots with patterns only; while it lasts nobody makes a name in
// the root (guard.Lease.Moving).

// move is one name to be given another place.
type move struct {
	ctx     context.Context
	l       *guard.Lease
	c       guard.Caller
	src     beneath.Dir
	dst     beneath.Dir
	oldDir  guard.Path // of src
	oldName string
	newDir  guard.Path // of dst
	newName string
	asked   guard.Path // the old path as a peer gave it, for errors
	// exchange: what is at the new place comes to the old.
	exchange bool
	careful  bool   // nobody else of this tree may be changing what is moved
	etag     string // what is moved must be in this state; "": any
	over     bool   // something has the new name already; found out with patterns only
}

// lockMove keeps the making and moving of names apart: shared if what is moved is
// no directory. again is false when that has changed meanwhile.
func lockMove(ctx context.Context, l *guard.Lease, isDir func() (bool, error)) (unlock func(), err error) {
	if !l.Patterned() {
		return func() {}, nil
	}
	dir, err := isDir()
	if err != nil {
		return nil, err
	}
	if !dir {
		return l.Making(ctx)
	}
	return l.Moving(ctx)
}

// dirAtName reports whether a directory lies at a name. That nothing does, or
// nothing that may be seen, is for the operation itself to say.
func dirAtName(l *guard.Lease, dir guard.Path, name string) (bool, error) {
	p, err := dir.Join(name)
	if err != nil {
		return false, err
	}
	d, info, err := nodeFor(l, At{Path: p}, guard.ToLook)
	if err != nil {
		return false, nil
	}
	d.Close()
	return info.IsDir(), nil
}

// judge judges the move: the names at both places, and what lies below them. The
// names themselves have been judged for their own sake, but not for each other's
// types. locked says that the lock was taken for a directory.
func (m *move) judge(locked bool) error {
	if !m.l.Patterned() {
		return nil
	}
	from, err := m.path(m.src, m.oldDir, m.oldName)
	if err != nil {
		return err
	}
	to, err := m.path(m.dst, m.newDir, m.newName)
	if err != nil {
		return err
	}
	// What has the new name already is judged as what it is.
	if _, err := beneath.StatIn(m.dst, m.newName); err == nil {
		m.over = true
		if err := beneath.Judge(m.l, m.dst, m.newDir.Rel(), m.newName, m.into()); err != nil {
			return err
		}
	}
	if err := m.place(m.src, m.oldName, from, m.dst.Rel(m.newDir.Rel()), m.newName, to, locked); err != nil || !m.exchange {
		return err
	}
	return m.place(m.dst, m.newName, to, m.src.Rel(m.oldDir.Rel()), m.oldName, from, locked)
}

// into is what the move does to the new name.
func (m *move) into() guard.Access {
	if m.exchange {
		return guard.ToChange
	}
	return guard.ToMake
}

// moved tells the lease that the move is done.
func (m *move) moved() {
	from, err := m.path(m.src, m.oldDir, m.oldName)
	to, err2 := m.path(m.dst, m.newDir, m.newName)
	if err == nil && err2 == nil {
		m.l.NoteMoved(from, to, m.exchange)
		if !m.over {
			m.l.NoteNewName(m.dst.Rel(m.newDir.Rel()), m.newName)
		}
	}
}

func (m *move) path(d beneath.Dir, dir guard.Path, name string) (string, error) {
	p, err := guard.NewPath(dir.Root, d.Rel(dir.Rel()))
	if err == nil {
		p, err = p.Join(name)
	}
	return p.Rel(), err
}

// place judges what lies at one name for the place of another.
func (m *move) place(d beneath.Dir, name, at, toDir, toName, to string, locked bool) error {
	info, err := beneath.StatIn(d, name)
	if err != nil {
		return err
	}
	typ := walk.TypeOf(info.Type())
	if err := m.l.JudgeAs(guard.ToMake, toDir, toName, typ); err != nil {
		return err
	}
	if typ != pattern.Dir {
		return nil
	}
	if !locked {
		return &guard.Error{Kind: names.Conflict} // it was none when the lock was taken
	}
	return m.below(at, to)
}

// below judges everything in a directory, at its own place and at another.
func (m *move) below(at, to string) error {
	ctx := context.WithoutCancel(m.ctx) // as Lease.Moving waits: rename(2) knows no EINTR
	w := walk.New(ctx, m.l, walk.Options{Keep: func(*Entry) bool { return true }})
	defer w.Close()
	if err := w.Start(at); err != nil {
		return err
	}
	judge := m.l.JudgeMove(at, to)
	for {
		e, err := w.Next()
		if e == nil {
			return err
		}
		entry := *e
		w.Take()
		typ := walk.TypeOf(entry.Type)
		if err := judge(string(w.Path()), entry.Name, typ); err != nil {
			return err
		}
		if typ != pattern.Dir && typ != pattern.Unknown {
			continue
		}
		if err := m.enter(w, entry.Name, typ); err != nil {
			return err
		}
	}
}

var errUnread = errors.New("a directory in it cannot be read, so what it holds cannot be judged")

// enter goes into a subdirectory. One that cannot be looked into cannot be
// judged, and then nothing is moved.
func (m *move) enter(w *walk.Walker, name string, typ pattern.Type) error {
	ok, err := w.Enter(name)
	if err != nil || ok || typ == pattern.Unknown {
		return err
	}
	info, err := beneath.StatAt(m.l, w.FD(), name)
	if err == unix.ENOENT || err == nil && !info.IsDir() { //nolint:errorlint // bare errno
		return nil // it has gone
	}
	return &guard.Error{Kind: names.Permission, Err: errUnread}
}

var errIntoItself = errors.New("a directory cannot be moved into itself")

// rename moves a name: it keeps names from being made in what is moved, has the two
// directories resolved, and judges the move before it is put in effect.
func (t *Tree) rename(m *move, resolve, put func() error) error {
	locked := false
	release, err := lockMove(m.ctx, m.l, func() (dir bool, err error) {
		if locked, err = dirAtName(m.l, m.oldDir, m.oldName); err == nil && !locked && m.exchange {
			locked, err = dirAtName(m.l, m.newDir, m.newName)
		}
		return locked, err
	})
	if err != nil {
		return err
	}
	defer release()
	defer func() { m.src.Close(); m.dst.Close() }()
	if err := resolve(); err != nil {
		return err
	}
	if m.src.Domain != m.dst.Domain {
		return about(m.asked, unix.EXDEV)
	}
	// What is replaced may be in the middle of being replaced by somebody else.
	keys := make([]claims.Name, 1, 2)
	if keys[0], err = claims.NameOf(m.dst, m.newName); err != nil {
		return err
	}
	if m.exchange || m.careful {
		from, err := claims.NameOf(m.src, m.oldName)
		if err != nil {
			return err
		}
		keys = append(keys, from)
	}
	unlock, err := t.claims.LockNames(m.ctx, m.l, keys...)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.allowed(); err != nil {
		return err
	}
	if err := m.judge(locked); err != nil {
		return err
	}
	if err := put(); err != nil {
		return err
	}
	m.moved()
	return nil
}

// renamePath is RenamePath between two paths without links.
func (t *Tree) renamePath(m *move, q, q2 guard.Path, replace bool) error {
	return t.rename(m, func() (err error) {
		if m.src, _, err = beneath.ParentFor(m.l, q, guard.ToChange); err != nil {
			return about(m.asked, err)
		}
		m.dst, _, err = beneath.ParentFor(m.l, q2, guard.ToMake)
		return err
	}, func() error {
		err := t.unlocked(m, replace)
		if err == unix.EINVAL && strings.HasPrefix(q2.Rel(), q.Rel()+"/") { //nolint:errorlint // bare errno
			err = &guard.Error{Kind: names.Invalid, Err: errIntoItself}
		}
		return err
	})
}

// allowed reports whether the two names may be moved and replaced, as far as they
// themselves say.
func (m *move) allowed() error {
	if err := movable(m.l, m.src, m.oldName); err != nil {
		return about(m.asked, err)
	}
	if err := movable(m.l, m.dst, m.newName); err != nil && err != unix.ENOENT { //nolint:errorlint // bare errno
		// A name that a pattern hides is refused alike whatever has it.
		if refused := beneath.Judge(m.l, m.dst, m.newDir.Rel(), m.newName, m.into()); refused != nil {
			return refused
		}
		return err
	}
	if m.etag == "" {
		return nil
	}
	return about(m.asked, second(inState(m.src, m.oldName, m.etag)))
}

// unlocked moves the name while nobody else holds a lock on either file, or has
// the one open for writing that is replaced.
func (t *Tree) unlocked(m *move, replace bool) error {
	what, err := beneath.StatIn(m.src, m.oldName)
	if err != nil {
		return about(m.asked, err)
	}
	target, err := beneath.StatIn(m.dst, m.newName)
	absent := err == unix.ENOENT //nolint:errorlint // bare errno
	switch {
	case err != nil && !absent:
		return err
	case err == nil && !replace:
		return unix.EEXIST
	}
	move := func() error { return t.replaceKept(m) }
	if absent {
		move = func() error { return beneath.RenameNew(m.l, m.src, m.oldName, m.dst, m.newName) }
	}
	if !absent && target.ID() != what.ID() {
		done, err := t.claims.BeginReplacing(m.ctx, m.l, target.ID())
		if err != nil {
			return err
		}
		replaced := false
		defer func() { done(replaced && target.IsRegular() && target.Nlink <= 1) }()
		move = func() error {
			err := withFileLock(m.l, m.dst, m.newName, &target, func() error { return t.replaceKept(m) })
			replaced = err == nil
			return err
		}
	}
	begun := false
	err = withFileLock(m.l, m.src, m.oldName, &what, func() error { begun = true; return move() })
	if err == unix.ELOOP { //nolint:errorlint // bare errno
		err = &guard.Error{Kind: names.Conflict} // a link by now
	}
	if !begun {
		err = about(m.asked, err)
	}
	return err
}

// keepReplaced keeps what is about to be replaced by a move, if anything is.
func (t *Tree) keepReplaced(m *move, replaces bool) (*keeping, error) {
	if !replaces {
		return nil, nil
	}
	what, err := beneath.StatIn(m.src, m.oldName)
	if err != nil {
		return nil, err
	}
	target, err := beneath.StatIn(m.dst, m.newName)
	if err == unix.ENOENT || err == nil && target.ID() == what.ID() { //nolint:errorlint // bare errno
		return nil, nil // two names of one file: nothing is replaced
	}
	if err != nil {
		return nil, err
	}
	return t.keep(m.ctx, m.l, m.dst, m.newName, relIn(m.dst, m.newDir, m.newName))
}

// replaceKept puts what is moved in the place of what has the name.
func (t *Tree) replaceKept(m *move) error {
	k, err := t.keepReplaced(m, true)
	if err != nil {
		return err
	}
	return k.end(beneath.Rename(m.l, m.src, m.oldName, m.dst, m.newName, 0))
}
