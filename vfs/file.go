package vfs

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// File is an open regular file, or a reference to a file of any type (see Ref). Every operation
// on it passes the gate with the lifetime of the root it was opened under: when that root ends,
// the File is dead for good.
type File struct {
	t      *Tree
	h      beneath.Handle
	users  atomic.Int64 // operations using h, plus one for being open
	hold   atomic.Pointer[guard.Hold]
	at     At
	caller guard.Caller
	flags  int
	read   atomic.Int64
	wrote  atomic.Int64
	quiet  bool // no record of the close
	ref    bool // a reference (O_PATH), not an open file
	// created: opening the file created it. noOverwriting: existing data cannot be overwritten
	// through this File, see NoOverwriting.
	created, noOverwriting bool
	// lastCheck is when the file's name was judged last, see Tree.startTime. lastPath is the
	// latest path that allowed every access to the file; nil: there was none.
	lastCheck atomic.Int64
	lastPath  atomic.Pointer[string]
	// alias is the name that otherName found last. lastMiss is the time of the last call of
	// otherName that found no name.
	alias    atomic.Pointer[string]
	lastMiss atomic.Int64
	// isWriter: Tree.claims counts the file as open for writing until it is closed.
	// onlyWhileUsed: Tree.claims counts the file as open for writing only during operations.
	isWriter, onlyWhileUsed bool
	dir                     *beneath.Names // the names of a directory, nil for any other file
	closeReserve            int64          // bytes that the audit log reserves for the record of the close
	room                    *slot          // the file's descriptor in the share of the user who opened it
}

func newFile(t *Tree, l *guard.Lease, h beneath.Handle, at At, c guard.Caller, flags int, room *slot) *File {
	f := &File{t: t, h: h, at: at, caller: c, flags: flags}
	f.users.Store(1)
	f.closeReserve = l.TakeClosing()
	room.assign()
	f.room = room
	f.hold.Store(l.HoldAt(at.Path))
	f.lastCheck.Store(t.startTime(l))
	f.noOverwriting = f.Writable() && l.Narrowest()&guard.Write == 0
	return f
}

// Ref opens a reference to the file at a place. The file may have any type. The returned File
// works with Stat, Setattr, Link, Reopen and the calls for extended attributes, even after the
// file has lost its name.
func (t *Tree) Ref(ctx context.Context, c guard.Caller, at At) (*File, error) {
	req := at.request(c, names.OpGetattr, at.Path)
	f, _, err := t.gateOpenOne(ctx, req, func(l *guard.Lease, room *slot) (opened, error) {
		d, info, err := nodeAt(l, at, l.Judge().Access())
		if err != nil {
			return opened{}, err
		}
		h, err := beneath.Keep(d)
		if err != nil {
			return opened{}, err
		}
		f := newFile(t, l, h, At{Path: at.Path, ID: info.ID()}, c, unix.O_RDONLY, room)
		f.quiet, f.ref = true, true
		return opened{f, info}, nil
	})
	return f, err
}

// keepBeforeRemoval passes a reference to dir.Removed.Keep, as At.Removed asks. It returns the
// attributes of the file, or nil if it kept no file. A file that the caller may not see is not
// kept. A failure to keep the file does not prevent the removal.
func (t *Tree) keepBeforeRemoval(l *guard.Lease, c guard.Caller, dir At, d beneath.Dir, name string) *Info {
	if dir.Removed == nil {
		return nil
	}
	p, err := dir.Path.Join(name)
	if err != nil {
		return nil
	}
	room, err := t.shares.reserve(c)
	if err != nil {
		return nil
	}
	defer room.release()
	h, info, err := beneath.Reference(l, d, name)
	if err != nil {
		return nil
	}
	if info.ID() != dir.Removed.ID || walk.Visible(l, &info) != nil {
		h.Close()
		return nil
	}
	f := newFile(t, l, h, At{Path: p, ID: info.ID()}, c, unix.O_RDONLY, room)
	f.quiet, f.ref = true, true
	dir.Removed.Keep(f)
	return &info
}

