package vfs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/trash"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// Unlink removes a file's name. If the file is itself a root, the error is EBUSY.
func (t *Tree) Unlink(ctx context.Context, c guard.Caller, dir At, name string) error {
	return t.remove(ctx, c, names.OpUnlink, dir, name, func(l *guard.Lease, d beneath.Dir, name string) error {
		b, err := t.trash.Open(ctx, l)
		if err != nil {
			return err
		}
		defer b.Close()
		return b.Unlink(l, d, name, relIn(d, dir.Path, name))
	})
}

// Rmdir removes an empty directory. If it is itself a root, the error is EBUSY.
func (t *Tree) Rmdir(ctx context.Context, c guard.Caller, dir At, name string) error {
	return t.remove(ctx, c, names.OpRmdir, dir, name, func(l *guard.Lease, d beneath.Dir, name string) error {
		return beneath.Rmdir(l, d, name)
	})
}

func (t *Tree) remove(ctx context.Context, c guard.Caller, op guard.Op, dir At, name string,
	f func(*guard.Lease, beneath.Dir, string) error,
) error {
	p, err := t.child(op, dir, name)
	if err != nil {
		return err
	}
	req := dir.request(c, op, p)
	return gate.Run(ctx, t.reg, req, func(l *guard.Lease) error {
		d, err := parentAt(l, dir, name, l.Judge().Access())
		if err != nil {
			return err
		}
		defer d.Close()
		if seen := t.keepBeforeRemoval(l, c, dir, d, name); seen != nil {
			err = checkMovable(l, d, name, seen)
		} else {
			_, err = checkMovableName(l, d, name)
		}
		if err != nil {
			return err
		}
		if err := f(l, d, name); err != nil {
			return err
		}
		l.Notes().Removed(relIn(d, dir.Path, name))
		return nil
	})
}

// checkMovableName refuses names that may not be moved or removed: hidden ones, and directories and
// files that are roots themselves. It returns the attributes of the file, or zero attributes
// if no check needs them.
func checkMovableName(l *guard.Lease, d beneath.Dir, name string) (Info, error) {
	if l.PosixFull() && !l.HasNested() {
		return Info{}, nil
	}
	info, err := beneath.StatIn(d, name)
	if err != nil {
		return Info{}, err
	}
	if err := walk.Visible(l, &info); err != nil {
		return Info{}, err
	}
	return info, checkMovable(l, d, name, &info)
}

// checkMovable is checkMovableName for a file that may be seen.
func checkMovable(l *guard.Lease, d beneath.Dir, name string, info *Info) error {
	domain, err := beneath.CrossEntry(l, d, name, info)
	if err != nil {
		return err
	}
	if domain != 0 {
		return unix.EBUSY
	}
	return nil
}

// relIn returns the path of a name in the open directory d, which dir was resolved to.
func relIn(d beneath.Dir, dir guard.Path, name string) string {
	if at := d.Rel(dir.Rel()); at != "" {
		return at + "/" + name
	}
	return name
}

// rootError returns the error of operations that would remove or move a root itself.
func rootError() error {
	return &guard.Error{Kind: names.Permission, Err: errors.New("the path is a root itself, which only its owner can take away")}
}

// RemoveOptions says how RemovePath removes.
type RemoveOptions struct {
	Recursive bool
	ETag      string // the file or directory at the path must have this etag; "": any
	// Progress, unless nil, is called with the number of names that a recursive removal has
	// removed so far, one call at a time, and not after RemovePath has returned.
	Progress func(removed int64)
}

// RemovePath removes a file, a link (never its target) or a directory. It removes a directory
// that is not empty only if Recursive is set. It does not remove roots, directories that
// contain a root, or locked files (Locked).
//
// A recursive removal judges each name, follows no link, enters no other file
// system, and can be cancelled. It stops at the first name that cannot be
// removed. If names were removed before, the error's cause is a *Partial. It leaves hidden names in
// place, and then the error is that their directory is not empty. If a directory is moved out of
// the root meanwhile, the removal notices the move when it next reads names there, and leaves the
// directory. In very deep directories it notices the move a few readings later.
func (t *Tree) RemovePath(ctx context.Context, c guard.Caller, p guard.Path, how RemoveOptions) error {
	tell, mute := mutableProgress(how.Progress)
	defer mute()
	how.Progress = tell
	req := guard.Request{Caller: c, Op: names.OpUnlink, Path: p}
	if how.Recursive {
		req.Op = names.OpRmdir
	}
	return gate.Run(ctx, t.reg, req, func(l *guard.Lease) error {
		return doFollowed(ctx, l, p, false, func(q guard.Path) error { return t.removePath(ctx, l, q, how) })
	})
}

