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
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// copyPiece is how much is copied between two looks at whether to go on; the
// kernel copies by reference where the file system can.
const copyPiece = 4 << 20

// CopyHow says how CopyFile copies.
type CopyHow struct {
	Overwrite bool   // take the place of a file
	ETag      string // what is copied must be in this state, all the while; "": any
	// Charge, unless nil, is asked before n more bytes are written, to a copy
	// that then has size bytes; n below 0 were asked for and not written. It may
	// wait, as long as its context lasts; an error of it ends the copy.
	Charge func(ctx context.Context, n, size int64) error
	// Progress, unless nil, is told the bytes copied so far, one call at a time,
	// and not after CopyFile has returned.
	Progress func(done int64)
}

// CopyFile copies a regular file; the copy appears at once, complete, and with
// Overwrite takes the place of a file (links are then followed at the end too)
// as Replace does, unless somebody holds that locked (Locked). A new file has the
// mode of the old, without its attributes, and its holes. The file's contents are
// those read, which without an ETag are a mixture if somebody changes it
// meanwhile. An error's Path is that of the two it is about.
//
// Within one root the copy passes the gate once. Between two roots, and where
// roots are nested, it takes what reading from the one and writing to the other
// take, each judged on its own.
func (t *Tree) CopyFile(ctx context.Context, c guard.Caller, old, to guard.Path, how CopyHow) (Info, error) {
	tell, mute := telling(how.Progress)
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
	res, err := gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (placed, int64, error) {
		res, err := followed(ctx, l, old, true, func(q guard.Path) (placed, error) {
			in, err := openSource(l, q, how.ETag)
			if err != nil {
				return placed{}, err
			}
			defer beneath.Close(in.fd)
			in.path = old
			res, err := followed(ctx, l, to, how.Overwrite, func(q2 guard.Path) (placed, error) {
				res, err := t.copyTo(ctx, l, c, in, q2, cond, how)
				res.path = q2
				return res, err
			})
			return res, about(to, err)
		})
		return res, res.size, err
	})
	if err == nil && res.existed {
		t.recordWrite(res.hold, c, to, res.path, res.size)
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
	path   guard.Path // as it was asked for: errors name it
	info   Info       // as it was opened
	etag   string     // it has to stay so
	domain uint64
}

func openSource(l *guard.Lease, q guard.Path, etag string) (source, error) {
	fd, info, domain, err := openTarget(l, q)
	if err == nil && etag != "" && etag != ETag(&info) {
		beneath.Close(fd)
		err = &guard.Error{Kind: names.Conflict}
	}
	return source{fd: fd, info: info, etag: etag, domain: domain}, err
}

// unchanged reports whether the file is as its etag says, if one was asked for.
func (in *source) unchanged() error {
	if in.etag == "" {
		return nil
	}
	now, err := beneath.Stat(in.fd)
	if err == nil && ETag(&now) != in.etag {
		err = &guard.Error{Kind: names.Conflict}
	}
	return about(in.path, err)
}

func (t *Tree) copyTo(ctx context.Context, l *guard.Lease, c guard.Caller, in source, q guard.Path, cond IfMatch, how CopyHow) (placed, error) {
	d, base, err := beneath.Parent(l, q)
	if err != nil {
		return placed{}, err
	}
	defer d.Close()
	if d.Domain != in.domain {
		return placed{}, unix.EXDEV // nested only just now
	}
	cond.Mode = in.info.Mode & 0o777
	p := replacement{t: t, ctx: ctx, l: l, c: c, d: d, path: q, base: base, cond: cond, charge: how.Charge}
	old, err := p.existing()
	if err == nil && old != nil && old.ID() == in.info.ID() {
		err = &guard.Error{Kind: names.Invalid, Err: errItself}
	}
	if err == nil {
		err = p.early(old)
	}
	if err != nil {
		return placed{}, err
	}
	if p.s, err = p.stage(old); err != nil {
		return placed{}, err
	}
	defer p.s.drop(l, d)
	defer p.untilDead()()
	if err := p.copyFrom(&in, how.Progress); err != nil {
		return placed{size: p.wrote}, err
	}
	return p.commit(nil)
}

// copyFrom fills the staged file by copy_file_range, or by reading and writing
// where the kernel will not, and leaves holes where the source has them.
func (p *replacement) copyFrom(in *source, tell func(int64)) error {
	if err := p.take(0, in.info.Size); err != nil {
		return err // before any of it has been copied in vain
	}
	r := &fdReader{fd: in.fd, tell: tell}
	if p.uncharged {
		r.most = in.info.Size
	}
	for {
		if err := walk.Ended(p.ctx, p.l); err != nil {
			return err
		}
		from, to := r.data(in.info.Size)
		want := min(copyPiece, to-from)
		if want <= 0 {
			break // what has come since is read below
		}
		// Charged before, because the quota must not be found exceeded
		// after the fact.
		if err := p.take(want, from+want); err != nil {
			return err
		}
		n, err := beneath.CopyFileRange(p.l, in.fd, from, p.s.fd, from, int(want))
		if err := p.take(int64(n)-want, from+int64(n)); err != nil {
			return err
		}
		if n == 0 || err != nil {
			break
		}
		r.off = from + int64(n)
		p.size, p.wrote = r.off, p.wrote+int64(n)
		tell(r.off)
	}
	if err := p.fill(r); err != nil {
		return err
	}
	return in.unchanged()
}

