package vfs

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
	"github.com/rootsfs/rootsfs/vfs/internal/wholefile"
)

// processKey authenticates etags and the cursors of listings: without it they could be forged, and
// etags would reveal inode numbers. The key, and so every etag and cursor, ends with the daemon.
var processKey = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	return key
})

// ETag names one state of a file: it changes when the file's contents or attributes change, or
// another file takes its place. While the file is open for writing, it has another etag than
// afterwards. So an etag from the middle of a write matches no later state. The size of a
// directory does not count: Stat shows none where names may be hidden.
func ETag(info *Info) string {
	size := info.Size
	if info.IsDir() {
		size = 0
	}
	mac := hmac.New(sha256.New, processKey())
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

// IfMatch has the conditions under which a file gets new contents, and the options of that write.
type IfMatch struct {
	ETag      string // the file must be in this state; "": any
	MustExist bool
	MustBeNew bool
	Mode      uint32 // of a new file
	NoDurable bool   // leave out the fsyncs: after a crash of the machine the file may be empty
	// Follow makes Replace follow links, also one in the last element of the path. Without
	// Follow, Replace refuses a path with links. Uploads always follow links.
	Follow bool
	// RespectLocks refuses the replacement (Locked) if the old file has a lock of flock(2) or
	// fcntl(2) that conflicts with a writer's: the lock of another process, or of an open file
	// of a mount that forwards its locks.
	RespectLocks bool
}

// access returns the kind of access to the name that a write under the condition needs. A write
// that makes no file must not reveal whether the name is hidden, so a hidden name gets the same
// refusal as a missing one.
func (m IfMatch) access() rules.Access {
	if m.MustExist || m.ETag != "" {
		return rules.ToChange
	}
	return rules.ToMake
}

// need returns the rights that the condition needs beside those of the operation.
func (m IfMatch) need() (need guard.Rights) {
	if m.MustExist {
		need |= guard.Write
	}
	if m.MustBeNew {
		need |= guard.Create
	}
	return need
}

// Replace gives a file new contents, all at once. They are written to a file without a name,
// which gets the mode, owner, attributes and ACL of the old file, is flushed to the disk, and
// takes the old file's place. A reader finds the old contents or the new ones, also if this
// process dies. Hard links of the old file keep the old contents. The etag is compared
// immediately before the new file takes the name. Replacements, uploads and WriteRange
// through one Tree exclude each other during these two steps, so among them no update is lost.
//
// r is read to its end or first error, by one goroutine. If Replace returns early, because the
// root's file system hangs, one more Read of r may follow.
func (t *Tree) Replace(ctx context.Context, c guard.Caller, at At, r io.Reader, cond IfMatch) (Info, error) {
	return t.replaceFrom(ctx, c, at, cond, nil, func(p *replacement) error { return p.Fill(r) })
}

// chargeFunc is called before n more bytes are written to a file that then has size bytes;
// see CopyOptions.
type chargeFunc func(ctx context.Context, n, size int64) error

// replaceFrom is Replace for contents that the function write writes.
func (t *Tree) replaceFrom(ctx context.Context, c guard.Caller, at At, cond IfMatch, extraCharge chargeFunc, write func(p *replacement) error) (Info, error) {
	req := guard.Request{Caller: c, Op: names.OpReplace, Path: at.Path, Epoch: at.Epoch, Need: cond.need(), Names: 1}
	return t.gateReplace(ctx, req, at.Path, func(l *guard.Lease) (placement, error) {
		run := func(q guard.Path) (placement, error) {
			p := &replacement{t: t, ctx: ctx, l: l, c: c, path: q, cond: cond, extraCharge: extraCharge}
			return p.run(nil, func() error { return write(p) })
		}
		if !cond.Follow {
			return run(at.Path)
		}
		return withFollowed(ctx, l, at.Path, true, run)
	})
}

// placement is the result of putting a file in place.
type placement struct {
	path    guard.Path // the name, without links
	info    Info
	existed bool  // a file had the name before
	size    int64 // bytes written
	hold    *guard.Hold
}

// gateReplace runs f behind the gate. f replaces the file at the path asked. gateReplace also
// records the write if the gate does not, see recordWrite.
func (t *Tree) gateReplace(ctx context.Context, req guard.Request, asked guard.Path, f func(l *guard.Lease) (placement, error)) (Info, error) {
	res, err := gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (placement, int64, error) {
		res, err := f(l)
		return res, res.size, err
	})
	if err == nil && res.existed {
		t.recordWrite(res.hold, req.Caller, asked, res.path, res.size)
	}
	return res.info, err
}

