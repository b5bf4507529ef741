package vfs

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// etagKey makes etags opaque: without it they would tell inode numbers, and
// could be made up. A daemon's etags end with it.
var etagKey = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	return key
})

// ETag names one state of a file: it changes whenever the file's contents or
// attributes do, or another file takes its place.
func ETag(info *Info) string {
	mac := hmac.New(sha256.New, etagKey())
	var b [56]byte
	for i, v := range []uint64{info.Dev, info.Ino, uint64(info.ID().Birth), uint64(info.Size),
		uint64(info.ModTime().UnixNano()), uint64(info.ChangeNanos()), uint64(info.Mode)} {
		binary.LittleEndian.PutUint64(b[i*8:], v)
	}
	mac.Write(b[:])
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
	// LastWins lets Upload.Commit go through although the file changed since
	// BeginUpload. ETag, if given, still has to match.
	LastWins bool
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
	req := guard.Request{Caller: c, Op: names.OpReplace, Path: at.Path, Epoch: at.Epoch, Need: cond.need(), Names: 1}
	res, err := do(ctx, t, req, nil, func(l *guard.Lease) (placed, int64, error) {
		run := func(q guard.Path) (placed, error) { return t.replace(ctx, l, c, q, r, cond) }
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
		t.recordWrite(res.hold, c, at.Path, res.size)
	}
	return res.info, err
}

// placed is what became of a file that was to take a name.
type placed struct {
	info    Info
	existed bool // there was one before
	size    int64
	hold    *guard.Hold
}

func (t *Tree) replace(ctx context.Context, l *guard.Lease, c guard.Caller, q guard.Path, r io.Reader, cond IfMatch) (placed, error) {
	d, base, err := beneath.Parent(l, q)
	if err != nil {
		return placed{}, err
	}
	defer d.Close()
	p := replacement{t: t, ctx: ctx, l: l, c: c, d: d, path: q, base: base, cond: cond}
	old, err := p.existing()
	if err == nil && old != nil && cond.RespectLocks {
		// Now, to spare the contents a way in vain, and again at the end.
		err = p.unlocked(old, func() error { return nil })
	}
	if err != nil {
		return placed{}, err
	}
	if p.s, err = p.stage(old); err != nil {
		return placed{}, err
	}
	defer p.s.drop(d)
	if g, ok := r.(*gateReader); ok {
		defer g.endWith(l.Dead())()
	}
	if err := p.fill(r); err != nil {
		return placed{size: p.size}, err
	}
	return p.commit(nil)
}

// replacement is one file about to take a name.
type replacement struct {
	t    *Tree
	ctx  context.Context
	l    *guard.Lease
	c    guard.Caller
	d    beneath.Dir
	path guard.Path // without links
	base string
	cond IfMatch
	s    *staged
	size int64
}

// existing looks at the file to be replaced; nil means there is none.
func (p *replacement) existing() (*Info, error) {
	info, err := beneath.StatIn(p.d, p.base)
	switch {
	case err == unix.ENOENT: //nolint:errorlint // bare errno
		if p.cond.MustExist || p.cond.ETag != "" {
			return nil, err
		}
		if p.l.Narrowest()&guard.Create == 0 {
			return nil, p.l.Denied(guard.Create)
		}
		return nil, nil
	case err != nil:
		return nil, err
	case p.cond.MustBeNew:
		return nil, unix.EEXIST
	}
	if err := p.replaceable(&info); err != nil {
		return nil, err
	}
	if p.cond.ETag != "" && p.cond.ETag != ETag(&info) {
		return nil, &guard.Error{Kind: names.Conflict}
	}
	return &info, nil
}

func (p *replacement) replaceable(info *Info) error {
	if err := visible(p.l, info); err != nil {
		return err
	}
	switch info.Type() {
	case unix.S_IFDIR:
		return unix.EISDIR
	case unix.S_IFLNK:
		if p.cond.Follow {
			return unix.ELOOP
		}
		return &guard.Error{Kind: names.Escaped, Err: unix.ELOOP}
	}
	if p.l.Narrowest()&guard.Write == 0 {
		return p.l.Denied(guard.Write)
	}
	return nil
}

// stage makes the file that is to take the place of old.
func (p *replacement) stage(old *Info) (*staged, error) {
	mode := p.newMode()
	if old != nil {
		mode = 0o600 // nobody reads it before it has the old one's mode
	}
	dir, _ := p.path.Split()
	return p.t.stage(p.d, dir, mode, owner(p.c))
}

func (p *replacement) newMode() uint32 { return umasked(p.c, p.d, p.cond.Mode&0o777) }

func (p *replacement) fill(r io.Reader) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if err := p.l.Charge(int64(n), p.size+int64(n)); err != nil {
				return err
			}
			w, werr := beneath.Pwritev(p.s.fd, [][]byte{buf[:n]}, p.size, false)
			p.size += int64(w)
			if werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if end := ended(p.ctx, p.l); end != nil {
			return end
		}
		if err != nil {
			return err
		}
	}
}

