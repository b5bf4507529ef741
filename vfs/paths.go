package vfs

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
)

// isRoot is of operations that would take a root itself away.
func isRoot() error {
	return &guard.Error{Kind: names.Permission, Err: errors.New("the path is a root itself, which only its owner can take away")}
}

type madeDir struct {
	info Info
	made bool
}

// MkdirAll makes a directory and what is missing above it. made is false if it
// was there already; what is there and no directory is Exist at the end of the
// path and NotDir before. On failure, directories already made stay, as with mkdir -p.
// A path that is missing behind a link is not made.
func (t *Tree) MkdirAll(ctx context.Context, c guard.Caller, p guard.Path, mode uint32) (info Info, made bool, err error) {
	req := guard.Request{Caller: c, Op: names.OpMkdir, Path: p, Names: 1}
	d, err := gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (madeDir, int64, error) {
		d, err := mkdirAll(ctx, l, c, p, mode&07777)
		if err == nil && !d.made {
			l.NoteExisting()
		}
		return d, 0, err
	})
	return d.info, d.made, err
}

func mkdirAll(ctx context.Context, l *guard.Lease, c guard.Caller, p guard.Path, mode uint32) (madeDir, error) {
	unlock, err := l.Making(ctx)
	if err != nil {
		return madeDir{}, err
	}
	defer unlock()
	w := follower{ctx: ctx, l: l}
	defer func() { w.d.Close() }()
	err = w.walk(p, true)
	if !w.linked {
		err = guard.AsCreateRefusal(err) // behind a link nothing is made, whatever the name
	}
	switch {
	case err == nil && l.File() != "":
		return madeDir{}, unix.EEXIST
	case err == nil && len(w.todo) == 0:
		if err := l.JudgeDir(w.rel()); err != nil {
			if !w.linked {
				err = guard.AsCreateRefusal(err)
			}
			return madeDir{}, err
		}
		info, err := beneath.Stat(w.d.FD)
		return madeDir{info: info}, err
	case err == nil:
		access := guard.ToMake
		if w.linked {
			access = guard.ToLook
		}
		if err := beneath.Judge(l, w.d, w.rel(), w.todo[0].name, access); err != nil {
			return madeDir{}, err
		}
		_, err := beneath.StatIn(w.d, w.todo[0].name)
		if err == nil {
			err = unix.EEXIST // also if it is hidden: the name is taken
		}
		if err != unix.ENOENT { //nolint:errorlint // bare errno
			return madeDir{}, err
		}
	case err != unix.ENOENT: //nolint:errorlint // bare errno
		return madeDir{}, err
	}
	for _, s := range w.todo {
		if s.link {
			return madeDir{}, unix.ENOENT
		}
	}
	if more := len(w.todo) - 1; more > 0 {
		if err := l.Charge(0, 0, int64(more)); err != nil {
			return madeDir{}, err
		}
	}
	return w.mkdirs(c, mode)
}

// mkdirs makes what is missing, from where the walk ended.
func (w *follower) mkdirs(c guard.Caller, mode uint32) (res madeDir, err error) {
	for len(w.todo) > 0 {
		name := w.todo[len(w.todo)-1].name
		if res.made, res.info, err = w.mkdir(c, mode); err != nil {
			return madeDir{}, err
		}
		w.at = append(w.at, name)
		w.pop()
	}
	return res, nil
}

// mkdir makes the next directory and enters it.
func (w *follower) mkdir(c guard.Caller, mode uint32) (made bool, info Info, err error) {
	if err := walk.Ended(w.ctx, w.l); err != nil {
		return false, Info{}, err
	}
	name := w.todo[len(w.todo)-1].name
	if err := w.l.Judge(w.rel(), name); err != nil { // nothing is there by another spelling
		return false, Info{}, err
	}
	if len(w.todo) > 1 {
		mode |= 0o300 // or nothing could be made in it
	}
	start := time.Now()
	_, err = beneath.Mkdir(w.l, w.d, name, umasked(c, w.d, mode), owner(c))
	if err != nil && err != unix.EEXIST { //nolint:errorlint // bare errno
		return false, Info{}, err
	}
	made = err == nil
	d, info, err := beneath.Step(w.l, w.d, name)
	if err != nil {
		return made, info, err
	}
	if !info.IsDir() {
		d.Close()
		return made, info, unix.ENOTDIR
	}
	if made && bornSince(w.l, &info, start) {
		w.l.NoteCreated(info.ID())
		w.l.NoteName(w.rel(), name, info.ID(), true)
	}
	w.d.Close()
	w.d = d
	return made, info, nil
}