// recordWrite records a successful write of n bytes to a path, if the gate leaves no record of
// the write. The gate leaves none if the name existed (guard.Notes.Existing), and none for an
// OpWrite, because the record of a close usually has its bytes. So every write to a path leaves
// one record. The record is about the file at q, to which the links of asked led.
func (t *Tree) recordWrite(h *guard.Hold, c guard.Caller, asked, q guard.Path, n int64) {
	t.reg.Closed(h, c, q, 0, n, guard.RequestedPath(asked, q), 0)
}

// replacement is one file about to take a name.
type replacement struct {
	t    *Tree
	ctx  context.Context
	l    *guard.Lease
	c    guard.Caller
	path guard.Path // without links
	d    beneath.Dir
	base string // path's last element, in d
	cond IfMatch
	// extraCharge, unless nil, is called in addition to the quotas; see CopyOptions.Charge.
	extraCharge chargeFunc
	s           *wholefile.Prepared
	wholefile.Copier
	// agree, unless nil, is called before the new file gets the name, with the file that has
	// it, or nil if there is none. It may refuse the replacement.
	agree func(now *Info) error
}

// run calls write, which writes the contents and charges them, and puts the file in place.
// check, unless nil, is called before anything is written, with the file that has the name, or nil
// if there is none. check may refuse the replacement.
func (p *replacement) run(check func(old *Info) error, write func() error) (placement, error) {
	if err := p.begin(check); err != nil {
		return placement{}, err
	}
	defer p.d.Close()
	defer p.s.Drop(p.l, p.d)
	p.Copier = wholefile.Copier{Ctx: p.ctx, Lease: p.l, To: p.s.Changeable, Charge: func(n, size int64) error { return p.l.Charges().Add(n, size, 0) }}
	if p.extraCharge != nil {
		alive, stop := p.l.Life().UntilEnd(p.ctx)
		defer stop()
		p.Charge = func(n, size int64) error { return p.chargeAll(alive, n, size) }
	}
	if err := write(); err != nil {
		return placement{size: p.Wrote()}, err
	}
	return p.commit()
}

// chargeAll charges n bytes that are about to be written, to the quotas and to extraCharge. When
// the lease ends, it gives back to the quotas the bytes that were charged and not written.
func (p *replacement) chargeAll(alive context.Context, n, size int64) error {
	err := p.l.Charges().Add(n, size, 0)
	if err == nil {
		err = p.extraCharge(alive, n, size)
	}
	if end := p.l.Life().Ended(p.ctx); err != nil && end != nil {
		return end
	}
	return err
}

// begin resolves the path and prepares the new file. It refuses early what commit would refuse, so
// that no contents are sent in vain.
func (p *replacement) begin(check func(old *Info) error) (err error) {
	if p.d, p.base, err = beneath.Parent(p.l, p.path, p.cond.access()); err != nil {
		return err
	}
	old, err := checkExisting(p.l, p.d, p.base, p.cond, guard.Write)
	if err == nil && check != nil {
		err = check(old)
	}
	if err == nil && old != nil {
		err = p.t.claims.AwaitWriters(p.ctx, p.l, old.ID())
		if err == nil && p.cond.RespectLocks {
			err = withFileLock(p.l, p.d, p.base, old, func() error { return nil })
		}
	}
	if err == nil {
		mode := p.newMode()
		if old != nil {
			mode = 0o600 // nobody reads it before it has the old one's mode
		}
		dir, _ := p.path.Split()
		p.s, err = p.t.preparer.Prepare(p.l, p.d, dir, mode, owner(p.c))
	}
	if err != nil {
		p.d.Close()
		return err
	}
	return nil
}

