package vfs

import (
	"context"
	"errors"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

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
	size int64 // of the new contents so far
	// wrote is how much of it was written: the rest are holes.
	wrote  int64
	charge func(ctx context.Context, n, size int64) error // of CopyHow, or nil
	// uncharged: the file counts towards no quota, and ends where it ended at first.
	uncharged bool
	alive     context.Context // ends with ctx or the root; for charge
}

// early refuses at the beginning, to spare the contents a way in vain, what will
// be refused again at the end.
func (p *replacement) early(old *Info) error {
	if old == nil {
		return nil
	}
	if err := p.t.claims.AwaitWriters(p.ctx, p.l, old.ID()); err != nil || !p.cond.RespectLocks {
		return err
	}
	return withFileLock(p.l, p.d, p.base, old, func() error { return nil })
}

// untilDead makes the context that charge may wait in.
func (p *replacement) untilDead() (stop func()) {
	if p.charge == nil {
		return func() {}
	}
	alive, cancel := context.WithCancel(p.ctx)
	p.alive = alive
	dead := p.l.Dead() // now: afterwards the lease may be another's
	go func() {
		select {
		case <-dead:
			cancel()
		case <-alive.Done():
		}
	}()
	return cancel
}

// take charges n bytes that are about to be written, which makes the file size
// bytes long. What was charged and not written the lease gives back at the end.
func (p *replacement) take(n, size int64) error {
	if p.uncharged {
		return nil
	}
	if err := p.l.Charge(n, size, 0); err != nil {
		return err
	}
	if p.charge == nil {
		return nil
	}
	err := p.charge(p.alive, n, size)
	if end := walk.Ended(p.ctx, p.l); err != nil && end != nil {
		return end
	}
	return err
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
	if err := walk.Visible(p.l, info); err != nil {
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
	return p.t.stage(p.l, p.d, dir, mode, owner(p.c))
}

func (p *replacement) newMode() uint32 { return umasked(p.c, p.d, p.cond.Mode&0o777) }

func (p *replacement) fill(r io.Reader) error {
	buf := make([]byte, 256<<10)
	h, holes := r.(holed)
	for {
		if holes {
			if err := p.skip(h); err != nil {
				return err
			}
		}
		n, err := r.Read(buf)
		if n > 0 {
			if err := p.take(int64(n), p.size+int64(n)); err != nil {
				return err
			}
			w, werr := beneath.Pwritev(p.l, p.s.fd, [][]byte{buf[:n]}, p.size, false)
			p.size, p.wrote = p.size+int64(w), p.wrote+int64(w)
			if werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if end := walk.Ended(p.ctx, p.l); end != nil {
			return end
		}
		if err != nil {
			return err
		}
	}
	if holes {
		return beneath.Truncate(p.l, p.s.fd, p.size) // which may end in one
	}
	return nil
}

// skip leaves a hole where the source has one.
func (p *replacement) skip(h holed) error {
	off, err := h.skip()
	if err == nil && off > p.size {
		err = p.take(0, off)
		p.size = off
	}
	if end := walk.Ended(p.ctx, p.l); err != nil && end != nil {
		return end
	}
	return err
}

// commit puts the staged file in place, excluding everybody else who changes
// the name through this tree. agree, unless nil, has the last word about what is
// there.
func (p *replacement) commit(agree func(old *Info) error) (placed, error) {
	res := placed{size: p.wrote, hold: p.l.HoldAt(p.path)}
	release, err := p.again()
	if err != nil {
		return res, err
	}
	defer release()
	unlock, err := p.t.claims.LockName(p.ctx, p.l, p.d, p.base)
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
		err = beneath.Fsync(p.l, p.s.fd, false)
	}
	// Whoever opens the new file for writing waits until its etag has been
	// taken, or the etag would be good for writes that its receiver never saw.
	settle := func() {}
	if err == nil {
		settle, err = p.unsettled()
	}
	defer func() { settle() }()
	if err == nil {
		err = p.move(old, agree)
	}
	if err != nil {
		return res, err
	}
	if res.existed = old != nil; res.existed {
		p.l.NoteExisting()
	}
	res.info, err = beneath.Stat(p.s.fd)
	if err == nil && old == nil {
		dir, _ := p.path.Split()
		p.l.NoteCreated(res.info.ID())
		p.l.NoteName(p.d.Rel(dir.Rel()), p.base, res.info.ID(), false)
	}
	return res, err
}

// unsettled keeps writers from the staged file until settle is called.
func (p *replacement) unsettled() (settle func(), err error) {
	info, err := beneath.Stat(p.s.fd)
	if err != nil {
		return func() {}, err
	}
	done, err := p.t.claims.BeginReplacing(p.ctx, p.l, info.ID())
	if err != nil {
		return func() {}, err
	}
	return func() { done(false) }, nil
}

// again judges the name once more, in roots with patterns: while the contents
// came the directory may have been moved, and the patterns may have changed.
// Until release nobody moves it.
func (p *replacement) again() (release func(), err error) {
	release, err = p.l.Making(p.ctx)
	if err != nil || !p.l.Patterned() {
		return release, err
	}
	d, _, err := beneath.ParentFor(p.l, p.path, p.cond.access())
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
		return beneath.Chmod(p.l, p.s.fd, mode) // there was a file when it was staged
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
	if err := beneath.Chown(p.l, fd, int(old.UID), int(old.GID)); err != nil && err != unix.EPERM { //nolint:errorlint // bare errno
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
			if err := beneath.CopyXattr(p.l, src, fd, name); err != nil {
				return err
			}
		}
	}
	if !hasACL {
		_ = beneath.Removexattr(p.l, fd, acl) // most files have none
	}
	return beneath.Chmod(p.l, fd, safeMode(p.l, old.Mode&07777))
}

// move puts the new file in place, if the old one is still as it was.
func (p *replacement) move(old *Info, agree func(*Info) error) error {
	dir, _ := p.path.Split()
	put := func() error { return p.t.place(p.l, p.s, p.d, dir, p.base, old != nil) }
	if old != nil {
		put = func() error {
			k, err := p.t.keep(p.ctx, p.l, p.d, p.base, relIn(p.d, dir, p.base))
			if err != nil {
				return err
			}
			return k.end(p.t.place(p.l, p.s, p.d, dir, p.base, true))
		}
	}
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
			if agree != nil {
				if err := agree(&now); err != nil {
					return err
				}
			}
			return put()
		}
		done, err := p.t.claims.BeginReplacing(p.ctx, p.l, old.ID())
		if err != nil {
			return err
		}
		if p.cond.RespectLocks {
			err = withFileLock(p.l, p.d, p.base, old, checked)
		} else {
			err = checked()
		}
		done(err == nil && old.Nlink <= 1)
		if err != nil {
			return err
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
	return beneath.Fsync(p.l, fd, false)
}