// CreateFile makes an empty regular file, which must not be there (Exist), with
// parents also the directories above it (see MkdirAll). A link of that name is
// not followed.
func (t *Tree) CreateFile(ctx context.Context, c guard.Caller, p guard.Path, mode uint32, parents bool) (Info, error) {
	if dir, _ := p.Split(); parents && !p.IsRoot() && !dir.IsRoot() {
		if _, _, err := t.MkdirAll(ctx, c, dir, 0o777&^c.Umask); err != nil {
			return Info{}, err
		}
	}
	return t.makePath(ctx, c, names.OpCreate, p, func(l *guard.Lease, d beneath.Dir, base string) (Info, error) {
		fd, info, err := beneath.CreateFile(l, d, base, unix.O_WRONLY, umasked(c, d, safeMode(l, mode&07777)), owner(c))
		if err == nil {
			beneath.Close(fd)
			l.NoteCreated(info.ID())
		}
		return info, err
	})
}

// MkdirPath makes one directory. Links of the directories above are followed
// where they stay inside; what stands at the path itself, a link too, is EEXIST.
func (t *Tree) MkdirPath(ctx context.Context, c guard.Caller, p guard.Path, mode uint32) (Info, error) {
	return t.makePath(ctx, c, names.OpMkdir, p, func(l *guard.Lease, d beneath.Dir, base string) (Info, error) {
		return beneath.Mkdir(l, d, base, umasked(c, d, mode&07777), owner(c))
	})
}

// makePath makes one name at the end of a path, by f in the directory that the
// path leads to.
func (t *Tree) makePath(ctx context.Context, c guard.Caller, op names.Op, p guard.Path,
	f func(l *guard.Lease, d beneath.Dir, base string) (Info, error),
) (Info, error) {
	req := guard.Request{Caller: c, Op: op, Path: p, Names: 1}
	return gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (Info, int64, error) {
		unlock, err := l.Making(ctx)
		if err != nil {
			return Info{}, 0, err
		}
		defer unlock()
		info, err := followed(ctx, l, p, false, func(q guard.Path) (Info, error) {
			if q.IsRoot() {
				return Info{}, unix.EEXIST
			}
			d, base, err := beneath.Parent(l, q)
			if err != nil {
				return Info{}, err
			}
			defer d.Close()
			info, err := f(l, d, base)
			if err == nil {
				dir, _ := q.Split()
				l.NoteName(d.Rel(dir.Rel()), base, info.ID(), info.IsDir())
			}
			return info, err
		})
		return info, 0, err
	})
}

// RenamePath moves a name within one root; links on the way are followed, a link
// at the end is moved itself. Without overwrite nothing is replaced (Exist), nor
// without the right to delete; a file that somebody holds locked is neither moved
// nor replaced (Locked). The etag, unless "", is that of what is moved. Across
// two roots, or the boundary of a nested one, it is EXDEV. An error's Path is
// that of the two it is about.
func (t *Tree) RenamePath(ctx context.Context, c guard.Caller, old, to guard.Path, overwrite bool, etag string) error {
	req := guard.Request{Caller: c, Op: names.OpRename, Path: old, Path2: to}
	return gate.Run(ctx, t.reg, req, func(l *guard.Lease) error {
		return followTo(ctx, l, old, false, func(q guard.Path) error {
			if q.IsRoot() {
				return isRoot()
			}
			// Now, for the links on the way; again when nobody else moves.
			src, _, err := beneath.ParentFor(l, q, guard.ToChange)
			if err != nil {
				return err
			}
			src.Close()
			return about(to, followTo(ctx, l, to, false, func(q2 guard.Path) error {
				if q2.IsRoot() {
					return isRoot()
				}
				m := &move{ctx: ctx, l: l, asked: old, careful: true, etag: etag}
				m.oldDir, m.oldName = q.Split()
				m.newDir, m.newName = q2.Split()
				replace := overwrite && l.Narrowest()&guard.Delete != 0
				return t.renamePath(m, q, q2, replace)
			}))
		})
	})
}

// about names the path an error belongs to, in operations on two; an error that
// has one already keeps it.
func about(p guard.Path, err error) error {
	var e *guard.Error
	var errno unix.Errno
	switch {
	case errors.As(err, &e):
		if e.Path.Root != "" {
			return err
		}
		w := *e
		w.Path = p
		return &w
	case errors.As(err, &errno):
		return &guard.Error{Path: p, Kind: names.KindOf(errno), Err: errno}
	}
	return err
}

// inState looks at what lies at a name, and compares it with an etag unless that
// is "".
func inState(d beneath.Dir, base, etag string) (Info, error) {
	info, err := beneath.StatIn(d, base)
	if err == nil && etag != "" && ETag(&info) != etag {
		err = &guard.Error{Kind: names.Conflict}
	}
	return info, err
}