func (t *Tree) removePath(ctx context.Context, l *guard.Lease, q guard.Path, how RemoveOptions) error {
	if q.IsRoot() {
		return rootError()
	}
	d, base, err := beneath.Parent(l, q, l.Judge().Access())
	if err != nil {
		return err
	}
	defer d.Close()
	if l.IsDry() {
		return errOnly(checkMovableName(l, d, base))
	}
	unlock, err := t.claims.LockName(ctx, l, d, base)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := checkMovableName(l, d, base); err != nil {
		return err
	}
	info, err := inState(d, base, how.ETag)
	if err != nil {
		return err
	}
	b, err := t.trash.Open(ctx, l)
	if err != nil {
		return err
	}
	defer b.Close()
	switch {
	case !info.IsDir():
		dir, _ := q.Split()
		err = withFileLock(l, d, base, &info, func() error { return b.Unlink(l, d, base, relIn(d, dir, base)) })
	case !how.Recursive:
		err = beneath.Rmdir(l, d, base)
	default:
		return t.removeAll(ctx, l, q, d, base, b, how.Progress)
	}
	if err == nil {
		l.Notes().Removed(q.Rel())
	}
	return err
}

// removeAll removes a directory with all its contents.
func (t *Tree) removeAll(ctx context.Context, l *guard.Lease, q guard.Path, d beneath.Dir, base string, b *trash.Bin, tell func(int64)) error {
	if err := t.refuseRootsBelow(l, q); err != nil {
		return err
	}
	r := remover{ctx: ctx, l: l, bin: b, tell: tell}
	err := r.run(q.Rel(), d, base)
	if err == nil || r.removed == 0 {
		return err
	}
	return r.partial(q.Root, err)
}

// refuseRootsBelow refuses a directory that contains other roots, before any of it is removed.
func (t *Tree) refuseRootsBelow(l *guard.Lease, q guard.Path) error {
	st, ok := t.reg.Lookup(q.Root)
	if !ok || !l.HasNested() {
		return nil
	}
	for _, rel := range st.Nested {
		if strings.HasPrefix(rel, q.Rel()+"/") {
			return &guard.Error{Kind: names.Permission, Err: errors.New("the directory holds another root")}
		}
	}
	return nil
}

const (
	// While the path of a directory is shorter than verifyBelow bytes, each reading of the
	// directory first looks it up again from the root. Further down that would cost more
	// than the removal, so only some readings do (see walk.Walker).
	verifyBelow = 512
	// maxPasses bounds how often a directory is read again because a program keeps filling it.
	maxPasses = 64
)

// Partial is the cause of the error when a recursive removal stops midway.
type Partial struct {
	Removed int64      // names that are gone
	At      guard.Path // the name that could not be removed
	Kind    guard.Kind
}

func (p *Partial) Error() string {
	return fmt.Sprintf("%d names were removed, then %s: %s",
		p.Removed, names.Escape(p.At.String()), (&guard.Error{Kind: p.Kind}).Text())
}

// remover is one recursive removal, depth first. Files and links are removed when their names
// are read. So a directory that is moved out of the root while the removal is further down
// loses nothing more.
type remover struct {
	ctx     context.Context
	l       *guard.Lease
	w       *walk.Walker
	levels  []removeLevel // one for each level of the walker
	at      string        // the path that is being removed, below the root
	err     error         // of the first name that could not be removed
	removed int64
	tell    func(removed int64)
	bin     *trash.Bin
}

// removeLevel is one directory on the way down.
type removeLevel struct {
	changed bool // something was removed since the beginning was read
	passes  int  // complete readings of the directory
}

// run removes the directory called base in top, which lies at rel.
func (r *remover) run(rel string, top beneath.Dir, base string) error {
	r.at = rel
	r.w = walk.New(r.ctx, r.l, walk.Options{Keep: r.removeRead, Open: r.open, VerifyBelow: verifyBelow})
	defer r.w.Close()
	dir, err := r.open(top, base)
	if err != nil {
		return err
	}
	r.w.StartAt(rel, dir)
	r.levels = append(r.levels, removeLevel{})
	for err == nil && len(r.levels) > 0 {
		err = r.step(top, base)
	}
	return err
}

// partial returns the error of a removal that stopped at one of its names.
func (r *remover) partial(root guard.RootName, err error) error {
	e := &guard.Error{Kind: names.Reason(err), Err: err}
	if errors.Is(err, context.DeadlineExceeded) {
		e.Kind = names.Timeout
	}
	if e.Kind == names.Other {
		e.Kind = names.IO
	}
	at, bad := guard.NewPath(root, r.at)
	if bad != nil {
		return err
	}
	e.Err = &Partial{Removed: r.removed, At: at, Kind: e.Kind}
	return e
}

// open opens a directory that is no root itself.
func (r *remover) open(d beneath.Dir, name string) (beneath.Names, error) {
	dir, info, err := beneath.OpenForRemoval(r.l, d, name)
	if err != nil {
		return beneath.Names{}, err
	}
	domain, err := beneath.CrossChild(r.l, &info)
	if err == nil && domain != 0 {
		err = unix.EBUSY
	}
	if err != nil {
		dir.Close()
		return beneath.Names{}, err
	}
	return dir, nil
}