func (p *replacement) newMode() uint32 { return applyUmask(p.c, p.d, p.cond.Mode&0o777) }

// checkExisting looks at the file that is to be written. It refuses the write if the condition does
// not hold, a right is missing, or the file is of a wrong kind. If there is no file and one may be
// created, checkExisting returns nil. need is the right that changing the file requires.
func checkExisting(l *guard.Lease, d beneath.Dir, base string, cond IfMatch, need guard.Rights) (*Info, error) {
	info, err := beneath.StatIn(d, base)
	switch {
	case err == unix.ENOENT: //nolint:errorlint // bare errno
		if cond.MustExist || cond.ETag != "" {
			return nil, err
		}
		if l.Narrowest()&guard.Create == 0 {
			return nil, l.Denied(guard.Create)
		}
		return nil, nil
	case err != nil:
		return nil, err
	case cond.MustBeNew:
		return nil, unix.EEXIST
	}
	if err := walk.Visible(l, &info); err != nil {
		return nil, err
	}
	switch info.Type() {
	case unix.S_IFDIR:
		return nil, unix.EISDIR
	case unix.S_IFLNK:
		if cond.Follow {
			return nil, unix.ELOOP
		}
		return nil, &guard.Error{Kind: names.Escaped, Err: unix.ELOOP}
	}
	if l.Narrowest()&need != need {
		return nil, l.Denied(need)
	}
	if cond.ETag != "" && cond.ETag != ETag(&info) {
		return nil, &guard.Error{Kind: names.Conflict}
	}
	return &info, nil
}

// commit puts the prepared file in place, excluding everybody else who changes
// the name through this tree.
func (p *replacement) commit() (placement, error) {
	res := placement{path: p.path, size: p.Wrote(), hold: p.l.HoldAt(p.path)}
	release, err := p.judgeAgain()
	if err != nil {
		return res, err
	}
	defer release()
	unlock, err := p.t.claims.LockName(p.ctx, p.l, p.d, p.base)
	if err != nil {
		return res, err
	}
	defer unlock()
	old, err := checkExisting(p.l, p.d, p.base, p.cond, guard.Write)
	if err == unix.ELOOP { //nolint:errorlint // bare errno
		err = &guard.Error{Kind: names.Conflict} // a link now; it is too late to follow it
	}
	if err == nil && p.agree != nil {
		err = p.agree(old)
	}
	if err == nil {
		err = p.applyAttributes(old)
	}
	if err == nil && !p.cond.NoDurable {
		err = beneath.Fsync(p.l, p.s.Changeable, false)
	}
	if err != nil {
		return res, err
	}
	// An opening of the new file for writing waits until its etag has been taken. Otherwise the
	// etag would cover writes that its receiver has never seen.
	prepared, err := beneath.Stat(p.l, p.s.FD())
	if err != nil {
		return res, err
	}
	settle, err := p.t.claims.BeginReplacing(p.ctx, p.l, prepared.ID())
	if err != nil {
		return res, err
	}
	defer settle(false)
	if err := p.put(old); err != nil {
		return res, err
	}
	if res.existed = old != nil; res.existed {
		p.l.Notes().Existing()
	}
	res.info, err = beneath.Stat(p.l, p.s.FD())
	if err == nil && old == nil {
		dir, _ := p.path.Split()
		p.l.Notes().Created(res.info.ID())
		p.l.Notes().Name(p.d.Rel(dir.Rel()), p.base, res.info.ID(), false)
	}
	return res, err
}

