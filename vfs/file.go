package vfs

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// File is an open regular file. Every operation on it passes the gate with the
// lifetime of the root it was opened under: when that root ends, the file is
// dead for good.
type File struct {
	t      *Tree
	fd     int
	users  atomic.Int64 // operations using fd, plus one for being open
	hold   atomic.Pointer[guard.Hold]
	at     At
	caller guard.Caller
	flags  int
	read   atomic.Int64
	wrote  atomic.Int64
	quiet  bool // no record of the close
	ref    bool // a reference (O_PATH), not an open file
	made   bool // the file was made when it was opened
	ahead  bool // what is there cannot be overwritten through it, see NoOverwriting
}

func newFile(t *Tree, l *guard.Lease, fd int, at At, c guard.Caller, flags int) *File {
	f := &File{t: t, fd: fd, at: at, caller: c, flags: flags}
	f.users.Store(1)
	f.hold.Store(l.HoldAt(at.Path))
	f.ahead = f.Writable() && l.Narrowest()&guard.Write == 0
	return f
}

// Ref takes a reference to whatever lies at a place: a File that answers Stat,
// Setattr, attributes, Link and Reopen, also after the file has lost its name.
func (t *Tree) Ref(ctx context.Context, c guard.Caller, at At) (*File, error) {
	req := at.request(c, names.OpGetattr, at.Path)
	o, err := do(ctx, t, req, dropOpened, func(l *guard.Lease) (opened, int64, error) {
		d, info, err := nodeAt(l, at)
		if err != nil {
			return opened{}, 0, err
		}
		fd, err := beneath.Keep(d)
		if err != nil {
			return opened{}, 0, err
		}
		f := newFile(t, l, fd, At{Path: at.Path, ID: info.ID()}, c, unix.O_RDONLY)
		f.quiet, f.ref = true, true
		return opened{f, info}, 0, nil
	})
	return o.f, err
}

// Path is where the file was opened, ID its identity.
func (f *File) Path() guard.Path   { return f.at.Path }
func (f *File) ID() guard.Identity { return f.at.ID }

// Readable and Writable tell how it was opened, Appending whether O_APPEND was
// among the flags.
func (f *File) Readable() bool  { return f.flags&unix.O_ACCMODE != unix.O_WRONLY }
func (f *File) Writable() bool  { return f.flags&unix.O_ACCMODE != unix.O_RDONLY }
func (f *File) Appending() bool { return f.flags&unix.O_APPEND != 0 }

// NoOverwriting tells that the file was opened for writing without the right to
// write anywhere in it: for appending, or because it was made just then. A front
// end must not keep pages of such a file: a store to one would be refused only
// when it is written back, and readers would see it meanwhile.
func (f *File) NoOverwriting() bool { return f.ahead }

// Epoch is the lifetime of the root it was opened under.
func (f *File) Epoch() uint64 { _, e := f.hold.Load().Root(); return e }

// Dead is closed when that root ends.
func (f *File) Dead() <-chan struct{} { return f.hold.Load().Dead() }

// enter takes part in the descriptor, so that Close waits for an operation that
// was answered early.
func (f *File) enter() (int, error) {
	for {
		n := f.users.Load()
		if n <= 0 {
			return -1, unix.EBADF
		}
		if f.users.CompareAndSwap(n, n+1) {
			return f.fd, nil
		}
	}
}

