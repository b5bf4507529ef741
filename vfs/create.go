package vfs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

func owner(c guard.Caller) beneath.Owner {
	if c.FileOwner != nil {
		return beneath.Owner(*c.FileOwner)
	}
	return beneath.Owner{UID: c.UID, GID: c.GID}
}

// safeMode drops the set-id bits from the mode of a file that is no directory, unless the grant
// has full POSIX: the mount is nosuid, but the source is not.
func safeMode(l *guard.Lease, mode uint32) uint32 {
	if l.PosixFull() {
		return mode
	}
	return mode &^ (unix.S_ISUID | unix.S_ISGID)
}

// applyUmask removes the caller's umask from a mode, unless the directory has a default ACL, which
// replaces the umask (acl(5), "Object creation").
func applyUmask(c guard.Caller, d beneath.Dir, mode uint32) uint32 {
	if c.Umask == 0 || mode&c.Umask == 0 || beneath.HasDefaultACL(d) {
		return mode
	}
	return mode &^ c.Umask
}

// maker makes a name in an open directory.
type maker func(l *guard.Lease, d beneath.Dir, name string) (Info, error)

// createName runs one operation that makes a name.
func (t *Tree) createName(ctx context.Context, c guard.Caller, op guard.Op, dir At, name string, f maker) (Info, error) {
	p, err := t.child(op, dir, name)
	if err != nil {
		return Info{}, err
	}
	req := guard.Request{Caller: c, Op: op, Path: p, Epoch: dir.Epoch, Names: 1}
	return whileMaking(ctx, t, req, func(l *guard.Lease) (Info, error) { return makeIn(l, dir, name, f) })
}

// whileMaking passes an operation that makes a name through the gate. No directory is moved
// meanwhile (Lease.Making).
func whileMaking[T any](ctx context.Context, t *Tree, req guard.Request, f func(l *guard.Lease) (T, error)) (T, error) {
	return gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (v T, n int64, err error) {
		unlock, err := l.Making(ctx)
		if err != nil {
			return v, 0, err
		}
		defer unlock()
		v, err = f(l)
		return v, 0, err
	})
}

// makePath is createName for a path. It follows the links in all elements but the last.
func (t *Tree) makePath(ctx context.Context, c guard.Caller, op guard.Op, p guard.Path, f maker) (Info, error) {
	req := guard.Request{Caller: c, Op: op, Path: p, Names: 1}
	return whileMaking(ctx, t, req, func(l *guard.Lease) (Info, error) {
		return withFollowed(ctx, l, p, false, func(q guard.Path) (Info, error) {
			if q.IsRoot() {
				return Info{}, unix.EEXIST
			}
			dir, name := q.Split()
			return makeIn(l, At{Path: dir}, name, f)
		})
	})
}

// makeIn resolves a directory and makes a name in it. The caller has called Lease.Making, so
// the directory is not moved meanwhile.
func makeIn(l *guard.Lease, dir At, name string, f maker) (Info, error) {
	d, err := parentAt(l, dir, name, l.Judge().Access())
	if err != nil {
		return Info{}, err
	}
	defer d.Close()
	return makeName(l, d.Rel(dir.Path.Rel()), name, func() (Info, error) { return f(l, d, name) })
}

// makeName lets f make a name in the directory that lies at dir below the root, and notes the
// name in the lease.
func makeName(l *guard.Lease, dir, name string, f func() (Info, error)) (Info, error) {
	start := time.Now()
	info, err := f()
	if err == nil && bornSince(l, &info, start) {
		l.Notes().Created(info.ID())
		l.Notes().Name(dir, name, info.ID(), info.IsDir())
	}
	return info, err
}

// bornSince reports whether the file that was found under a new name is the one that was
// created: another file may have been renamed to this name in between. Local file systems take
// birth times from this machine's clock, which may lag by a tick. For remote file systems, and
// those without birth times, bornSince reports true.
func bornSince(l *guard.Lease, info *Info, start time.Time) bool {
	birth := info.ID().Birth
	return birth == 0 || l.Source().Remote() || birth > start.Add(-time.Second).UnixNano()
}

