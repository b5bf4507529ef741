package vfs

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/wholefile"
)

// CopyOptions says how CopyFile copies.
type CopyOptions struct {
	Overwrite bool   // replace an existing file
	ETag      string // the state that the source has to be in until the end; "": any
	// Charge, unless nil, is called before n bytes are written to the copy, which then has
	// size bytes. A negative n gives back bytes that were charged and not written. Charge
	// may wait until its context ends. An error of Charge ends the copy.
	Charge func(ctx context.Context, n, size int64) error
	// Progress, unless nil, is called with the bytes copied so far, one call at a time, and not
	// after CopyFile has returned.
	Progress func(done int64)
}

// CopyFile copies a regular file. The copy appears complete, in one step. With Overwrite it
// replaces a file as Replace does, unless that file is locked (Locked). With
// Overwrite, a link in the last element of to is followed, too. The copy has the holes of the
// source. A new file gets the source's permission bits, as far as the caller's umask allows, but
// not the source's extended attributes. If the source changes meanwhile, the copy can be a mixture
// of both states; with an ETag, a change is an error. An error's Path is the one of the two paths
// that the error is about.
//
// Within one root the copy passes the gate once. Between two roots, and in a root with nested
// roots, the reading and the writing pass the gate separately, each with its own rights.
func (t *Tree) CopyFile(ctx context.Context, c guard.Caller, old, to guard.Path, how CopyOptions) (Info, error) {
	tell, mute := mutableProgress(how.Progress)
	defer mute()
	how.Progress = tell
	cond := IfMatch{MustBeNew: !how.Overwrite, Follow: true, RespectLocks: true}
	st, ok := t.reg.Lookup(old.Root)
	if old.Root != to.Root || ok && len(st.Nested) > 0 {
		return t.copyAcross(ctx, c, old, to, cond, how)
	}
	req := guard.Request{Caller: c, Op: names.OpCopyFileRange, Path: old, Path2: to, Need: cond.need(), Names: 1}
	if how.Overwrite && st.Grant.Policy.Rights&guard.Create == 0 {
		req.Need |= guard.Write
	}
	return t.gateReplace(ctx, req, to, func(l *guard.Lease) (placement, error) {
		return withFollowed(ctx, l, old, true, func(q guard.Path) (placement, error) {
			in, err := openSource(l, q, how.ETag)
			if err != nil {
				return placement{}, err
			}
			defer in.h.Close()
			in.path = old
			res, err := withFollowed(ctx, l, to, how.Overwrite, func(q2 guard.Path) (placement, error) {
				p := &replacement{t: t, ctx: ctx, l: l, c: c, path: q2, cond: cond, extraCharge: how.Charge}
				p.cond.Mode = in.Info.Mode & 0o777
				return p.run(func(old *Info) error { return in.checkReplace(p.d, old) }, func() error { return p.copyAll(&in, how.Progress) })
			})
			return res, withPath(to, err)
		})
	})
}

// source is the open file that CopyFile copies.
type source struct {
	wholefile.Source
	h      beneath.Handle
	path   guard.Path // the requested path, for errors
	etag   string     // of the state that the file has to stay in; "": any
	domain uint64
}

// copyAll copies a file to the prepared one.
func (p *replacement) copyAll(in *source, tell func(int64)) error {
	if err := p.Copy(&in.Source, 0, tell); err != nil {
		return err
	}
	return in.checkUnchanged(p.l)
}

// checkUnchanged returns an error if the file is not in the state of the etag that was asked for.
func (in *source) checkUnchanged(l *guard.Lease) error {
	if in.etag == "" {
		return nil
	}
	now, err := beneath.Stat(l, in.FD)
	if err == nil && ETag(&now) != in.etag {
		err = &guard.Error{Kind: names.Conflict}
	}
	return withPath(in.path, err)
}

// checkReplace returns an error if the copy may not get a name in d, or may not replace old (nil:
// there is no such file).
func (in *source) checkReplace(d beneath.Dir, old *Info) error {
	switch {
	case d.Domain != in.domain:
		return unix.EXDEV // a root was nested there just now
	case old != nil && old.ID() == in.Info.ID():
		return &guard.Error{Kind: names.Invalid, Err: errItself}
	}
	return nil
}

// mutableProgress returns a function that calls progress until mute is called: a copy that was answered
// early may still run.
func mutableProgress(progress func(int64)) (tell func(int64), mute func()) {
	if progress == nil {
		return func(int64) {}, func() {}
	}
	var mu sync.Mutex // guards muted, and is held during progress
	muted := false
	tell = func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		if !muted {
			progress(n)
		}
	}
	return tell, func() { mu.Lock(); muted = true; mu.Unlock() }
}

var errItself = errors.New("a file cannot be copied onto itself")

