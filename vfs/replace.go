package vfs

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"sync"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// etagKey makes etags opaque: without it they would tell inode numbers, and
// could be made up. A daemon's etags end with it.
var etagKey = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	return key
})

// ETag names one state of a file: it changes whenever the file's contents or
// attributes do, or another file takes its place. That of a file that somebody has
// open for writing is another one than it has afterwards, so nobody can go by it
// who read in the middle of a write. The size of a directory does not count: Stat shows
// none where names may be hidden.
func ETag(info *Info) string {
	size := info.Size
	if info.IsDir() {
		size = 0
	}
	mac := hmac.New(sha256.New, etagKey())
	var b [56]byte
	for i, v := range []uint64{info.Dev, info.Ino, uint64(info.ID().Birth), uint64(size),
		uint64(info.ModTime().UnixNano()), uint64(info.ChangeNanos()), uint64(info.Mode)} {
		binary.LittleEndian.PutUint64(b[i*8:], v)
	}
	mac.Write(b[:])
	if info.Writing {
		mac.Write([]byte("w"))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:18])
}

// IfMatch says on what condition a file is given new contents.
type IfMatch struct {
	ETag      string // the file must be in this state; "": any
	MustExist bool
	MustBeNew bool
	Mode      uint32 // of a new file
	NoDurable bool   // leave out the fsyncs: after a crash of the machine the file may be empty
	// Follow makes Replace follow links, also one in the last element, where
	// it otherwise refuses them. Uploads always do.
	Follow bool
	// RespectLocks refuses (Locked) to replace a file on which another
	// process, or an open file of a mount that forwards its locks, holds any
	// lock that a writer's would conflict with: of flock(2), of fcntl(2).
	RespectLocks bool
}

// access is what a write on the condition does to the name: one that makes no file
// tells nothing of what is hidden there.
func (m IfMatch) access() guard.Access {
	if m.MustExist || m.ETag != "" {
		return guard.ToChange
	}
	return guard.ToMake
}

// need are the rights the condition alone takes.
func (m IfMatch) need() (need guard.Rights) {
	if m.MustExist {
		need |= guard.Write
	}
	if m.MustBeNew {
		need |= guard.Create
	}
	return need
}

// Replace gives a file new contents, all at once: they are written to a file
// without a name, which is made like the one it replaces (mode, owner,
// attributes, ACL), flushed to the disk and put in its place. Whoever reads
// meanwhile, and whatever happens to this process, finds the old contents or
// the new. Hard links of the old file keep the old contents. The etag is
// compared immediately before the new file takes the name; replacements, uploads
// and WriteRange through one Tree exclude each other there, so among them no
// update is lost.
//
// r is read to its end or first error, by one goroutine. If the operation is
// answered early (a source that can hang) one Read may still follow.
func (t *Tree) Replace(ctx context.Context, c guard.Caller, at At, r io.Reader, cond IfMatch) (Info, error) {
	return t.replaceFrom(ctx, c, at, r, cond, nil)
}

// replaceFrom is Replace that asks charge, unless nil, for each piece before it
// is written (see CopyHow).
func (t *Tree) replaceFrom(ctx context.Context, c guard.Caller, at At, r io.Reader, cond IfMatch,
	charge func(ctx context.Context, n, size int64) error,
) (Info, error) {
	req := guard.Request{Caller: c, Op: names.OpReplace, Path: at.Path, Epoch: at.Epoch, Need: cond.need(), Names: 1}
	res, err := gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (placed, int64, error) {
		run := func(q guard.Path) (placed, error) {
			res, err := t.replace(ctx, l, c, q, r, cond, charge)
			res.path = q
			return res, err
		}
		var res placed
		var err error
		if cond.Follow {
			res, err = followed(ctx, l, at.Path, true, run)
		} else {
			res, err = run(at.Path)
		}
		return res, res.size, err
	})
	if err == nil && res.existed {
		t.recordWrite(res.hold, c, at.Path, res.path, res.size)
	}
	return res.info, err
}

// placed is what became of a file that was to take a name.
type placed struct {
	path    guard.Path // the name, without links
	info    Info
	existed bool  // there was one before
	size    int64 // how much was written
	hold    *guard.Hold
}

func (t *Tree) replace(ctx context.Context, l *guard.Lease, c guard.Caller, q guard.Path, r io.Reader, cond IfMatch,
	charge func(ctx context.Context, n, size int64) error,
) (placed, error) {
	d, base, err := beneath.ParentFor(l, q, cond.access())
	if err != nil {
		return placed{}, err
	}
	defer d.Close()
	p := replacement{t: t, ctx: ctx, l: l, c: c, d: d, path: q, base: base, cond: cond, charge: charge}
	old, err := p.existing()
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
	if g, ok := r.(*gateReader); ok {
		defer g.endWith(l.Dead())()
		err = p.take(0, g.size) // before any of it has been copied in vain
	}
	if err == nil {
		err = p.fill(r)
	}
	if err != nil {
		return placed{size: p.wrote}, err
	}
	return p.commit(nil)
}