func (f *File) leave() {
	if f.users.Add(-1) == 0 {
		beneath.Close(f.fd)
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

// Close ends the file and records what passed through it. It does not wait.
func (f *File) Close() {
	f.leave()
	if !f.quiet {
		f.t.reg.Closed(f.hold.Load(), f.caller, f.at.Path, f.read.Load(), f.wrote.Load())
	}
}

// onFile passes an operation on an open file through the gate.
func onFile[T any](ctx context.Context, f *File, req guard.Request, g func(l *guard.Lease, fd int) (T, int64, error)) (T, error) {
	return onFileDrop(ctx, f, req, nil, g)
}

func onFileDrop[T any](ctx context.Context, f *File, req guard.Request, drop func(T), g func(l *guard.Lease, fd int) (T, int64, error)) (T, error) {
	var zero T
	if _, err := f.enter(); err != nil {
		return zero, &guard.Error{Op: req.Op, Path: f.at.Path, Kind: names.IO, Err: err}
	}
	defer f.leave()
	if req.Path.Root == "" {
		req.Path = f.at.Path
	}
	for range 4 {
		req.Held = f.hold.Load()
		v, err := do(ctx, f.t, req, drop, func(l *guard.Lease) (T, int64, error) {
			if l.Remote() {
				// The goroutine may outlive this call: it keeps the descriptor.
				if _, err := f.enter(); err != nil {
					return zero, 0, err
				}
				defer f.leave()
			}
			return g(l, f.fd)
		})
		if !errors.Is(err, guard.ErrRefence) {
			return v, err
		}
		if err := f.refence(ctx, req); err != nil {
			return zero, err
		}
	}
	return zero, &guard.Error{Op: req.Op, Path: req.Path, Kind: names.Conflict}
}

// fresh judges the file's place anew if it has to be.
func (f *File) fresh(ctx context.Context, c guard.Caller) error {
	if !f.hold.Load().Stale() {
		return nil
	}
	return f.refence(ctx, guard.Request{Caller: c, Path: f.at.Path})
}

// refence judges the file's place anew after roots were nested in its root or
// revoked there, or the patterns changed: it walks to the file again, noticing the
// nested roots on the way. A file that is no longer found at its place is dead, because nobody can
// tell which side of a boundary it is on.
func (f *File) refence(ctx context.Context, req guard.Request) error {
	look := guard.Request{Caller: req.Caller, Op: names.OpLookup, Path: req.Path}
	hold, err := do(ctx, f.t, look, nil, func(l *guard.Lease) (*guard.Hold, int64, error) {
		if l.Epoch() != f.Epoch() {
			return nil, 0, &guard.Error{Kind: names.Revoked}
		}
		d, err := beneath.Node(l, req.Path)
		if errors.Is(err, names.Hidden) {
			return nil, 0, err
		}
		if err != nil {
			return nil, 0, &guard.Error{Kind: names.Revoked}
		}
		defer d.Close()
		info, err := beneath.Stat(d.FD)
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

// openNeed is what rights open flags take.
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

// writeNeed: a file opened for appending takes the right to append only.
func writeNeed(flags int) guard.Rights {
	if flags&unix.O_APPEND != 0 {
		return guard.Append
	}
	return guard.Write
}

// keptFlags are the flags of open(2) that reach the source. O_APPEND does not:
// the kernel may write back a mapped page through any descriptor, and that must
// not land at the end; File.Write appends by itself.
const keptFlags = unix.O_ACCMODE | unix.O_SYNC | unix.O_DSYNC | unix.O_NOATIME

// Open opens a regular file. Of the flags, access mode, O_APPEND, O_TRUNC,
// O_SYNC, O_DSYNC and O_NOATIME have a meaning.
func (t *Tree) Open(ctx context.Context, c guard.Caller, at At, flags int) (*File, Info, error) {
	req := guard.Request{Caller: c, Op: names.OpOpen, Path: at.Path, Epoch: at.Epoch, Need: openNeed(flags)}
	o, err := do(ctx, t, req, dropOpened, func(l *guard.Lease) (opened, int64, error) {
		dir, base := at.Path.Split()
		var d beneath.Dir
		var err error
		if at.Path.IsRoot() {
			if l.File() == "" {
				return opened{}, 0, unix.EISDIR
			}
			d, base, err = beneath.Parent(l, at.Path)
		} else {
			d, err = parentAt(l, At{Path: dir}, base)
		}
		if err != nil {
			return opened{}, 0, at.stale(err)
		}
		defer d.Close()
		fd, info, err := beneath.OpenFile(d, base, flags&keptFlags)
		if err == nil {
			err = beneath.Hold(fd)
		}
		if err != nil {
			if info, serr := beneath.StatIn(d, base); serr == nil && visible(l, &info) != nil {
				err = &guard.Error{Kind: names.Hidden}
			}
			return opened{}, 0, at.stale(err)
		}
		if at.ID != anyFile && info.ID() != at.ID {
			beneath.Close(fd)
			return opened{}, 0, unix.ESTALE
		}
		if flags&unix.O_TRUNC != 0 {
			if err := beneath.Truncate(fd, 0); err != nil {
				beneath.Close(fd)
				return opened{}, 0, err
			}
			if info, err = beneath.Stat(fd); err != nil {
				beneath.Close(fd)
				return opened{}, 0, err
			}
		}
		return opened{newFile(t, l, fd, At{Path: at.Path, ID: info.ID()}, c, flags), info}, 0, nil
	})
	return o.f, o.info, err
}

// Reopen opens a file once more through one that is open, whether or not it
// still has a name.
// quiet leaves no record: the new description serves an operation, not a program.
func (f *File) Reopen(ctx context.Context, c guard.Caller, flags int, quiet bool) (*File, error) {
	req := guard.Request{Caller: c, Op: names.OpOpen, Need: openNeed(flags), Quiet: quiet}
	o, err := onFileDrop(ctx, f, req, dropOpened, func(l *guard.Lease, fd int) (opened, int64, error) {
		// Not with O_TRUNC before it is known that the file can be kept.
		again, err := beneath.Reopen(fd, flags&keptFlags)
		if err == nil {
			err = beneath.Hold(again)
		}
		if err == nil && flags&unix.O_TRUNC != 0 {
			if err = beneath.Truncate(again, 0); err != nil {
				beneath.Close(again)
			}
		}
		if err != nil {
			return opened{}, 0, err
		}
		o := opened{newFile(f.t, l, again, f.at, c, flags), Info{}}
		o.f.quiet = quiet
		return o, 0, nil
	})
	return o.f, err
}

type opened struct {
	f    *File
	info Info
}

// dropOpened closes a file that was opened after its opener had been answered.
func dropOpened(o opened) {
	if o.f != nil {
		o.f.quiet = true
		o.f.Close()
	}
}

// Create makes a regular file and opens it; with O_EXCL absent from flags an
// existing one is opened instead (created is false).
func (t *Tree) Create(ctx context.Context, c guard.Caller, dir At, name string, flags int, mode uint32) (f *File, info Info, created bool, err error) {
	p, err := t.child(names.OpCreate, dir, name)
	if err != nil {
		return nil, Info{}, false, err
	}
	req := guard.Request{Caller: c, Op: names.OpCreate, Path: p, Epoch: dir.Epoch, Names: 1}
	for range 8 {
		o, err := do(ctx, t, req, dropOpened, func(l *guard.Lease) (opened, int64, error) {
			unlock, err := l.Making(ctx)
			if err != nil {
				return opened{}, 0, err
			}
			defer unlock()
			d, err := parentAt(l, dir, name)
			if err != nil {
				return opened{}, 0, err
			}
			defer d.Close()
			fd, info, err := beneath.CreateFile(d, name, flags&keptFlags, umasked(c, d, safeMode(l, mode&07777)), owner(c))
			if err != nil {
				if err == unix.EEXIST && flags&unix.O_EXCL == 0 { //nolint:errorlint // bare errno
					// Not a failure: the name is opened instead, and
					// that is what is recorded.
					l.NotMade()
					return opened{}, 0, nil
				}
				return opened{}, 0, err
			}
			// Before the hold, which is to know whose it is.
			l.MadeName(d.Rel(dir.Path.Rel()), name, info.ID(), false)
			return madeFile(t, l, fd, At{Path: p, ID: info.ID()}, c, flags, info), 0, nil
		})
		if err != nil {
			return nil, Info{}, false, err
		}
		if o.f != nil {
			return o.f, o.info, true, nil
		}
		f, info, err := t.Open(ctx, c, At{Path: p}, flags)
		if err == nil || names.Reason(err) != names.NotExist {
			return f, info, false, err
		}
		// Removed between the two calls: try to make it again.
	}
	return nil, Info{}, false, &guard.Error{Op: names.OpCreate, Path: p, Kind: names.Conflict, Err: unix.ESTALE}
}

// Tmpfile makes a file without a name in a directory (O_TMPFILE).
func (t *Tree) Tmpfile(ctx context.Context, c guard.Caller, dir At, flags int, mode uint32) (*File, Info, error) {
	req := guard.Request{Caller: c, Op: names.OpTmpfile, Path: dir.Path, Epoch: dir.Epoch, Names: 1}
	o, err := do(ctx, t, req, dropOpened, func(l *guard.Lease) (opened, int64, error) {
		d, err := dirAt(l, dir)
		if err != nil {
			return opened{}, 0, err
		}
		defer d.Close()
		if err := l.JudgeAs(guard.ToMake, d.Rel(dir.Path.Rel()), "", pattern.Other); err != nil {
			return opened{}, 0, err // nothing may be made there
		}
		fd, info, err := beneath.Tmpfile(d, flags&(keptFlags|unix.O_EXCL), umasked(c, d, safeMode(l, mode&07777)), owner(c))
		if err != nil {
			return opened{}, 0, err
		}
		o := madeFile(t, l, fd, At{Path: dir.Path, ID: info.ID()}, c, flags, info)
		o.f.hold.Store(l.HoldNameless()) // what is said of the directory is not said of the file
		return o, 0, nil
	})
	return o.f, o.info, err
}

// madeFile is the open file of one that the operation has made.
func madeFile(t *Tree, l *guard.Lease, fd int, at At, c guard.Caller, flags int, info Info) opened {
	l.Made(info.ID())
	f := newFile(t, l, fd, at, c, flags)
	f.made = true
	return opened{f, info}
}