// CountOnlyWhileUsed is for a front end that does not learn when programs open and close the
// file, only when they read and write (mount level Max). Between operations the file does not
// count as open for writing. After it has been replaced, it takes no more writes (ESTALE).
// Then stores through a mapping that the kernel has not written back yet are refused, too:
// msync(2) and fsync(2) report that. CountOnlyWhileUsed must be called before the file is used.
func (f *File) CountOnlyWhileUsed() {
	f.onlyWhileUsed = f.Writable()
	if f.isWriter {
		f.isWriter = false
		f.t.claims.EndWriting(f.at.ID)
	}
}

// countWhileUsed counts a file as open for writing while an operation changes it, if
// CountOnlyWhileUsed was called.
func (f *File) countWhileUsed(ctx context.Context, l *guard.Lease) (done func(), err error) {
	if !f.onlyWhileUsed {
		return func() {}, nil
	}
	if err := f.t.claims.ResumeWriting(ctx, l, f.at.ID); err != nil {
		return nil, err
	}
	return func() { f.t.claims.EndWriting(f.at.ID) }, nil
}

// Path returns the path at which the file was opened, ID the identity of the file.
func (f *File) Path() guard.Path   { return f.at.Path }
func (f *File) ID() rules.Identity { return f.at.ID }

// Readable and Writable report how the file was opened, Appending whether O_APPEND was among
// the flags.
func (f *File) Readable() bool  { return f.flags&unix.O_ACCMODE != unix.O_WRONLY }
func (f *File) Writable() bool  { return f.flags&unix.O_ACCMODE != unix.O_RDONLY }
func (f *File) Appending() bool { return f.flags&unix.O_APPEND != 0 }

// NoOverwriting reports whether the file was opened for writing without the right to overwrite:
// for appending, or with a right to create files but not to write them. A front end must not
// cache pages of such a file: a store to a page would be refused only when the page is written
// back, and readers would see the store meanwhile.
func (f *File) NoOverwriting() bool { return f.noOverwriting }

// epoch returns the lifetime of the root under which the file was opened.
func (f *File) epoch() uint64 { _, e := f.hold.Load().Root(); return e }

// Dead returns a channel that is closed when the root under which the file was opened ends.
func (f *File) Dead() <-chan struct{} { return f.hold.Load().Dead() }

// enter counts an operation that uses the descriptor. The descriptor stays open until leave,
// even after Close.
func (f *File) enter() (int, error) {
	for {
		n := f.users.Load()
		if n <= 0 {
			return -1, unix.EBADF
		}
		if f.users.CompareAndSwap(n, n+1) {
			return f.h.FD(), nil
		}
	}
}

// changeable returns a descriptor through which the file may be changed. In a staged root it copies
// the file up first. The caller has called enter.
func (f *File) changeable(l *guard.Lease) (beneath.Changeable, error) { return f.h.Change(l) }

// leave ends the use that enter began. The last user closes the descriptor.
func (f *File) leave() {
	if f.users.Add(-1) == 0 {
		f.h.Close()
		if f.dir != nil {
			f.dir.Close()
		}
		f.room.free()
		if f.isWriter {
			f.t.claims.EndWriting(f.at.ID)
		}
	}
}

// Retain keeps the file open past its Close, until Unretain; false means it is
// closed already.
func (f *File) Retain() bool {
	_, err := f.enter()
	return err == nil
}

// Unretain ends a Retain.
func (f *File) Unretain() { f.leave() }

// Close closes the file and records how many bytes passed through it. It does not wait.
func (f *File) Close() {
	f.leave()
	if f.quiet {
		f.t.reg.GiveBack(f.closeReserve)
		return
	}
	f.t.reg.Closed(f.hold.Load(), f.caller, f.at.Path, f.read.Load(), f.wrote.Load(), "", f.closeReserve)
}

