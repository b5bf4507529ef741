package vfs

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// openNeed returns the rights that an open with these flags needs.
func openNeed(flags int) guard.Rights {
	var need guard.Rights
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		need = guard.Read
	case unix.O_WRONLY:
		need = writeNeed(flags)
	default:
		need = guard.Read | writeNeed(flags)
	}
	if flags&unix.O_TRUNC != 0 {
		need |= guard.Write
	}
	return need
}

// writeNeed returns the right that an open for writing needs: Append suffices with O_APPEND.
func writeNeed(flags int) guard.Rights {
	if flags&unix.O_APPEND != 0 {
		return guard.Append
	}
	return guard.Write
}

// writesTo reports whether a file opened with flags can be written to.
func writesTo(flags int) bool { return flags&unix.O_ACCMODE != unix.O_RDONLY }

// sourceFlags are the flags of open(2) that reach the source. O_APPEND does not: the kernel
// may write a mapped page back through any descriptor, and the page must not land at the
// end. File.WriteAt appends by itself.
const sourceFlags = unix.O_ACCMODE | unix.O_SYNC | unix.O_DSYNC | unix.O_NOATIME

// Open opens a regular file. Of the flags, access mode, O_APPEND, O_TRUNC,
// O_SYNC, O_DSYNC and O_NOATIME have a meaning. While the file is open for writing, it is not
// replaced through this Tree (see RenamePath, Replace and Upload).
func (t *Tree) Open(ctx context.Context, c guard.Caller, at At, flags int) (*File, Info, error) {
	req := guard.Request{Caller: c, Op: names.OpOpen, Path: at.Path, Epoch: at.Epoch, Need: openNeed(flags), OpensForWriting: writesTo(flags)}
	// Tree.gateOpen is not used, because its closure would cost an allocation.
	o, err := gate.Do(ctx, t.reg, req, dropOpened, func(l *guard.Lease) (opened, int64, error) {
		o, err := t.open(ctx, l, c, at, flags)
		return o, 0, err
	})
	return o.f, o.info, err
}

// open is Open after the gate. If the name is given to another file meanwhile, it tries again,
// with the name locked against replacements through this Tree. The expected file (At.ID) is
// looked up at its present place (At.Held).
func (t *Tree) open(ctx context.Context, l *guard.Lease, c guard.Caller, at At, flags int) (o opened, err error) {
	for try := range maxExchanges {
		o, err = t.openOnce(ctx, l, c, at, flags, try > 0)
		if err != unix.ESTALE || at.ID != anyFile && !at.follow(l) { //nolint:errorlint // bare errno
			break
		}
	}
	return o, err
}

// openOnce makes one attempt of open. lock says to lock the name first if the file is opened for
// writing.
func (t *Tree) openOnce(ctx context.Context, l *guard.Lease, c guard.Caller, at At, flags int, lock bool) (opened, error) {
	room, err := t.shares.reserve(c)
	if err != nil {
		return opened{}, err
	}
	defer room.release()
	dir, base := at.Path.Split()
	var d beneath.Dir
	if at.Path.IsRoot() {
		if l.Source().File() == "" {
			return opened{}, unix.EISDIR
		}
		d, base, err = beneath.Parent(l, at.Path, l.Judge().Access())
	} else {
		d, err = parentAt(l, At{Path: dir}, base, l.Judge().Access())
	}
	if err != nil {
		return opened{}, at.stale(err)
	}
	defer d.Close()
	writes := writesTo(flags) || flags&unix.O_TRUNC != 0
	if lock = lock && writes; lock {
		unlock, err := t.claims.LockName(ctx, l, d, base)
		if err != nil {
			return opened{}, err
		}
		defer unlock()
	}
	h, info, err := openExpected(l, d, at, base, flags)
	if err != nil {
		return opened{}, err
	}
	if writes {
		err = t.beginWriting(ctx, l, d, base, info.ID(), lock)
	}
	if err != nil {
		h.Close()
		return opened{}, err
	}
	id := info.ID()
	if flags&unix.O_TRUNC != 0 {
		if err = t.truncate(ctx, l, &h, relIn(d, dir, base)); err == nil {
			info, err = beneath.Stat(l, h.FD())
		}
		if err != nil {
			h.Close()
			t.claims.EndWriting(id)
			return opened{}, err
		}
	}
	f := newFile(t, l, h, At{Path: at.Path, ID: id}, c, flags, room)
	f.isWriter = writes
	l.Notes().Opened()
	return opened{f, info}, nil
}

// beginWriting counts a descriptor that was opened for writing by a name. If the name leads to
// another file by now, or to none, the error is ESTALE. locked says that the caller has locked
// the name.
func (t *Tree) beginWriting(ctx context.Context, l *guard.Lease, d beneath.Dir, base string, id rules.Identity, locked bool) error {
	if !locked {
		// A replacement may be under way that resolved the name before this file got the name,
		// and so does not know this opener. The replacement holds the name's lock. So take that
		// lock before counting as a writer: otherwise this opener would wait for the
		// replacement, and the replacement for this writer.
		unlock, err := t.claims.LockIfContended(ctx, l, d, base)
		if err != nil {
			return err
		}
		defer unlock()
	}
	if err := t.claims.BeginWriting(ctx, l, id); err != nil {
		return err
	}
	now, err := beneath.StatIn(d, base)
	if err == nil && now.ID() != id || err == unix.ENOENT { //nolint:errorlint // bare errno
		err = unix.ESTALE
	}
	if err != nil {
		t.claims.EndWriting(id)
	}
	return err
}