// commit puts the staged file in place, excluding everybody else who changes
// the name through this tree. agree, unless nil, has the last word about what is
// there.
func (p *replacement) commit(agree func(old *Info) error) (placed, error) {
	res := placed{size: p.size, hold: p.l.HoldAt(p.path)}
	key, err := keyOf(p.d, p.base)
	if err != nil {
		return res, err
	}
	release, err := p.again()
	if err != nil {
		return res, err
	}
	defer release()
	unlock, err := p.t.locks.lock(p.ctx, p.l, key)
	if err != nil {
		return res, err
	}
	defer unlock()
	old, err := p.existing()
	if err == unix.ELOOP { //nolint:errorlint // bare errno
		err = &guard.Error{Kind: names.Conflict} // a link now; it is too late to follow it
	}
	if err == nil && agree != nil {
		err = agree(old)
	}
	if err == nil {
		err = p.dress(old)
	}
	if err == nil && !p.cond.NoDurable {
		err = beneath.Fsync(p.s.fd, false)
	}
	if err == nil {
		err = p.move(old)
	}
	if err != nil {
		return res, err
	}
	if res.existed = old != nil; res.existed {
		p.l.NotMade()
	}
	res.info, err = beneath.Stat(p.s.fd)
	if err == nil && old == nil {
		dir, _ := p.path.Split()
		p.l.Made(res.info.ID())
		p.l.MadeName(p.d.Rel(dir.Rel()), p.base, res.info.ID(), false)
	}
	return res, err
}

// again judges the name once more, in roots with patterns: while the contents
// came the directory may have been moved, and the patterns may have changed.
// Until release nobody moves it.
func (p *replacement) again() (release func(), err error) {
	release, err = p.l.Making(p.ctx)
	if err != nil || !p.l.Patterned() {
		return release, err
	}
	d, _, err := beneath.ParentFor(p.l, p.path, guard.ToMake)
	if err == nil {
		var now, then Info
		if now, err = beneath.Stat(d.FD); err == nil {
			then, err = beneath.Stat(p.d.FD)
		}
		if err == nil && now.ID() != then.ID() {
			err = &guard.Error{Kind: names.Conflict}
		}
		d.Close()
	}
	if err == nil {
		err = p.l.Current()
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// dress makes the staged file look as the file of that name should.
func (p *replacement) dress(old *Info) error {
	if old != nil {
		return p.imitate(p.s.fd, old)
	}
	if mode := p.newMode(); p.s.mode != mode {
		return beneath.Chmod(p.s.fd, mode) // there was a file when it was staged
	}
	return nil
}

// imitate makes the new file like the old one. The owner can be kept only by
// root; a user's file stays the user's.
func (p *replacement) imitate(fd int, old *Info) error {
	src, err := beneath.OpenChild(p.d, p.base)
	if err != nil {
		return err
	}
	defer beneath.Close(src)
	now, err := beneath.Stat(src)
	if err != nil {
		return err
	}
	if now.ID() != old.ID() {
		return &guard.Error{Kind: names.Conflict}
	}
	if err := beneath.Chown(fd, int(old.UID), int(old.GID)); err != nil && err != unix.EPERM { //nolint:errorlint // bare errno
		return err
	}
	// The directory's default ACL gave the new file one, which the old may
	// not have.
	const acl = "system.posix_acl_access"
	hasACL := false
	if list, err := beneath.Listxattr(src); err == nil {
		for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
			if name == "" || xattrAllowed(p.l, name, true) != nil {
				continue
			}
			hasACL = hasACL || name == acl
			if err := beneath.CopyXattr(src, fd, name); err != nil {
				return err
			}
		}
	}
	if !hasACL {
		_ = beneath.Removexattr(fd, acl) // most files have none
	}
	return beneath.Chmod(fd, safeMode(p.l, old.Mode&07777))
}

// move puts the new file in place, if the old one is still as it was.
func (p *replacement) move(old *Info) error {
	dir, _ := p.path.Split()
	put := func() error { return p.t.place(p.s, p.d, dir, p.base, old != nil) }
	err := error(nil)
	if old == nil {
		err = put()
	} else {
		checked := func() error {
			now, err := beneath.StatIn(p.d, p.base)
			if err != nil {
				return err
			}
			if now.ID() != old.ID() || p.cond.ETag != "" && ETag(&now) != p.cond.ETag {
				return &guard.Error{Kind: names.Conflict}
			}
			return put()
		}
		if p.cond.RespectLocks {
			err = p.unlocked(old, checked)
		} else {
			err = checked()
		}
	}
	if err != nil || p.cond.NoDurable {
		return err
	}
	fd, err := beneath.OpenDirFD(p.d)
	if err != nil {
		return err
	}
	defer beneath.Close(fd)
	return beneath.Fsync(fd, false)
}

// unlocked runs f while nobody else holds a lock on the file, or returns Locked.
func (p *replacement) unlocked(old *Info, f func() error) error {
	fd, info, err := beneath.OpenFile(p.d, p.base, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer beneath.Close(fd)
	if info.ID() != old.ID() {
		return &guard.Error{Kind: names.Conflict}
	}
	if err := claim(fd); err != nil {
		return err
	}
	return f()
}

// claim takes the whole-file lock of flock(2) on an open file, for as long as it
// is open, and checks that nobody holds a lock of fcntl(2). File systems without
// locks have nobody holding any.
func claim(fd int) error {
	if lk, err := beneath.OFDConflict(fd, unix.F_WRLCK, 0, 0); err == nil && lk.Type != unix.F_UNLCK {
		return &guard.Error{Kind: names.Locked}
	}
	if err := beneath.Flock(fd, unix.LOCK_EX); err == unix.EAGAIN { //nolint:errorlint // bare errno
		return &guard.Error{Kind: names.Locked}
	}
	return nil
}