// onFile passes an operation on an open file through the gate. g returns its result and the
// number of bytes that it moved, as for gate.Do.
func onFile[T any](ctx context.Context, f *File, req guard.Request, g func(l *guard.Lease, fd int) (T, int64, error)) (T, error) {
	return onFileDrop(ctx, f, req, nil, nil, g)
}

// onFileDrop is onFile with the further arguments of gate.DoPrepared.
func onFileDrop[T any](ctx context.Context, f *File, req guard.Request, prepare func() (release func()), drop func(T), g func(l *guard.Lease, fd int) (T, int64, error)) (T, error) {
	if req.Path.Root == "" {
		req.Path = f.at.Path
	}
	return retry(&req, func() (T, error) {
		req.Held = f.hold.Load()
		return onFileOnce(ctx, f, req, prepare, drop, g)
	}, func() error { return f.judgePlaceAgain(ctx, req) })
}

// onFileOnce is onFileDrop with the hold that req.Held names, and does not try again.
func onFileOnce[T any](ctx context.Context, f *File, req guard.Request, prepare func() (release func()), drop func(T), g func(l *guard.Lease, fd int) (T, int64, error)) (zero T, err error) {
	if _, err := f.enter(); err != nil {
		return zero, &guard.Error{Op: req.Op, Path: f.at.Path, Kind: names.IO, Err: err}
	}
	defer f.leave()
	return gate.DoPrepared(ctx, f.t.reg, req, prepare, drop, func(l *guard.Lease) (T, int64, error) {
		if l.Source().Remote() {
			// The goroutine may outlive this call: it keeps the descriptor.
			if _, err := f.enter(); err != nil {
				return zero, 0, err
			}
			defer f.leave()
		}
		if err := f.judgeNow(l, f.h.FD(), l.Judge().Access()); err != nil {
			return zero, 0, err
		}
		return g(l, f.h.FD())
	})
}

// retry runs try, which puts req to the gate with the hold of an open file. If nested
// roots or patterns have changed since the hold was made, it calls judgePlaceAgain and
// tries again. After four tries the error is Conflict.
func retry[T any](req *guard.Request, try func() (T, error), judgePlaceAgain func() error) (v T, err error) {
	for range 4 {
		if v, err = try(); !errors.Is(err, guard.ErrJudgeAgain) {
			return v, err
		}
		if err := judgePlaceAgain(); err != nil {
			return v, err
		}
	}
	return v, &guard.Error{Op: req.Op, Path: req.Path, Kind: names.Conflict}
}

// refreshHold judges the file's place again if its hold is stale.
func (f *File) refreshHold(ctx context.Context, c guard.Caller) error {
	if !f.hold.Load().Stale() {
		return nil
	}
	return f.judgePlaceAgain(ctx, guard.Request{Caller: c, Path: f.at.Path})
}

// judgePlaceAgain judges the file's place again after roots inside its root were granted or
// revoked, or the patterns changed: it walks to the file again and enters each nested root that
// the path leads through. If the file is not found at its place, the operation fails with
// Revoked, because the root in which the file lies is not known.
func (f *File) judgePlaceAgain(ctx context.Context, req guard.Request) error {
	look := guard.Request{Caller: req.Caller, Op: names.OpLookup, Path: req.Path}
	hold, err := gate.Do(ctx, f.t.reg, look, nil, func(l *guard.Lease) (*guard.Hold, int64, error) {
		if l.Epoch() != f.epoch() {
			return nil, 0, &guard.Error{Kind: names.Revoked}
		}
		d, err := beneath.Node(l, req.Path, l.Judge().Access())
		if errors.Is(err, names.Hidden) {
			return nil, 0, err
		}
		if err != nil {
			return nil, 0, &guard.Error{Kind: names.Revoked}
		}
		defer d.Close()
		info, err := d.Stat(l)
		if err != nil || info.ID() != f.at.ID {
			return nil, 0, &guard.Error{Kind: names.Revoked}
		}
		return l.HoldAt(req.Path), 0, nil
	})
	if err != nil {
		return err
	}
	f.hold.Store(hold)
	return nil
}