// Mkdir makes a directory.
func (t *Tree) Mkdir(ctx context.Context, c guard.Caller, dir At, name string, mode uint32) (Info, error) {
	return t.createName(ctx, c, names.OpMkdir, dir, name, func(l *guard.Lease, d beneath.Dir, name string) (Info, error) {
		return beneath.Mkdir(l, d, name, applyUmask(c, d, mode&07777), owner(c))
	})
}

// Mknod makes a regular file or a socket, and with full POSIX also FIFOs and devices. Without
// full POSIX it refuses FIFOs and devices: they would be hidden, and would work on the source. A
// socket does not work on the source: the kernel finds the listener by the inode of the mount in
// which the socket was bound.
func (t *Tree) Mknod(ctx context.Context, c guard.Caller, dir At, name string, mode, dev uint32) (Info, error) {
	return t.createName(ctx, c, names.OpMknod, dir, name, func(l *guard.Lease, d beneath.Dir, name string) (Info, error) {
		perm, kind := applyUmask(c, d, safeMode(l, mode&07777)), mode&unix.S_IFMT
		switch {
		case l.PosixFull() || kind == unix.S_IFREG || kind == 0:
		case kind == unix.S_IFSOCK:
			perm |= walk.SocketMark
		default:
			return Info{}, &guard.Error{Kind: names.Permission, Err: unix.EPERM}
		}
		info, err := beneath.Mknod(l, d, name, kind|perm, dev, owner(c))
		walk.Present(l, &info)
		return info, err
	})
}

// CreateFile makes an empty regular file. The name must be free (Exist). With parents it also
// makes the directories above (see MkdirAll). It does not follow a link of that name.
func (t *Tree) CreateFile(ctx context.Context, c guard.Caller, p guard.Path, mode uint32, parents bool) (Info, error) {
	if dir, _ := p.Split(); parents && !p.IsRoot() && !dir.IsRoot() {
		if _, _, err := t.MkdirAll(ctx, c, dir, 0o777&^c.Umask); err != nil {
			return Info{}, err
		}
	}
	return t.makePath(ctx, c, names.OpCreate, p, func(l *guard.Lease, d beneath.Dir, base string) (Info, error) {
		w, info, err := beneath.CreateFile(l, d, base, unix.O_WRONLY, applyUmask(c, d, safeMode(l, mode&07777)), owner(c))
		w.Close()
		return info, err
	})
}

// MkdirPath makes one directory. Links in the directories above are followed, if they stay in
// the root. If the path itself exists, even as a link, the error is EEXIST.
func (t *Tree) MkdirPath(ctx context.Context, c guard.Caller, p guard.Path, mode uint32) (Info, error) {
	return t.makePath(ctx, c, names.OpMkdir, p, func(l *guard.Lease, d beneath.Dir, base string) (Info, error) {
		return beneath.Mkdir(l, d, base, applyUmask(c, d, mode&07777), owner(c))
	})
}

// mkdirResult is the result of MkdirAll.
type mkdirResult struct {
	info      Info
	isCreated bool
}

// MkdirAll makes a directory, and the missing directories above it. created is false if the
// directory was there already. The error is Exist if something else has its name, and NotDir if
// something else has the name of a directory above it. After an error, directories already made
// stay, as with mkdir -p. Directories that are missing in the target of a link are not made.
func (t *Tree) MkdirAll(ctx context.Context, c guard.Caller, p guard.Path, mode uint32) (info Info, created bool, err error) {
	req := guard.Request{Caller: c, Op: names.OpMkdir, Path: p, Names: 1}
	d, err := whileMaking(ctx, t, req, func(l *guard.Lease) (mkdirResult, error) {
		d, err := mkdirAll(ctx, l, c, p, mode&07777)
		if err == nil && !d.isCreated {
			l.Notes().Existing()
		}
		return d, err
	})
	return d.info, d.isCreated, err
}

