package vfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/claims"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/wholefile"
)

// ErrUploading is the cause of the names.Conflict of a second upload to one name.
var ErrUploading = errors.New("another upload of this file is in progress")

// Upload is a file that comes in pieces. Commit makes it appear complete, in one step. Until
// then it has no name, if the file system has files without names, so that a crash leaves nothing
// behind. An Upload ends by itself when its root ends. Its methods may be called concurrently.
type Upload struct {
	t    *Tree
	who  guard.Caller // who began it
	path guard.Path   // without links
	name claims.Name
	cond IfMatch
	old  *Info // the file at path at the beginning; nil: none
	hold atomic.Pointer[guard.Hold]
	dir  beneath.Dir // for a temporary name; zero if there is none
	s    *wholefile.Prepared
	// users counts the running operations that use s and can be answered early, plus one until
	// the upload has ended.
	users atomic.Int64
	// committing is set while a commit runs, also after the commit was answered early.
	committing atomic.Bool

	busy  sync.RWMutex // held for writing by Commit and Abort, so that no call of WriteAt runs then
	mu    sync.Mutex   // guards the fields below
	spans []span       // the written parts: sorted, neither touching nor overlapping
	ended bool
	done  chan struct{} // closed when the upload ends
}

// BeginUpload starts to collect the contents of a file. The condition is judged now, and once
// more by Commit. Links are followed now. While an upload to a name is under way, further
// uploads to it are refused (Conflict).
func (t *Tree) BeginUpload(ctx context.Context, c guard.Caller, p guard.Path, cond IfMatch) (*Upload, error) {
	cond.Follow = true
	req := guard.Request{Caller: c, Op: names.OpReplace, Path: p, Need: cond.need(), Quiet: true}
	drop := func(u *Upload) { u.Abort() }
	u, err := gate.Do(ctx, t.reg, req, drop, func(l *guard.Lease) (*Upload, int64, error) {
		u, err := withFollowed(ctx, l, p, true, func(q guard.Path) (*Upload, error) { return t.upload(ctx, l, c, q, cond) })
		return u, 0, err
	})
	if err != nil {
		return nil, err
	}
	go u.endWithRoot()
	return u, nil
}

func (t *Tree) upload(ctx context.Context, l *guard.Lease, c guard.Caller, q guard.Path, cond IfMatch) (*Upload, error) {
	u := &Upload{t: t, who: c, path: q, cond: cond, done: make(chan struct{})}
	p := replacement{t: t, ctx: ctx, l: l, c: c, path: q, cond: cond}
	err := p.begin(func(old *Info) error { u.old = old; return nil })
	if err != nil {
		return nil, err
	}
	defer p.d.Close()
	u.s = p.s
	if u.name, err = claims.NameOf(l, p.d, p.base); err == nil && !t.claims.BeginUpload(u.name) {
		err = &guard.Error{Kind: names.Conflict, Err: ErrUploading}
	}
	if err != nil {
		u.s.Drop(l, p.d)
		return nil, err
	}
	if err := u.keep(l, p.d); err != nil {
		t.claims.EndUpload(u.name)
		return nil, err
	}
	u.hold.Store(l.HoldNameless()) // the name is judged now and by Commit
	u.users.Store(1)
	return u, nil
}

// keep keeps the prepared file open between operations, and with a temporary name also the
// directory d, if MaxOpen allows that. After an error the prepared file is dropped.
func (u *Upload) keep(l *guard.Lease, d beneath.Dir) error {
	h := u.s.Handle()
	err := h.KeepOrClose()
	if err != nil {
		u.s.Changeable = beneath.Changeable{} // KeepOrClose has closed it
	} else if u.s.HasTemp() {
		u.dir, err = beneath.Dup(d)
	}
	if err != nil {
		u.s.Drop(l, d)
	}
	return err
}

// retain keeps the prepared file open for an operation that may be answered early, until leave
// is called.
func (u *Upload) retain() (leave func()) {
	u.users.Add(1)
	return u.leave
}

// leave ends a use of the prepared file. The last one closes the file.
func (u *Upload) leave() {
	if u.users.Add(-1) > 0 {
		return
	}
	u.s.Close()
	if u.s.HasTemp() {
		u.removeTemp(u.dir)
	}
}

// removeTemp removes the temporary name of the prepared file from d by an operation of the
// owner, and closes d. If the root has ended, the journal keeps the name for the next session.
func (u *Upload) removeTemp(d beneath.Dir) {
	detached := false
	defer func() {
		if !detached {
			d.Close()
		}
	}()
	root, epoch := u.hold.Load().Root()
	p, err := guard.NewPath(root, "")
	if now, ok := u.t.reg.EpochOf(root); err != nil || !ok || now != epoch || !u.s.HasTemp() {
		return
	}
	req := guard.Request{Caller: u.t.ownerOf(root), Op: names.OpGetattr, Path: p, Epoch: epoch}
	own := func() func() { detached = true; return d.Close }
	_, _ = gate.DoPrepared(guard.InsideOperation(context.Background()), u.t.reg, req, own, nil, func(l *guard.Lease) (struct{}, int64, error) {
		u.s.RemoveTemp(l, d)
		return struct{}{}, 0, nil
	})
}