func openSource(l *guard.Lease, q guard.Path, etag string) (source, error) {
	h, info, domain, err := openTarget(l, q)
	if err == nil && etag != "" && etag != ETag(&info) {
		h.Close()
		err = &guard.Error{Kind: names.Conflict}
	}
	return source{Source: wholefile.Source{FD: h.FD(), Info: info}, h: h, etag: etag, domain: domain}, err
}

// copyAcross copies between two roots, or within a root that has nested roots. It opens the source
// as any reader would, and replaces the target by the data that it reads through the gate.
func (t *Tree) copyAcross(ctx context.Context, c guard.Caller, old, to guard.Path, cond IfMatch, how CopyOptions) (Info, error) {
	f, info, err := t.openFollowed(ctx, c, old)
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	if how.ETag != "" && how.ETag != ETag(&info) {
		return Info{}, &guard.Error{Op: names.OpCopyFileRange, Path: old, Kind: names.Conflict}
	}
	cond.Mode = info.Mode & 0o777
	if now, _, err := t.Stat(ctx, c, to); err == nil && now.ID() == info.ID() && !cond.MustBeNew {
		return Info{}, &guard.Error{Op: names.OpReplace, Path: to, Kind: names.Invalid, Err: errItself}
	}
	reading, cancel := context.WithCancel(guard.InsideOperation(ctx))
	defer cancel()
	r := &gateReader{ctx: reading, f: f, c: c, path: old, etag: how.ETag}
	copied, err := t.replaceFrom(ctx, c, At{Path: to}, cond, how.Charge, func(p *replacement) error {
		// A root ends only after its operations, so the end of the written root has to wait for
		// this copy. Therefore the end of the written root cancels the reading, which may be
		// waiting at the gate of the other root.
		alive, stop := p.l.Life().UntilEnd(ctx)
		defer stop()
		defer context.AfterFunc(alive, cancel)()
		if err := p.Charge(0, info.Size); err != nil {
			return err // before anything is copied in vain
		}
		if err := p.Fill(&wholefile.SparseReader{ReadAt: r.read, NextData: r.nextData, Size: r.size, Tell: how.Progress}); err != nil {
			return err
		}
		return r.checkUnchanged()
	})
	if err != nil && ctx.Err() == nil {
		if readErr := r.failure(); readErr != nil {
			return copied, readErr // the error of the writing only repeats readErr
		}
	}
	return copied, err
}

// openFollowed opens the regular file a path leads to, for reading.
func (t *Tree) openFollowed(ctx context.Context, c guard.Caller, p guard.Path) (*File, Info, error) {
	req := guard.Request{Caller: c, Op: names.OpOpen, Path: p, Need: guard.Read}
	return t.gateOpen(ctx, req, func(l *guard.Lease) (opened, error) {
		return withFollowed(ctx, l, p, true, func(q guard.Path) (opened, error) {
			h, info, _, err := openTarget(l, q)
			if err == nil {
				err = h.KeepOrClose()
			}
			if err != nil {
				return opened{}, err
			}
			return opened{newFile(t, l, h, At{Path: q, ID: info.ID()}, c, unix.O_RDONLY, nil), info}, nil
		})
	})
}

// gateReader reads an open file, each piece through the gate of its root.
type gateReader struct {
	ctx  context.Context
	f    *File
	c    guard.Caller
	path guard.Path // as it was asked for
	etag string     // of the state that the file has to stay in; "": any

	mu       sync.Mutex // guards the field below
	firstErr error
}

// failure returns why the reading failed. It returns nil if the reading did not fail, or if ctx
// has ended.
func (r *gateReader) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil
	}
	return r.firstErr
}

func (r *gateReader) noteFailure(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.firstErr = cmp.Or(r.firstErr, err)
	return err
}

func (r *gateReader) read(buf []byte, off int64) (int, error) {
	n, err := r.f.ReadAt(r.ctx, r.c, buf, off)
	return n, r.noteFailure(err)
}

// checkUnchanged returns an error if the file is not in the state of the etag that was asked for.
func (r *gateReader) checkUnchanged() error {
	if r.etag == "" {
		return nil
	}
	now, err := r.f.Stat(r.ctx, r.c)
	if err == nil && ETag(&now) != r.etag {
		err = &guard.Error{Op: names.OpCopyFileRange, Path: r.path, Kind: names.Conflict}
	}
	return r.noteFailure(err)
}

// nextData and size are the functions NextData and Size of a wholefile.SparseReader.
func (r *gateReader) nextData(off int64) (int64, error) {
	from, err := r.f.Lseek(r.ctx, r.c, off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return from, err
	case names.Reason(err) == names.Invalid:
		return off, nil // a file system without holes
	}
	return from, r.noteFailure(err)
}

func (r *gateReader) size() (int64, error) {
	now, err := r.f.Stat(r.ctx, r.c)
	return now.Size, r.noteFailure(err)
}
