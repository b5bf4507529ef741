package vfs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

const (
	// verifyPath is up to what length of path each reading of a directory first looks
	// the directory up again from the root; further down, where that would cost more
	// than the removal, only each verifyEach-th does.
	verifyPath = 512
	verifyEach = 64
	// maxPasses bounds how often a directory is read again because somebody
	// keeps filling it.
	maxPasses = 64
)

// Partial is the cause of the error when a recursive removal stops midway.
type Partial struct {
	Removed int64      // names that are gone
	At      guard.Path // which could not be removed
	Kind    guard.Kind
}

func (p *Partial) Error() string {
	return fmt.Sprintf("%d names were removed, then %s: %s",
		p.Removed, names.Escape(p.At.String()), (&guard.Error{Kind: p.Kind}).Text())
}

// remover is one recursive removal, depth first. What is no directory is removed when
// its name has been read, so a directory that is moved out of the root while the removal
// is further down loses nothing more.
type remover struct {
	w       *walker
	levels  []removing // as the walker's
	at      string     // what is being removed, below the root
	removed int64
	tell    func(removed int64)
	bin     *bin
}

// removing is one directory on the way down.
type removing struct {
	changed bool // something was removed since the beginning was read
	passes  int
}

// run removes the directory called base in top, from which the walker begins.
func (r *remover) run(root guard.RootName, top beneath.Dir, base string) error {
	w := r.w
	w.all, w.verifyPath = true, verifyPath
	w.subdir = func(dirfd int, name string) (int, error) { return openToRemove(w.l, dirfd, name) }
	r.at = w.base
	fd, err := w.subdir(top.FD, base)
	if err != nil {
		return err
	}
	w.levels, r.levels = append(w.levels, level{fd: fd}), append(r.levels, removing{})
	for err == nil && len(r.levels) > 0 {
		err = r.step(top, base)
	}
	if err == nil || r.removed == 0 {
		return err
	}
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

// openToRemove opens a directory that is no root itself.
func openToRemove(l *guard.Lease, dirfd int, name string) (int, error) {
	d, info, err := beneath.OpenForRemoval(beneath.Dir{FD: dirfd}, name)
	if err != nil {
		return -1, err
	}
	domain, err := beneath.CrossChild(l, &info)
	if err == nil && domain != 0 {
		err = unix.EBUSY
	}
	if err != nil {
		d.Close()
		return -1, err
	}
	return d.FD, nil
}

// step enters the next subdirectory of the innermost directory, or removes more names,
// or the directory itself.
func (r *remover) step(top beneath.Dir, base string) error {
	w, v := r.w, &r.levels[len(r.levels)-1]
	rel := w.dir()
	r.at = rel
	switch at := w.top(); {
	case len(at.names) > 0:
		name := at.names[0].Name
		w.take()
		r.at = rel + "/" + name
		fd, err := w.open(rel, at.fd, name)
		switch err { //nolint:errorlint // bare errnos
		case nil:
			w.push(name, fd)
			r.levels = append(r.levels, removing{})
		case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
			v.changed = true // something else by now: the next reading tells
		default:
			return err
		}
		return nil
	case !at.end:
		return r.read(at, rel)
	}
	if v.passes++; v.changed && v.passes <= maxPasses {
		// Some file systems leave out names when others are removed while
		// they are read.
		v.changed = false
		at := w.top()
		at.off, at.seek, at.end = 0, true, false
		return nil
	}
	return r.finish(top, base, rel)
}

// read removes the next names of the innermost directory, and leaves those of its
// subdirectories to be entered.
func (r *remover) read(at *level, rel string) (err error) {
	r.w.steps += verifyEvery / verifyEach
	if err := r.w.read(); err != nil {
		return err
	}
	d := beneath.Dir{FD: at.fd}
	at.names = slices.DeleteFunc(at.names, func(e Entry) bool {
		if err != nil {
			return true
		}
		var isDir bool
		if isDir, err = r.entry(d, rel, e.Name, e.Type); err != nil {
			r.at = rel + "/" + e.Name
		}
		return !isDir
	})
	return err
}

// finish removes the innermost directory, which has been emptied, and goes up.
func (r *remover) finish(top beneath.Dir, base, rel string) error {
	w, last := r.w, len(r.levels)-1
	parent, name := top, base
	if last > 0 {
		name = w.name(last)
		if _, err := w.leave(); err != nil {
			return err
		}
		parent = beneath.Dir{FD: w.top().fd}
		r.levels[last-1].changed = true
	}
	r.levels = r.levels[:last]
	if err := beneath.Rmdir(w.l, parent, name); err != nil && err != unix.ENOENT { //nolint:errorlint // bare errno
		return err
	}
	w.l.NoteRemoved(rel)
	r.removed++
	r.tell(r.removed)
	return nil
}

// entry removes one name of the directory d, which lies at rel, unless it is a
// directory's.
func (r *remover) entry(d beneath.Dir, rel, name string, typ uint32) (isDir bool, err error) {
	if err := ended(r.w.ctx, r.w.l); err != nil {
		return false, err
	}
	if err := r.w.l.JudgeAs(guard.ToChange, rel, name, typeOf(typ)); err != nil {
		if errors.Is(err, names.Hidden) {
			return false, nil
		}
		return false, err
	}
	if typ != unix.S_IFREG && typ != unix.S_IFLNK && typ != unix.S_IFDIR {
		info, err := beneath.StatIn(d, name)
		if err != nil {
			return false, absent(err)
		}
		if visible(r.w.l, &info) != nil {
			return false, nil
		}
		typ = info.Type()
	}
	if typ == unix.S_IFDIR {
		return true, nil
	}
	v := &r.levels[len(r.levels)-1]
	err = unlinkUnlocked(r.w.l, d, name, typ, func() error { return r.bin.unlink(r.w.l, d, name, rel+"/"+name) })
	switch err {
	case nil:
		r.w.l.NoteRemoved(rel + "/" + name)
		v.changed = true
		r.removed++
		r.tell(r.removed)
		return false, nil
	case unix.EISDIR, unix.EPERM:
		// A directory by now? Then the next reading tells.
		if info, serr := beneath.StatIn(d, name); serr == nil && info.IsDir() {
			v.changed = true
			return false, nil
		}
	}
	if err == unix.ELOOP || names.Reason(err) == names.Conflict { //nolint:errorlint // bare errno
		v.changed = true // exchanged just now
		return false, nil
	}
	return false, absent(err)
}