// step enters the next subdirectory of the innermost directory, or removes the directory
// itself. Other names in it are removed when they are read (removeRead).
func (r *remover) step(top beneath.Dir, base string) error {
	rel, v := r.w.Rel(), &r.levels[len(r.levels)-1]
	r.at = rel
	e, ok, err := r.w.Peek()
	if r.err != nil {
		return r.err
	}
	if err != nil {
		return err
	}
	if ok {
		name := e.Name
		r.w.Take()
		r.at = rel + "/" + name
		switch err := r.w.Open(name); err { //nolint:errorlint // bare errnos
		case nil:
			r.levels = append(r.levels, removeLevel{})
			return nil
		case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
			v.changed = true // the name has vanished or has another type: read again
			return nil
		default:
			return err
		}
	}
	if v.passes++; v.changed && v.passes <= maxPasses {
		// Some file systems leave out names when others are removed while
		// they are read.
		v.changed = false
		r.w.Restart()
		return nil
	}
	return r.finish(top, base, rel)
}

// finish removes the innermost directory, which has been emptied, and goes up.
func (r *remover) finish(top beneath.Dir, base, rel string) error {
	parent, name, last := top, base, len(r.levels)-1
	if last > 0 {
		name = r.w.Name()
		if _, err := r.w.Leave(); err != nil {
			return err
		}
		parent = r.w.Dir()
		r.levels[last-1].changed = true
	}
	r.levels = r.levels[:last]
	if err := beneath.Rmdir(r.l, parent, name); err != nil && err != unix.ENOENT { //nolint:errorlint // bare errno
		return err
	}
	r.countRemoved(rel)
	return nil
}

// countRemoved counts a name that was removed.
func (r *remover) countRemoved(rel string) {
	r.l.Notes().Removed(rel)
	r.removed++
	r.tell(r.removed)
}

// removeRead removes a name as soon as it has been read. It returns true for the name of a
// directory, which it leaves to the walk. After an error it removes nothing.
func (r *remover) removeRead(e *Entry) (isDir bool) {
	if r.err != nil {
		return false
	}
	rel := r.w.Rel()
	isDir, err := r.removeEntry(r.w.Dir(), rel, e.Name, e.Type)
	if err != nil {
		r.err, r.at = err, rel+"/"+e.Name
	}
	return isDir
}

// unlink removes a name that is not a directory's, unless its file is locked. typ is the type
// in the directory entry.
func (r *remover) unlink(d beneath.Dir, rel, name string, typ uint32) error {
	remove := func() error { return r.bin.Unlink(r.l, d, name, rel+"/"+name) }
	if typ != unix.S_IFREG {
		return remove()
	}
	info, err := beneath.StatIn(d, name)
	if err != nil {
		return err
	}
	return withFileLock(r.l, d, name, &info, remove)
}

// removeEntry removes one name of the directory d, which lies at rel, unless it is that of
// a directory.
func (r *remover) removeEntry(d beneath.Dir, rel, name string, typ uint32) (isDir bool, err error) {
	if err := r.l.Life().Ended(r.ctx); err != nil {
		return false, err
	}
	if err := r.l.Judge().As(rules.ToChange, rel, name, walk.TypeOf(typ)); err != nil {
		if errors.Is(err, names.Hidden) {
			return false, nil
		}
		return false, err
	}
	if typ != unix.S_IFREG && typ != unix.S_IFLNK && typ != unix.S_IFDIR {
		info, err := beneath.StatIn(d, name)
		if err != nil {
			return false, beneath.IgnoreAbsent(err)
		}
		if walk.Visible(r.l, &info) != nil {
			return false, nil
		}
		typ = info.Type()
	}
	if typ == unix.S_IFDIR {
		return true, nil
	}
	v := &r.levels[len(r.levels)-1]
	err = r.unlink(d, rel, name, typ)
	switch err {
	case nil:
		v.changed = true
		r.countRemoved(rel + "/" + name)
		return false, nil
	case unix.EISDIR, unix.EPERM:
		// It may be a directory by now, which the next reading shows.
		if info, serr := beneath.StatIn(d, name); serr == nil && info.IsDir() {
			v.changed = true
			return false, nil
		}
	}
	if err == unix.ELOOP || names.Reason(err) == names.Conflict { //nolint:errorlint // bare errno
		v.changed = true // exchanged just now
		return false, nil
	}
	return false, beneath.IgnoreAbsent(err)
}

// inState returns the attributes of the file at a name. If etag is not "" and differs from the
// file's etag, the error is Conflict.
func inState(d beneath.Dir, base, etag string) (Info, error) {
	info, err := beneath.StatIn(d, base)
	if err == nil && etag != "" && ETag(&info) != etag {
		err = &guard.Error{Kind: names.Conflict}
	}
	return info, err
}