func mkdirAll(ctx context.Context, l *guard.Lease, c guard.Caller, p guard.Path, mode uint32) (mkdirResult, error) {
	w := follower{ctx: ctx, l: l}
	defer func() { w.d.Close() }()
	err := w.walk(p, true)
	if !w.fromLink {
		err = rules.AsCreateRefusal(err) // no element of a link's target is created, so its refusal stays
	}
	switch {
	case err == nil && l.Source().File() != "":
		return mkdirResult{}, unix.EEXIST
	case err == nil && len(w.todo) == 0:
		if err := l.Judge().Dir(w.rel()); err != nil {
			if !w.fromLink {
				err = rules.AsCreateRefusal(err)
			}
			return mkdirResult{}, err
		}
		info, err := w.d.Stat(l)
		return mkdirResult{info: info}, err
	case err == nil:
		access := rules.ToMake
		if w.fromLink {
			access = rules.ToLook
		}
		if err := beneath.Judge(l, w.d, w.rel(), w.todo[0].name, access); err != nil {
			return mkdirResult{}, err
		}
		_, err := beneath.StatIn(w.d, w.todo[0].name)
		if err == nil {
			err = unix.EEXIST // also for a hidden file: the name is taken
		}
		if err != unix.ENOENT { //nolint:errorlint // bare errno
			return mkdirResult{}, err
		}
	case err != unix.ENOENT: //nolint:errorlint // bare errno
		return mkdirResult{}, err
	}
	for _, s := range w.todo {
		if s.fromLink {
			return mkdirResult{}, unix.ENOENT
		}
	}
	if more := len(w.todo) - 1; more > 0 {
		if err := l.Charges().Add(0, 0, int64(more)); err != nil {
			return mkdirResult{}, err
		}
	}
	return w.mkdirs(c, mode)
}

// mkdirs makes a directory for each element that is left in todo, each in the one before.
func (w *follower) mkdirs(c guard.Caller, mode uint32) (res mkdirResult, err error) {
	for len(w.todo) > 0 {
		name := w.todo[len(w.todo)-1].name
		if res.isCreated, res.info, err = w.mkdir(c, mode); err != nil {
			return mkdirResult{}, err
		}
		w.at = append(w.at, name)
		w.pop()
	}
	return res, nil
}

// mkdir makes the next directory and enters it.
func (w *follower) mkdir(c guard.Caller, mode uint32) (created bool, info Info, err error) {
	if err := w.l.Life().Ended(w.ctx); err != nil {
		return false, Info{}, err
	}
	name := w.todo[len(w.todo)-1].name
	if err := w.l.Judge().Name(w.rel(), name); err != nil { // the name is missing, so it has no other spelling to judge
		return false, Info{}, err
	}
	if len(w.todo) > 1 {
		mode |= 0o300 // or nothing could be made in it
	}
	_, err = makeName(w.l, w.rel(), name, func() (Info, error) {
		return beneath.Mkdir(w.l, w.d, name, applyUmask(c, w.d, mode), owner(c))
	})
	if err != nil && err != unix.EEXIST { //nolint:errorlint // bare errno
		return false, Info{}, err
	}
	created = err == nil
	d, info, err := beneath.Step(w.l, w.d, name)
	if err != nil {
		return created, info, err
	}
	if !info.IsDir() {
		d.Close()
		return created, info, unix.ENOTDIR
	}
	w.d.Close()
	w.d = d
	return created, info, nil
}

// Create makes a regular file and opens it. Without O_EXCL in flags it opens an existing one
// instead (created is false).
func (t *Tree) Create(ctx context.Context, c guard.Caller, dir At, name string, flags int, mode uint32) (f *File, info Info, created bool, err error) {
	p, err := t.child(names.OpCreate, dir, name)
	if err != nil {
		return nil, Info{}, false, err
	}
	req := guard.Request{Caller: c, Op: names.OpCreate, Path: p, Epoch: dir.Epoch, Names: 1, OpensForWriting: writesTo(flags)}
	for range maxExchanges {
		f, info, err = t.gateOpen(ctx, req, func(l *guard.Lease) (opened, error) {
			o, err := t.createFile(ctx, l, c, dir, p, flags, mode)
			if err != unix.EEXIST || flags&unix.O_EXCL != 0 { //nolint:errorlint // bare errno
				return o, err
			}
			// Not a failure: the name is opened instead, and the opening is recorded.
			if err = l.Notes().ContinueAsOpen(openNeed(flags)); err == nil {
				o, err = t.open(ctx, l, c, At{Path: p}, flags)
			}
			if names.Reason(err) == names.NotExist {
				err = errVanished
			}
			return o, err
		})
		if err == nil {
			return f, info, f.created, nil
		}
		if !errors.Is(err, errVanished) {
			return nil, Info{}, false, err
		}
	}
	return nil, Info{}, false, &guard.Error{Op: names.OpCreate, Path: p, Kind: names.Conflict, Err: unix.ESTALE}
}