// endWithRoot ends the upload with its root.
func (u *Upload) endWithRoot() {
	select {
	case <-u.hold.Load().Dead():
		u.Abort()
	case <-u.done:
	}
}

// Path returns the path at which the file will appear: the requested path with its links
// followed.
func (u *Upload) Path() guard.Path { return u.path }

// Size returns the size of the file so far, gaps included.
func (u *Upload) Size() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.spans) == 0 {
		return 0
	}
	return u.spans[len(u.spans)-1].to
}

// HasEnded reports whether the upload has ended: it was committed or given up, or met an error
// after which it cannot be committed.
func (u *Upload) HasEnded() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ended
}

// doUpload passes one operation of the upload through the gate. The root must still be in the
// lifetime in which the upload began.
func doUpload[T any](ctx context.Context, u *Upload, req guard.Request, prepare func() (release func()), f func(l *guard.Lease) (T, int64, error)) (T, error) {
	req.Path = u.path
	return retry(&req, func() (T, error) {
		req.Held = u.hold.Load()
		return gate.DoPrepared(ctx, u.t.reg, req, prepare, nil, f)
	}, func() error {
		// Roots were nested in this one, or revoked there. Walk to the directory again, so
		// that the lease enters the nested roots on the way.
		look := guard.Request{Caller: req.Caller, Op: names.OpLookup, Path: u.path}
		hold, err := gate.Do(ctx, u.t.reg, look, nil, func(l *guard.Lease) (*guard.Hold, int64, error) {
			if _, epoch := req.Held.Root(); l.Epoch() != epoch {
				return nil, 0, &guard.Error{Kind: names.Revoked}
			}
			d, _, err := u.parent(l)
			if err != nil {
				return nil, 0, err
			}
			d.Close()
			return l.HoldNameless(), 0, nil
		})
		if err == nil {
			u.hold.Store(hold)
		}
		return err
	})
}

// parent returns the directory in which the file will appear, if it is still the same.
func (u *Upload) parent(l *guard.Lease) (beneath.Dir, string, error) {
	d, base, err := beneath.Parent(l, u.path, u.cond.access())
	if err != nil {
		return d, base, err
	}
	name, err := claims.NameOf(l, d, base)
	if err == nil && name != u.name {
		err = &guard.Error{Kind: names.Conflict}
	}
	if err != nil {
		d.Close()
		return beneath.Dir{}, "", err
	}
	return d, base, nil
}

// refuse returns the error of an operation on an upload that has ended. If the root has ended, too,
// this is the error of the gate.
func (u *Upload) refuse(ctx context.Context, req guard.Request) error {
	return errOnly(doUpload(ctx, u, req, nil, func(*guard.Lease) (struct{}, int64, error) {
		return struct{}{}, 0, &guard.Error{Kind: names.Conflict, Err: errors.New("the upload has ended; begin another")}
	}))
}

func errOnly[T any](_ T, err error) error { return err }

// Commit flushes the file to the disk and gives it its name, atomically. If the file of that
// name was replaced or changed since the beginning, Commit fails (Conflict). The upload ends
// with success, a conflict, a refused condition or the end of the root. After a failure because
// of a gap, or of an error that may pass, the upload goes on.
func (u *Upload) Commit(ctx context.Context, c guard.Caller) (Info, error) {
	u.busy.Lock()
	defer u.busy.Unlock()
	req := guard.Request{Caller: c, Op: names.OpReplace, Names: 1, Need: u.cond.need(), Quiet: true}
	if u.HasEnded() {
		return Info{}, u.refuse(ctx, req)
	}
	pending := u.users.Load() > 1 // a piece that was answered early may still be written
	own := func() func() {
		u.committing.Store(true)
		leave := u.retain()
		return func() { u.committing.Store(false); leave() }
	}
	res, err := doUpload(ctx, u, req, own, func(l *guard.Lease) (placement, int64, error) {
		if err := u.checkComplete(); err != nil {
			return placement{}, 0, err
		}
		if pending {
			return placement{}, 0, &guard.Error{Kind: names.Timeout}
		}
		d, base, err := u.parent(l)
		if err != nil {
			return placement{}, 0, err
		}
		defer d.Close()
		p := replacement{t: u.t, ctx: ctx, l: l, c: c, path: u.path, d: d, base: base, cond: u.cond, s: u.s, agree: u.agree}
		res, err := p.commit()
		return res, 0, err // WriteAt has charged the bytes
	})
	if err == nil {
		u.t.recordWrite(res.hold, c, u.path, u.path, u.Size())
	}
	if err == nil || isFinal(err) {
		u.close()
	}
	return res.info, err
}

