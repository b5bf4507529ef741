package vfs

import (
	"context"
	"errors"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// copyPiece is how much is copied between two looks at whether to go on; the
// kernel copies by reference where the file system can.
const copyPiece = 4 << 20

// CopyFile copies a regular file; the copy appears at once, complete, and with
// overwrite takes the place of a file (links are then followed at the end too)
// as Replace does. A new file has the mode of the old, without its attributes.
// progress, unless nil, is told the bytes copied so far, one call at a time, and
// not after CopyFile has returned; the file's contents are those read, which are
// a mixture if somebody changes it meanwhile.
//
// Within one root the copy passes the gate once. Between two roots, and where
// roots are nested, it takes what reading from the one and writing to the other
// take, each judged on its own.
func (t *Tree) CopyFile(ctx context.Context, c guard.Caller, old, to guard.Path, overwrite bool, progress func(int64)) (Info, error) {
	tell, mute := telling(progress)
	defer mute()
	cond := IfMatch{MustBeNew: !overwrite, Follow: true}
	st, ok := t.reg.Lookup(old.Root)
	if old.Root != to.Root || ok && len(st.Nested) > 0 {
		return t.copyAcross(ctx, c, old, to, cond, tell)
	}
	req := guard.Request{Caller: c, Op: names.OpCopyFileRange, Path: old, Path2: to, Need: cond.need(), Names: 1}
	if overwrite && st.Grant.Policy.Rights&guard.Create == 0 {
		req.Need |= guard.Write
	}
	res, err := do(ctx, t, req, nil, func(l *guard.Lease) (placed, int64, error) {
		res, err := followed(ctx, l, old, true, func(q guard.Path) (placed, error) {
			fd, info, domain, err := openTarget(l, q)
			if err != nil {
				return placed{}, err
			}
			defer beneath.Close(fd)
			in := source{fd, info, domain}
			return followed(ctx, l, to, overwrite, func(q2 guard.Path) (placed, error) {
				return t.copyTo(ctx, l, c, in, q2, cond, tell)
			})
		})
		return res, res.size, err
	})
	if err == nil && res.existed {
		t.recordWrite(res.hold, c, to, res.size)
	}
	return res.info, err
}

// telling passes progress on until it is muted: a copy that was answered early
// may still run.
func telling(progress func(int64)) (tell func(int64), mute func()) {
	if progress == nil {
		return func(int64) {}, func() {}
	}
	var mu sync.Mutex // guards muted, and is held while telling
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

// source is the open file that is copied.
type source struct {
	fd     int
	info   Info
	domain uint64
}

func (t *Tree) copyTo(ctx context.Context, l *guard.Lease, c guard.Caller, in source, q guard.Path, cond IfMatch, tell func(int64)) (placed, error) {
	d, base, err := beneath.Parent(l, q)
	if err != nil {
		return placed{}, err
	}
	defer d.Close()
	if d.Domain != in.domain {
		return placed{}, unix.EXDEV // nested only just now
	}
	cond.Mode = in.info.Mode & 0o777
	p := replacement{t: t, ctx: ctx, l: l, c: c, d: d, path: q, base: base, cond: cond}
	old, err := p.existing()
	if err == nil && old != nil && old.ID() == in.info.ID() {
		err = &guard.Error{Kind: names.Invalid, Err: errItself}
	}
	if err != nil {
		return placed{}, err
	}
	if p.s, err = p.stage(old); err != nil {
		return placed{}, err
	}
	defer p.s.drop(d)
	if err := p.copyFrom(in, tell); err != nil {
		return placed{size: p.size}, err
	}
	return p.commit(nil)
}

// copyFrom fills the staged file by copy_file_range, or by reading and writing
// where the kernel will not.
func (p *replacement) copyFrom(in source, tell func(int64)) error {
	for {
		if err := ended(p.ctx, p.l); err != nil {
			return err
		}
		want := min(copyPiece, in.info.Size-p.size)
		if want <= 0 {
			break // what has come since is read below
		}
		// Charged before, because the quota must not be found exceeded
		// after the fact.
		if err := p.l.Charge(want, p.size+want); err != nil {
			return err
		}
		n, err := beneath.CopyFileRange(in.fd, p.size, p.s.fd, p.size, int(want))
		if err := p.l.Charge(int64(n)-want, p.size); err != nil {
			return err
		}
		if n == 0 || err != nil {
			break
		}
		p.size += int64(n)
		tell(p.size)
	}
	return p.fill(&fdReader{in.fd, p.size, tell})
}

// fdReader reads the rest of a file.
type fdReader struct {
	fd   int
	off  int64
	tell func(int64)
}

func (r *fdReader) Read(buf []byte) (int, error) {
	n, err := beneath.Pread(r.fd, buf, r.off)
	r.off += int64(n)
	if n > 0 {
		r.tell(r.off)
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// copyAcross copies between two roots: the file is opened in the one as any
// reader would, and what is read through the gate replaces the file in the other.
func (t *Tree) copyAcross(ctx context.Context, c guard.Caller, old, to guard.Path, cond IfMatch, tell func(int64)) (Info, error) {
	f, info, err := t.openFollowed(ctx, c, old)
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	cond.Mode = info.Mode & 0o777
	if now, _, err := t.Stat(ctx, c, to); err == nil && now.ID() == info.ID() && !cond.MustBeNew {
		return Info{}, &guard.Error{Op: names.OpReplace, Path: to, Kind: names.Invalid, Err: errItself}
	}
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	return t.Replace(ctx, c, At{Path: to}, &gateReader{ctx: reading, cancel: cancel, f: f, c: c, tell: tell}, cond)
}

// openFollowed opens the regular file a path leads to, for reading.
func (t *Tree) openFollowed(ctx context.Context, c guard.Caller, p guard.Path) (*File, Info, error) {
	req := guard.Request{Caller: c, Op: names.OpOpen, Path: p, Need: guard.Read}
	o, err := do(ctx, t, req, dropOpened, func(l *guard.Lease) (opened, int64, error) {
		o, err := followed(ctx, l, p, true, func(q guard.Path) (opened, error) {
			fd, info, _, err := openTarget(l, q)
			if err == nil {
				err = beneath.Hold(fd)
			}
			if err != nil {
				return opened{}, err
			}
			return opened{newFile(t, l, fd, At{Path: q, ID: info.ID()}, c, unix.O_RDONLY), info}, nil
		})
		return o, 0, err
	})
	return o.f, o.info, err
}

// gateReader reads a file, each piece through the gate of its root.
type gateReader struct {
	ctx    context.Context
	cancel func()
	f      *File
	c      guard.Caller
	off    int64
	tell   func(int64)
}

// endWith ends the reading when the root ends that it is done for: that root's
// ending waits for the writing, which must not wait for the gate of the other.
func (r *gateReader) endWith(dead <-chan struct{}) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-dead:
			r.cancel()
		case <-done:
		}
	}()
	return func() { close(done) }
}

func (r *gateReader) Read(buf []byte) (int, error) {
	n, err := r.f.ReadAt(r.ctx, r.c, buf, r.off)
	r.off += int64(n)
	if n > 0 {
		r.tell(r.off)
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}
