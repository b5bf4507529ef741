package vfs

import (
	"bytes"
	"context"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Operations on whole files and paths, as peers ask for them that have neither
// descriptors nor a kernel to follow links. Each passes the gate once. Paths are
// as the peer gave them; links in them are followed (see Follow).

type found struct {
	info Info
	path guard.Path
}

// Stat describes what a path leads to, and tells that path, without links.
func (t *Tree) Stat(ctx context.Context, c guard.Caller, p guard.Path) (Info, guard.Path, error) {
	req := guard.Request{Caller: c, Op: names.OpGetattr, Path: p}
	f, err := do(ctx, t, req, nil, func(l *guard.Lease) (found, int64, error) {
		f, err := followed(ctx, l, p, true, func(q guard.Path) (found, error) {
			d, info, err := target(l, q)
			if err == nil {
				d.Close()
			}
			return found{info, q}, err
		})
		return f, 0, err
	})
	return f.info, f.path, err
}

// target resolves what lies at a path; a link is ELOOP.
func target(l *guard.Lease, q guard.Path) (beneath.Dir, Info, error) {
	d, info, err := nodeAt(l, At{Path: q})
	if err == nil && info.Type() == unix.S_IFLNK {
		d.Close()
		err = unix.ELOOP
	}
	return d, info, err
}

// openTarget opens the regular file a path without links leads to, for reading.
// Nothing else is ever opened: what the reference is of has been looked at.
func openTarget(l *guard.Lease, q guard.Path) (fd int, info Info, domain uint64, err error) {
	d, info, err := target(l, q)
	if err != nil {
		return -1, info, 0, err
	}
	defer d.Close()
	switch {
	case info.IsDir():
		return -1, info, 0, unix.EISDIR
	case !info.IsRegular():
		return -1, info, 0, &guard.Error{Kind: names.Invalid, Err: unix.ENXIO}
	}
	fd, err = beneath.Reopen(d.FD, unix.O_RDONLY)
	return fd, info, d.Domain, err
}

// readTries is how often ReadRange begins again when the file changes under it.
const readTries = 3

type chunk struct {
	n    int
	info Info
	data []byte
}

// ReadRange reads into buf from off, and describes the file as it was meanwhile:
// fewer bytes than asked for mean the end, and a file that is changed in place
// during the reading is read again, so that no chunk is a mixture; if it keeps
// changing, or is not in the state ifMatch names (unless ""), it is a Conflict.
// What stat(2) cannot tell apart, the reading cannot: one write(2) that is in the
// middle of its bytes the whole time, or times the file system keeps too coarse. Of
// a file that is open for writing through this Tree, or in the middle of a
// WriteRange, the attributes say so (Info.Writing), and their etag is good for
// reading on, but for no replacement.
// Only regular files are read; others are refused at once, unopened.
func (t *Tree) ReadRange(ctx context.Context, c guard.Caller, p guard.Path, off int64, buf []byte, ifMatch string) (int, Info, error) {
	got, err := t.readChunk(ctx, c, p, off, int64(len(buf)), ifMatch, func(l *guard.Lease, _ int64) ([]byte, error) {
		if l.Remote() {
			return make([]byte, len(buf)), nil // a call answered early must not write into the caller's buffer
		}
		return buf, nil
	})
	if err == nil && got.n > 0 && &got.data[0] != &buf[0] {
		copy(buf, got.data[:got.n])
	}
	return got.n, got.info, err
}

// ReadChunk is ReadRange of at most length bytes into memory that room gives, no
// more of it than the file has (but for small files). An error of room ends the
// reading. The memory is the caller's again when the reading has succeeded; after an
// error it may still be written to.
func (t *Tree) ReadChunk(ctx context.Context, c guard.Caller, p guard.Path, off, length int64, ifMatch string, room func(n int64) ([]byte, error)) ([]byte, Info, error) {
	got, err := t.readChunk(ctx, c, p, off, length, ifMatch, func(_ *guard.Lease, left int64) ([]byte, error) {
		// Some file systems say 0 for files they make up as they are read.
		return room(min(length, max(left, 4096)))
	})
	return got.data[:got.n], got.info, err
}

func (t *Tree) readChunk(ctx context.Context, c guard.Caller, p guard.Path, off, length int64, ifMatch string,
	room func(l *guard.Lease, left int64) ([]byte, error),
) (chunk, error) {
	if off < 0 || length < 0 {
		return chunk{}, &guard.Error{Op: names.OpOpen, Path: p, Kind: names.Invalid}
	}
	// OpOpen, for the record: one open with the bytes read.
	req := guard.Request{Caller: c, Op: names.OpOpen, Path: p, Need: guard.Read, Bytes: length}
	return do(ctx, t, req, nil, func(l *guard.Lease) (chunk, int64, error) {
		ck, err := followed(ctx, l, p, true, func(q guard.Path) (chunk, error) {
			fd, info, _, err := openTarget(l, q)
			if err != nil {
				return chunk{}, err
			}
			defer beneath.Close(fd)
			buf, err := room(l, max(0, info.Size-off))
			if err != nil {
				return chunk{}, err
			}
			return t.readState(fd, off, buf, ifMatch)
		})
		return ck, int64(ck.n), err
	})
}

func (t *Tree) readState(fd int, off int64, buf []byte, ifMatch string) (chunk, error) {
	before, err := beneath.Stat(fd)
	for range readTries {
		// After the times and before the bytes: a writer that has closed the
		// file by now had written all that the times tell of.
		before.Writing = err == nil && t.writers.writing(before.ID())
		if err == nil && ifMatch != "" && ifMatch != ETag(&before) {
			err = &guard.Error{Kind: names.Conflict}
		}
		if err != nil {
			return chunk{}, err
		}
		n, err := beneath.Pread(fd, buf, off)
		if err != nil {
			return chunk{}, err
		}
		after, err := beneath.Stat(fd)
		if err != nil {
			return chunk{}, err
		}
		if sameState(&before, &after) {
			after.Writing = before.Writing
			return chunk{n, after, buf}, nil
		}
		before = after
	}
	return chunk{}, &guard.Error{Kind: names.Conflict}
}

// WriteHow says where and on what condition WriteRange writes.
type WriteHow struct {
	Off        int64 // ignored with Append
	Append     bool  // at the end, wherever that is; takes the right to append only
	Truncate   bool  // the file ends after what was written
	Create     bool  // make the file if it is not there
	CreateOnly bool  // make it; if it is there, refuse
	ETag       string
	Mode       uint32 // of a new file
	// RespectLocks is that of IfMatch; the lock of flock(2) is held while
	// writing.
	RespectLocks bool
	// Room, unless nil, is asked with the size that the file has to have for
	// the data, which of an append only the file tells; an error of it refuses
	// the write.
	Room func(size int64) error
}

// access is as that of IfMatch.
func (h *WriteHow) access() guard.Access {
	if h.Create && h.ETag == "" {
		return guard.ToMake
	}
	return guard.ToChange
}

func (h *WriteHow) request(c guard.Caller, p guard.Path, n int) guard.Request {
	// OpReplace, for the record: one with the bytes written. It takes Write
	// or Create, which a root for appending only has not.
	req := guard.Request{Caller: c, Op: names.OpReplace, Path: p, Need: guard.Write, Bytes: int64(n), Size: h.Off + int64(n)}
	if h.Create {
		req.Need = 0 // to make a file takes Create; existing looks at the rest
	}
	if h.Append {
		req.Op, req.Need, req.Size = names.OpWrite, guard.Append, 0
	}
	if h.Create {
		req.Names = 1
	}
	if h.CreateOnly {
		req.Need |= guard.Create
	}
	return req
}

type written struct {
	path  guard.Path // without links
	info  Info
	quiet bool // the gate leaves no record
	hold  *guard.Hold
}

// WriteRange writes data into a file in place, excluding Replace, uploads and
// other calls of its kind on the same name; what readers see meanwhile is for
// the source's kernel to say. It returns how many bytes were written, also when
// it fails midway (a full disk), and the file's attributes afterwards.
func (t *Tree) WriteRange(ctx context.Context, c guard.Caller, p guard.Path, data []byte, how WriteHow) (int, Info, error) {
	if how.Off < 0 && !how.Append || how.Off+int64(len(data)) < how.Off {
		return 0, Info{}, &guard.Error{Op: names.OpWrite, Path: p, Kind: names.Invalid, Err: unix.EINVAL}
	}
	how.Create = how.Create || how.CreateOnly
	req := how.request(c, p, len(data))
	var wrote atomic.Int64 // also of a failure, which has no result
	w, err := do(ctx, t, req, nil, func(l *guard.Lease) (written, int64, error) {
		src := data
		if l.Remote() {
			src = bytes.Clone(data)
		}
		w, err := followed(ctx, l, p, true, func(q guard.Path) (written, error) {
			o := overwriting{t: t, ctx: ctx, l: l, c: c, how: how, path: q, wrote: &wrote}
			w, err := o.run(src)
			w.path = q
			return w, err
		})
		w.hold = l.Hold()
		return w, wrote.Load(), err
	})
	n := wrote.Load()
	if err == nil && (w.quiet || req.Op == names.OpWrite) {
		t.recordWrite(w.hold, c, p, w.path, n)
	}
	return int(n), w.info, err
}

// overwriting is one run of WriteRange.
type overwriting struct {
	t     *Tree
	ctx   context.Context
	l     *guard.Lease
	c     guard.Caller
	how   WriteHow
	path  guard.Path
	wrote *atomic.Int64
}

func (o *overwriting) run(data []byte) (written, error) {
	release, err := o.l.Making(o.ctx)
	if err != nil {
		return written{}, err
	}
	defer release()
	d, base, err := beneath.ParentFor(o.l, o.path, o.how.access())
	if err != nil {
		return written{}, err
	}
	defer d.Close()
	key, err := keyOf(d, base)
	if err != nil {
		return written{}, err
	}
	unlock, err := o.t.locks.lock(o.ctx, o.l, key)
	if err != nil {
		return written{}, err
	}
	defer unlock()
	fd, made, err := o.open(d, base)
	if err != nil {
		return written{}, err
	}
	defer beneath.Close(fd)
	id, since, err := o.t.writers.begin(o.ctx, o.l, fd)
	if err != nil {
		return written{}, err
	}
	defer o.t.writers.end(id)
	err = o.write(fd, data)
	o.t.grew(o.l, fd, id)
	if err != nil && made && o.wrote.Load() == 0 && o.t.writers.alone(id, since) {
		takeBack(d, base, id)
	}
	if err != nil {
		return written{}, err
	}
	quiet := !made && o.how.Create // what reserved no name has nothing to give back
	if quiet {
		o.l.NotMade()
	}
	info, err := beneath.Stat(fd)
	info.Writing = !o.t.writers.alone(id, since) // others may have written before the times were read
	if err == nil && made {
		dir, _ := o.path.Split()
		o.l.Made(info.ID())
		o.l.MadeName(d.Rel(dir.Rel()), base, info.ID(), false)
	}
	return written{info: info, quiet: quiet}, err
}

// takeBack removes a file that was made for what then was not written, unless
// another has its name by now, or somebody else has written to it.
func takeBack(d beneath.Dir, base string, made guard.Identity) {
	if now, err := beneath.StatIn(d, base); err == nil && now.ID() == made && now.Size == 0 {
		_ = beneath.Unlink(d, base)
	}
}

// open opens the file to be written, or makes it.
func (o *overwriting) open(d beneath.Dir, base string) (fd int, made bool, err error) {
	for range maxExchanges {
		fd, err = o.existing(d, base)
		if err != unix.ENOENT || !o.how.Create { //nolint:errorlint // bare errno
			return fd, false, err
		}
		if o.how.ETag != "" {
			return -1, false, unix.ENOENT
		}
		if o.l.Narrowest()&guard.Create == 0 {
			return -1, false, o.l.Denied(guard.Create)
		}
		mode := umasked(o.c, d, safeMode(o.l, o.how.Mode&0o777))
		fd, _, err = beneath.CreateFile(d, base, unix.O_WRONLY, mode, owner(o.c))
		if err != unix.EEXIST || o.how.CreateOnly { //nolint:errorlint // bare errno
			return fd, true, err
		}
		// Made by somebody else between the two calls.
	}
	return -1, false, &guard.Error{Kind: names.Conflict}
}

func (o *overwriting) existing(d beneath.Dir, base string) (int, error) {
	info, err := beneath.StatIn(d, base)
	if err != nil {
		return -1, err
	}
	if o.how.CreateOnly {
		return -1, unix.EEXIST
	}
	if err := visible(o.l, &info); err != nil {
		return -1, err
	}
	if o.l.Narrowest()&guard.Write == 0 && !o.how.Append {
		return -1, o.l.Denied(guard.Write)
	}
	fd, info, err := beneath.OpenFile(d, base, unix.O_WRONLY)
	if err != nil {
		return -1, err
	}
	if o.how.ETag != "" && o.how.ETag != ETag(&info) {
		err = &guard.Error{Kind: names.Conflict}
	}
	if err == nil && o.how.RespectLocks {
		err = claim(fd)
	}
	if err == nil {
		err = killPrivFor(o.c, fd)
	}
	if err == nil && o.how.Truncate && o.how.Off == 0 && !o.how.Append {
		dir, _ := o.path.Split()
		err = o.t.keepEmptied(o.ctx, o.l, fd, relIn(d, dir, base)) // all of it is replaced
	}
	if err != nil {
		beneath.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (o *overwriting) write(fd int, data []byte) error {
	n := int64(len(data))
	switch {
	case o.how.Append:
		unlock, err := o.t.growing(o.ctx, o.l, fd, n, o.how.Room)
		if err != nil {
			return err
		}
		defer unlock()
	case o.how.Room != nil:
		if err := o.how.Room(o.how.Off + n); err != nil {
			return err
		}
	}
	w, err := beneath.Pwritev(fd, [][]byte{data}, o.how.Off, o.how.Append)
	o.wrote.Store(int64(w))
	if err == nil && o.how.Truncate && !o.how.Append {
		err = beneath.Truncate(fd, o.how.Off+int64(w))
	}
	return err
}