// truncate does O_TRUNC on an open file. Before that, the trash keeps a copy of the file.
func (t *Tree) truncate(ctx context.Context, l *guard.Lease, h *beneath.Handle, rel string) error {
	if err := t.trash.KeepEmptied(ctx, l, h.FD(), rel); err != nil {
		return err
	}
	w, err := h.Change(l)
	if err != nil {
		return err
	}
	return beneath.Truncate(l, w, 0)
}

// openExpected opens the file with the name base in d, and checks that it is the file at.ID.
func openExpected(l *guard.Lease, d beneath.Dir, at At, base string, flags int) (h beneath.Handle, info Info, err error) {
	if flags&unix.O_TRUNC != 0 {
		h, info, err = beneath.OpenToEmpty(l, d, base, flags&sourceFlags, at.ID)
	} else {
		h, info, err = beneath.OpenFile(l, d, base, flags&sourceFlags)
	}
	if err == nil {
		err = h.KeepOrClose()
	}
	if err != nil {
		if info, serr := beneath.StatIn(d, base); serr == nil && walk.Visible(l, &info) != nil {
			err = &guard.Error{Kind: names.Hidden}
		}
		return h, Info{}, at.stale(err)
	}
	if at.ID != anyFile && info.ID() != at.ID {
		h.Close()
		return h, Info{}, unix.ESTALE
	}
	return h, info, nil
}

// ReopenOptions has the options of Reopen.
type ReopenOptions struct {
	Quiet bool // leaves no record: the new File serves an operation, not a program
	// Read allows a file that has a name (see At.Nameless) to be opened for reading. It is for
	// a front end that does not learn when a program opens a file, and so cannot distinguish a
	// new open from the use of an old one.
	Read bool
}

// Reopen opens the file once more, without using its name. Unless how says otherwise, the file
// must have lost its last name; else the error is ESTALE. A file that was replaced through this
// Tree cannot be reopened for writing (ESTALE), because nobody could find the written data again.
func (f *File) Reopen(ctx context.Context, c guard.Caller, flags int, how ReopenOptions) (*File, error) {
	quiet := how.Quiet
	req := guard.Request{Caller: c, Op: names.OpOpen, Need: openNeed(flags), Quiet: quiet, OpensForWriting: writesTo(flags)}
	o, err := onFileDrop(ctx, f, req, nil, dropOpened, func(l *guard.Lease, fd int) (opened, int64, error) {
		room, err := f.t.shares.reserve(c)
		if err != nil {
			return opened{}, 0, err
		}
		defer room.release()
		writes := !quiet && flags&unix.O_ACCMODE != unix.O_RDONLY
		if !quiet && (writes || !how.Read) {
			info, err := f.h.Stat(l)
			if err == nil {
				err = requireNameless(&info)
			}
			if err != nil {
				return opened{}, 0, err
			}
		}
		if writes {
			if err := f.t.claims.ResumeWriting(ctx, l, f.at.ID); err != nil {
				return opened{}, 0, err
			}
		}
		// sourceFlags has no O_TRUNC: truncate empties the file, after the trash has kept a copy.
		again, err := f.h.Reopen(l, flags&sourceFlags)
		if err == nil {
			err = again.KeepOrClose()
		}
		if err == nil && flags&unix.O_TRUNC != 0 {
			if err = f.t.truncate(ctx, l, &again, f.at.Path.Rel()); err != nil {
				again.Close()
			}
		}
		if err != nil {
			if writes {
				f.t.claims.EndWriting(f.at.ID)
			}
			return opened{}, 0, err
		}
		o := opened{newFile(f.t, l, again, f.at, c, flags, room), Info{}}
		o.f.quiet, o.f.isWriter = quiet, writes
		if !quiet {
			l.Notes().Opened()
		}
		return o, 0, nil
	})
	return o.f, err
}

type opened struct {
	f    *File
	info Info
}

// gateOpen passes f, an operation that opens a file, through the gate.
func (t *Tree) gateOpen(ctx context.Context, req guard.Request, f func(l *guard.Lease) (opened, error)) (*File, Info, error) {
	o, err := gate.Do(ctx, t.reg, req, dropOpened, func(l *guard.Lease) (opened, int64, error) {
		o, err := f(l)
		return o, 0, err
	})
	return o.f, o.info, err
}

// gateOpenOne is gateOpen for an f that opens one file, which is counted in the caller's
// share of open files.
func (t *Tree) gateOpenOne(ctx context.Context, req guard.Request, f func(l *guard.Lease, room *slot) (opened, error)) (*File, Info, error) {
	return t.gateOpen(ctx, req, func(l *guard.Lease) (opened, error) {
		room, err := t.shares.reserve(req.Caller)
		if err != nil {
			return opened{}, err
		}
		defer room.release()
		return f(l, room)
	})
}

// dropOpened closes a file that its opener does not get, because the opening failed later
// or was answered early.
func dropOpened(o opened) {
	if o.f != nil {
		o.f.quiet = true
		o.f.Close()
	}
}