// isFinal reports whether an upload ends because its Commit failed with err.
func isFinal(err error) bool {
	switch names.Reason(err) {
	case names.Conflict, names.Exist, names.NotExist, names.NotDir, names.IsDir, names.Revoked, names.Hidden:
		return true
	}
	return false
}

// agree returns an error if the file at the path is not the one from the beginning.
func (u *Upload) agree(now *Info) error {
	if now == nil && u.old == nil {
		return nil
	}
	if now == nil || u.old == nil || !sameState(now, u.old) {
		return &guard.Error{Kind: names.Conflict}
	}
	return nil
}

// sameState reports whether two Infos show the same state of a file, as ETag compares it.
func sameState(a, b *Info) bool {
	return a.ID() == b.ID() && a.Size == b.Size && a.Mode == b.Mode && a.Mtime == b.Mtime && a.Ctime == b.Ctime
}

// Abort ends the upload and removes its file. Abort leaves a record with the size of the file, as
// Size returns it. If the upload has ended already, Abort does nothing.
func (u *Upload) Abort() {
	if u.abort() {
		u.t.reg.Closed(u.hold.Load(), u.who, u.path, 0, u.Size(), "an upload that was given up: nothing was changed", 0)
	}
}

// abort ends the upload. It reports false if the upload has ended already.
func (u *Upload) abort() bool {
	u.busy.Lock()
	defer u.busy.Unlock()
	if u.HasEnded() {
		return false
	}
	u.close()
	return true
}

// close ends the upload; the caller holds busy.
func (u *Upload) close() {
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
	u.t.claims.EndUpload(u.name)
	close(u.done)
	u.leave()
}

// maxGaps bounds the separate written parts of an upload, because each is kept in memory.
const maxGaps = 4096

type span struct{ from, to int64 }

// WriteAt writes one piece. Pieces may come in any order. If two overlap, the later one
// counts. The bytes of each piece are charged to the quotas. WriteAt returns how many bytes
// were written, and an error if that is not all.
func (u *Upload) WriteAt(ctx context.Context, c guard.Caller, data []byte, off int64) (int, error) {
	u.busy.RLock()
	defer u.busy.RUnlock()
	end := off + int64(len(data))
	req := guard.Request{Caller: c, Op: names.OpReplace, Bytes: int64(len(data)), Size: end, Quiet: true}
	if u.HasEnded() {
		return 0, u.refuse(ctx, req)
	}
	var wrote atomic.Int64
	own := func() func() {
		data = bytes.Clone(data)
		return u.retain()
	}
	committing := u.committing.Load() // the file may have its name already
	_, err := doUpload(ctx, u, req, own, func(l *guard.Lease) (struct{}, int64, error) {
		if committing {
			return struct{}{}, 0, &guard.Error{Kind: names.Timeout}
		}
		if off < 0 || end < off {
			return struct{}{}, 0, unix.EINVAL
		}
		if err := u.checkGaps(off, end); err != nil {
			return struct{}{}, 0, err
		}
		n, err := beneath.Pwritev(l, u.s.Changeable, [][]byte{data}, off, false)
		wrote.Store(int64(n))
		return struct{}{}, int64(n), err
	})
	n := wrote.Load()
	u.add(off, off+n)
	return int(n), err
}

// checkGaps refuses a piece that would leave too many gaps.
func (u *Upload) checkGaps(from, to int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.spans) < maxGaps {
		return nil
	}
	for _, s := range u.spans {
		if from <= s.to && to >= s.from {
			return nil
		}
	}
	return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("the upload has more than %d gaps; send pieces nearer to one another", maxGaps)}
}

// add adds the bytes between from and to to the written parts.
func (u *Upload) add(from, to int64) {
	if from >= to {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	i, _ := slices.BinarySearchFunc(u.spans, from, func(s span, from int64) int {
		if s.to < from {
			return -1
		}
		return 1
	})
	j := i
	for j < len(u.spans) && u.spans[j].from <= to {
		from, to = min(from, u.spans[j].from), max(to, u.spans[j].to)
		j++
	}
	u.spans = slices.Replace(u.spans, i, j, span{from, to})
}

// checkComplete returns an error if the written parts leave a gap. Commit holds busy.
func (u *Upload) checkComplete() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case len(u.spans) == 0, len(u.spans) == 1 && u.spans[0].from == 0:
		return nil
	case u.spans[0].from > 0:
		return gapError(0, u.spans[0].from)
	}
	return gapError(u.spans[0].to, u.spans[1].from)
}

func gapError(from, to int64) error {
	return &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("the upload has a gap: bytes %d to %d did not come", from, to)}
}