// holed is a reader of a file that may have holes.
type holed interface {
	io.Reader
	// skip moves to the next data, or to the end of the file, and returns
	// where that is.
	skip() (int64, error)
}

// fdReader reads the rest of a file.
type fdReader struct {
	fd   int
	off  int64
	most int64 // where to end; 0: at the end of the file
	tell func(int64)
}

// data is the next piece of the file that is no hole, below size; an empty one
// means there is no more.
func (r *fdReader) data(size int64) (from, to int64) {
	from, err := beneath.Lseek(r.fd, r.off, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO: //nolint:errorlint // bare errno
		return size, size
	case err != nil:
		return r.off, size // a file system without holes
	}
	if to, err = beneath.Lseek(r.fd, from, unix.SEEK_HOLE); err != nil {
		to = size
	}
	return from, min(to, size)
}

func (r *fdReader) skip() (int64, error) {
	from, err := beneath.Lseek(r.fd, r.off, unix.SEEK_DATA)
	if err == unix.ENXIO { //nolint:errorlint // bare errno
		var now Info
		now, err = beneath.Stat(r.fd)
		from = now.Size
	} else if err != nil {
		return r.off, nil // a file system without holes
	}
	if r.most > 0 {
		from = min(from, r.most)
	}
	r.off = max(r.off, from)
	return r.off, err
}

func (r *fdReader) Read(buf []byte) (int, error) {
	if r.most > 0 {
		buf = buf[:min(int64(len(buf)), max(0, r.most-r.off))]
	}
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
func (t *Tree) copyAcross(ctx context.Context, c guard.Caller, old, to guard.Path, cond IfMatch, how CopyHow) (Info, error) {
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
	r := &gateReader{ctx: reading, cancel: cancel, f: f, c: c, path: old, size: info.Size, etag: how.ETag, tell: how.Progress}
	made, err := t.replaceFrom(ctx, c, At{Path: to}, r, cond, how.Charge)
	if err != nil && ctx.Err() == nil {
		if broken := r.failure(); broken != nil {
			return made, broken // and not the writing, which only passes it on
		}
	}
	return made, err
}

// openFollowed opens the regular file a path leads to, for reading.
func (t *Tree) openFollowed(ctx context.Context, c guard.Caller, p guard.Path) (*File, Info, error) {
	req := guard.Request{Caller: c, Op: names.OpOpen, Path: p, Need: guard.Read}
	o, err := gate.Do(ctx, t.reg, req, dropOpened, func(l *guard.Lease) (opened, int64, error) {
		o, err := followed(ctx, l, p, true, func(q guard.Path) (opened, error) {
			fd, info, _, err := openTarget(l, q)
			if err == nil {
				err = beneath.Hold(fd)
			}
			if err != nil {
				return opened{}, err
			}
			return opened{newFile(t, l, fd, At{Path: q, ID: info.ID()}, c, unix.O_RDONLY, noSlot), info}, nil
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
	path   guard.Path // as it was asked for
	size   int64      // as it was opened
	etag   string     // the file has to stay so; "": it need not
	off    int64
	tell   func(int64)

	mu     sync.Mutex // guards the field below
	failed error      // the first error that was not the end of the file
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

// failure is why the reading failed, nil if it did not or was told to end.
func (r *gateReader) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil
	}
	return r.failed
}

func (r *gateReader) fail(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
	return err
}

func (r *gateReader) Read(buf []byte) (int, error) {
	n, err := r.f.ReadAt(r.ctx, r.c, buf, r.off)
	r.off += int64(n)
	if n > 0 {
		r.tell(r.off)
	}
	if err == nil && n == 0 {
		if err = r.unchanged(); err == nil {
			return 0, io.EOF
		}
	}
	if err != nil {
		_ = r.fail(err)
	}
	return n, err
}

// unchanged reports whether the file is as its etag says, if one was asked for.
func (r *gateReader) unchanged() error {
	if r.etag == "" {
		return nil
	}
	now, err := r.f.Stat(r.ctx, r.c)
	if err == nil && ETag(&now) != r.etag {
		err = &guard.Error{Op: names.OpCopyFileRange, Path: r.path, Kind: names.Conflict}
	}
	return err
}

func (r *gateReader) skip() (int64, error) {
	from, err := r.f.Lseek(r.ctx, r.c, r.off, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		var now Info
		now, err = r.f.Stat(r.ctx, r.c)
		from = now.Size
	} else if names.Reason(err) == names.Invalid {
		return r.off, nil // a file system without holes
	}
	if err != nil {
		return r.off, r.fail(err)
	}
	r.off = max(r.off, from)
	return r.off, nil
}