// judgeAgain judges the name once more, in roots with patterns: while the contents were
// coming the directory may have been moved, and the patterns may have changed. Until release is
// called, nobody moves the directory.
func (p *replacement) judgeAgain() (release func(), err error) {
	release, err = p.l.Making(p.ctx)
	if err != nil || !p.l.Judge().Patterned() {
		return release, err
	}
	d, _, err := beneath.Parent(p.l, p.path, p.cond.access())
	if err == nil {
		var now, then Info
		if now, err = d.Stat(p.l); err == nil {
			then, err = p.d.Stat(p.l)
		}
		if err == nil && now.ID() != then.ID() {
			err = &guard.Error{Kind: names.Conflict}
		}
		d.Close()
	}
	if err == nil {
		err = p.l.Judge().Current()
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// applyAttributes gives the prepared file the attributes of the old one. If old is nil, the prepared
// file gets the mode of a new file.
func (p *replacement) applyAttributes(old *Info) error {
	if old != nil {
		return p.copyAttributes(old)
	}
	if mode := p.newMode(); p.s.Mode != mode {
		return beneath.Chmod(p.l, p.s.Changeable, mode) // the file was prepared while there was an old one
	}
	return nil
}

// copyAttributes gives the new file the mode, owner, attributes and ACL of the old one. Only a
// daemon that runs as root can set the owner. Otherwise the file belongs to the daemon's user.
func (p *replacement) copyAttributes(old *Info) error {
	src, err := beneath.OpenChild(p.d, p.base)
	if err != nil {
		return err
	}
	defer src.Close()
	now, err := src.Stat(p.l)
	if err != nil {
		return err
	}
	if now.ID() != old.ID() {
		return &guard.Error{Kind: names.Conflict}
	}
	if err := beneath.Chown(p.l, p.s.Changeable, int(old.UID), int(old.GID)); err != nil && err != unix.EPERM { //nolint:errorlint // bare errno
		return err
	}
	// The new file may have an ACL from the directory's default ACL, and the old file none.
	const acl = "system.posix_acl_access"
	hasACL := false
	if list, err := beneath.Listxattr(src.FD()); err == nil {
		for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
			if name == "" || checkXattr(p.l, name, true) != nil {
				continue
			}
			hasACL = hasACL || name == acl
			if err := beneath.CopyXattr(p.l, src.FD(), p.s.Changeable, name); err != nil {
				return err
			}
		}
	}
	if !hasACL {
		_ = beneath.Removexattr(p.l, p.s.Changeable, acl) // most files have none
	}
	return beneath.Chmod(p.l, p.s.Changeable, safeMode(p.l, old.Mode&07777))
}

// put gives the new file its name, if the name still belongs to the old file, or is still free if
// old is nil.
func (p *replacement) put(old *Info) error {
	dir, _ := p.path.Split()
	var err error
	if old == nil {
		err = p.t.preparer.Publish(p.l, p.s, p.d, dir, p.base, false)
	} else {
		err = p.replace(old, dir)
	}
	if err != nil || p.cond.NoDurable {
		return err
	}
	return beneath.SyncDir(p.l, p.d)
}

// replace puts the new file in the place of the old one.
func (p *replacement) replace(old *Info, dir guard.Path) error {
	replace := func() error {
		now, err := beneath.StatIn(p.d, p.base)
		if err != nil {
			return err
		}
		if now.ID() != old.ID() || p.cond.ETag != "" && ETag(&now) != p.cond.ETag {
			return &guard.Error{Kind: names.Conflict}
		}
		if p.agree != nil {
			if err := p.agree(&now); err != nil {
				return err
			}
		}
		end, err := p.t.trash.Keep(p.ctx, p.l, p.d, p.base, relIn(p.d, dir, p.base))
		if err != nil {
			return err
		}
		return end(p.t.preparer.Publish(p.l, p.s, p.d, dir, p.base, true))
	}
	done, err := p.t.claims.BeginReplacing(p.ctx, p.l, old.ID())
	if err != nil {
		return err
	}
	if p.cond.RespectLocks {
		err = withFileLock(p.l, p.d, p.base, old, replace)
	} else {
		err = replace()
	}
	done(err == nil && old.Nlink <= 1)
	return err
}