// errVanished means that Create could not make the file, because it existed, and then could
// not open it, because it was gone. Create then tries again.
var errVanished = fmt.Errorf("the file comes and goes: %w", unix.ESTALE)

// createFile makes and opens the file for Create. EEXIST means that the file existed, or that
// another file has replaced the new one.
func (t *Tree) createFile(ctx context.Context, l *guard.Lease, c guard.Caller, dir At, p guard.Path, flags int, mode uint32) (opened, error) {
	room, err := t.shares.reserve(c)
	if err != nil {
		return opened{}, err
	}
	defer room.release()
	unlock, err := l.Making(ctx)
	if err != nil {
		return opened{}, err
	}
	defer unlock()
	_, name := p.Split()
	d, err := parentAt(l, dir, name, l.Judge().Access())
	if err != nil {
		return opened{}, err
	}
	defer d.Close()
	w, info, err := beneath.CreateFile(l, d, name, flags&sourceFlags, applyUmask(c, d, safeMode(l, mode&07777)), owner(c))
	if err != nil {
		return opened{}, err
	}
	writes := flags&unix.O_ACCMODE != unix.O_RDONLY
	if writes {
		err = t.beginWriting(ctx, l, d, name, info.ID(), false)
	}
	if err != nil {
		w.Close()
		if err == unix.ESTALE { //nolint:errorlint // bare errno
			err = unix.EEXIST // the new file was replaced already: Create opens the file that has replaced it
		}
		return opened{}, err
	}
	// The name is noted before newCreatedFile judges the name for the file's hold: the verdict
	// depends on who made the git repository that the file belongs to.
	l.Notes().Name(d.Rel(dir.Path.Rel()), name, info.ID(), false)
	o := newCreatedFile(t, l, w, At{Path: p, ID: info.ID()}, c, flags, info, room)
	o.f.isWriter = writes
	return o, nil
}

// Tmpfile makes a file without a name in a directory (O_TMPFILE).
func (t *Tree) Tmpfile(ctx context.Context, c guard.Caller, dir At, flags int, mode uint32) (*File, Info, error) {
	req := guard.Request{Caller: c, Op: names.OpTmpfile, Path: dir.Path, Epoch: dir.Epoch, Names: 1, OpensForWriting: writesTo(flags)}
	return t.gateOpenOne(ctx, req, func(l *guard.Lease, room *slot) (opened, error) {
		d, err := dirAt(l, dir)
		if err != nil {
			return opened{}, err
		}
		defer d.Close()
		if err := l.Judge().As(rules.ToMake, d.Rel(dir.Path.Rel()), "", pattern.Other); err != nil {
			return opened{}, err // nothing may be made there
		}
		w, info, err := beneath.Tmpfile(l, d, flags&(sourceFlags|unix.O_EXCL), applyUmask(c, d, safeMode(l, mode&07777)), owner(c))
		if err != nil {
			return opened{}, err
		}
		o := newCreatedFile(t, l, w, At{Path: dir.Path, ID: info.ID()}, c, flags, info, room)
		o.f.hold.Store(l.HoldNameless()) // the verdict on the directory does not apply to the file
		if o.f.isWriter = o.f.Writable(); o.f.isWriter {
			// The file may get a name later. Without a name it cannot be replaced, so
			// BeginWriting does not wait.
			if err := t.claims.BeginWriting(ctx, l, info.ID()); err != nil {
				o.f.isWriter = false
				dropOpened(o)
				return opened{}, err
			}
		}
		return o, nil
	})
}

// newCreatedFile returns the File for a file that the operation has created.
func newCreatedFile(t *Tree, l *guard.Lease, w beneath.Changeable, at At, c guard.Caller, flags int, info Info, room *slot) opened {
	l.Notes().Created(info.ID())
	f := newFile(t, l, w.Handle(), at, c, flags, room)
	f.created = true
	return opened{f, info}
}
