package vfs

import (
	"bytes"
	"context"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// WriteOptions says where and on what condition WriteRange writes.
type WriteOptions struct {
	Off        int64  // ignored with Append
	Append     bool   // write at the end of the file; the right to append is enough
	Truncate   bool   // cut the file off after the data; ignored with Append
	Create     bool   // create the file if it does not exist
	CreateOnly bool   // create the file, and refuse if it exists
	ETag       string // the state that the file must be in; "": any
	Mode       uint32 // of a new file
	// RespectLocks refuses as IfMatch.RespectLocks does. WriteRange then holds the lock of
	// flock(2) while it writes.
	RespectLocks bool
	// Room, unless nil, is called with the size that the file needs to hold the data. For an
	// append, that is its present size plus the data. If Room returns an error, the write is
	// refused.
	Room func(size int64) error
}

// access returns the kind of access that the write has to the name, as IfMatch.access does.
func (h *WriteOptions) access() rules.Access {
	if h.Create && h.ETag == "" {
		return rules.ToMake
	}
	return rules.ToChange
}

func (h *WriteOptions) request(c guard.Caller, p guard.Path, n int) guard.Request {
	// OpReplace, because its success leaves one record with the bytes written. It needs the
	// right Write or Create. An append is an OpWrite, because a root that allows only appends has
	// neither right.
	req := guard.Request{Caller: c, Op: names.OpReplace, Path: p, Need: guard.Write, Bytes: int64(n), Size: h.Off + int64(n)}
	if h.Create {
		req.Need = 0 // Create if the file is missing, Write if it exists: checkExisting decides
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

// writeResult is the result of a write.
type writeResult struct {
	path guard.Path // without links
	info Info
	// unrecorded says that the gate leaves no record, so WriteRange has to leave one.
	unrecorded bool
	hold       *guard.Hold
}

// WriteRange writes data into a file in place. Replace, uploads and other calls of
// WriteRange on the same name wait until it is done. Readers may see a part of the data
// meanwhile, as with any write. WriteRange returns how many bytes were written, also when
// it fails midway (a full disk), and the file's attributes afterwards.
func (t *Tree) WriteRange(ctx context.Context, c guard.Caller, p guard.Path, data []byte, how WriteOptions) (int, Info, error) {
	if how.Off < 0 && !how.Append || how.Off+int64(len(data)) < how.Off {
		return 0, Info{}, &guard.Error{Op: names.OpWrite, Path: p, Kind: names.Invalid, Err: unix.EINVAL}
	}
	how.Create = how.Create || how.CreateOnly
	req := how.request(c, p, len(data))
	var wrote atomic.Int64 // bytes; not in writeResult, which a failed write does not return
	copyData := func() func() {
		data = bytes.Clone(data)
		return func() {}
	}
	w, err := gate.DoPrepared(ctx, t.reg, req, copyData, nil, func(l *guard.Lease) (writeResult, int64, error) {
		w, err := withFollowed(ctx, l, p, true, func(q guard.Path) (writeResult, error) {
			o := rangeWrite{t: t, ctx: ctx, l: l, c: c, how: how, path: q, wrote: &wrote}
			w, err := o.run(data)
			w.path = q
			return w, err
		})
		w.hold = l.Hold()
		return w, wrote.Load(), err
	})
	n := wrote.Load()
	if err == nil && (w.unrecorded || req.Op == names.OpWrite) {
		t.recordWrite(w.hold, c, p, w.path, n)
	}
	return int(n), w.info, err
}

// rangeWrite is one run of WriteRange on a path without links.
type rangeWrite struct {
	t     *Tree
	ctx   context.Context
	l     *guard.Lease
	c     guard.Caller
	how   WriteOptions
	path  guard.Path
	wrote *atomic.Int64
}

func (o *rangeWrite) run(data []byte) (writeResult, error) {
	release, err := o.l.Making(o.ctx)
	if err != nil {
		return writeResult{}, err
	}
	defer release()
	d, base, err := beneath.Parent(o.l, o.path, o.how.access())
	if err != nil {
		return writeResult{}, err
	}
	defer d.Close()
	unlock, err := o.t.claims.LockName(o.ctx, o.l, d, base)
	if err != nil {
		return writeResult{}, err
	}
	defer unlock()
	h, created, err := o.open(d, base)
	if err != nil {
		return writeResult{}, err
	}
	defer h.Close()
	now, err := beneath.Stat(o.l, h.FD())
	if err != nil {
		return writeResult{}, err
	}
	id := now.ID()
	since, err := o.t.claims.BeginInPlace(o.ctx, o.l, id)
	if err != nil {
		return writeResult{}, err
	}
	defer o.t.claims.EndInPlace(id)
	err = o.write(&h, data)
	if err != nil && created && o.wrote.Load() == 0 && o.t.claims.IsAlone(id, since) {
		removeEmpty(o.l, d, base, id)
	}
	if err != nil {
		return writeResult{}, err
	}
	unrecorded := !created && o.how.Create // the gate reserved a name that is not used
	if unrecorded {
		o.l.Notes().Existing()
	}
	info, err := beneath.Stat(o.l, h.FD())
	info.Writing = !o.t.claims.IsAlone(id, since) // others may have written before the times were read
	if err == nil && created {
		dir, _ := o.path.Split()
		o.l.Notes().Created(info.ID())
		o.l.Notes().Name(d.Rel(dir.Rel()), base, info.ID(), false)
	}
	return writeResult{info: info, unrecorded: unrecorded}, err
}

// removeEmpty removes the file that was created for a write that failed, unless the name
// is another file's by now, or the file has contents.
func removeEmpty(l *guard.Lease, d beneath.Dir, base string, created rules.Identity) {
	if now, err := beneath.StatIn(d, base); err == nil && now.ID() == created && now.Size == 0 {
		_ = beneath.Unlink(l, d, base)
	}
}

// open opens the file to be written, or creates it; created reports which.
func (o *rangeWrite) open(d beneath.Dir, base string) (h beneath.Handle, created bool, err error) {
	cond := IfMatch{ETag: o.how.ETag, MustExist: !o.how.Create, MustBeNew: o.how.CreateOnly, Follow: true}
	need := guard.Write
	if o.how.Append {
		need = 0 // the gate has required Append
	}
	for range maxExchanges {
		old, err := checkExisting(o.l, d, base, cond, need)
		if err != nil {
			return h, false, err
		}
		if old != nil {
			h, err = o.openExisting(d, base)
			if err != unix.ENOENT || !o.how.Create { //nolint:errorlint // bare errno
				return h, false, err
			}
			continue // somebody else removed it since checkExisting found it
		}
		mode := applyUmask(o.c, d, safeMode(o.l, o.how.Mode&0o777))
		w, _, err := beneath.CreateFile(o.l, d, base, unix.O_WRONLY, mode, owner(o.c))
		if err != unix.EEXIST || o.how.CreateOnly { //nolint:errorlint // bare errno
			return w.Handle(), true, err
		}
		// Somebody else has created it since checkExisting looked.
	}
	return h, false, &guard.Error{Kind: names.Conflict}
}

func (o *rangeWrite) openExisting(d beneath.Dir, base string) (beneath.Handle, error) {
	h, info, err := beneath.OpenFile(o.l, d, base, unix.O_WRONLY)
	if err != nil {
		return h, err
	}
	w, err := h.Change(o.l)
	if err == nil && o.how.ETag != "" && o.how.ETag != ETag(&info) {
		err = &guard.Error{Kind: names.Conflict}
	}
	if err == nil && o.how.RespectLocks {
		err = lockFile(o.l, &h)
	}
	if err == nil {
		err = killPrivFor(o.l, o.c, w)
	}
	if err == nil && o.how.Truncate && o.how.Off == 0 && !o.how.Append {
		dir, _ := o.path.Split()
		err = o.t.trash.KeepEmptied(o.ctx, o.l, h.FD(), relIn(d, dir, base)) // the write replaces all contents
	}
	if err != nil {
		h.Close()
		return h, err
	}
	return h, nil
}

func (o *rangeWrite) write(h *beneath.Handle, data []byte) error {
	to, err := h.Change(o.l)
	if err != nil {
		return err
	}
	n := int64(len(data))
	switch {
	case o.how.Append:
		unlock, err := o.t.admitGrowth(o.ctx, o.l, h.FD(), n, o.how.Room)
		if err != nil {
			return err
		}
		defer unlock()
	case o.how.Room != nil:
		if err := o.how.Room(o.how.Off + n); err != nil {
			return err
		}
	}
	w, err := beneath.Pwritev(o.l, to, [][]byte{data}, o.how.Off, o.how.Append)
	o.wrote.Store(int64(w))
	if err == nil && o.how.Truncate && !o.how.Append {
		err = beneath.Truncate(o.l, to, o.how.Off+int64(w))
	}
	return err
}
