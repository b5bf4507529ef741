package vfs

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/claims"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
	"github.com/rootsfs/rootsfs/vfs/internal/trash"
	"github.com/rootsfs/rootsfs/vfs/internal/walk"
	"github.com/rootsfs/rootsfs/vfs/internal/wholefile"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// Info has the attributes of a file: see statx(2).
type Info = beneath.Info

// Tree is the guarded tree over the roots of one registry.
type Tree struct {
	reg      *guard.Registry
	began    time.Time // when the tree was created, see startTime
	claims   claims.Table
	preparer wholefile.Preparer
	trash    *trash.Store
	shares   userShares
	// stageMu is held while changes of a stage are applied, discarded or undone, and while a
	// checkpoint of a stage is made.
	stageMu sync.Mutex
	output  atomic.Pointer[StageOutput] // of stages; nil: nothing is build output

	inotify, remoteInotify watch.Inotify
}

// New returns the tree of a registry.
func New(reg *guard.Registry) *Tree {
	beneath.Prepare()
	t := &Tree{reg: reg, began: time.Now()}
	t.trash = trash.NewStore(t.claims.IsWritten)
	return t
}

// AwaitCloses says that a program may have closed a descriptor up to d before the front
// end closes the File: a replacement of a file that is open for writing waits that long
// before it is refused. 0, the default, is for front ends that close at once.
func (t *Tree) AwaitCloses(d time.Duration) { t.claims.SetPatience(d) }

// MaxOpen returns how many files, directories and references can be open at most
// before further ones are refused (ENFILE). This number is less than the process's limit
// of descriptors, so that the owner's commands always find free descriptors.
func MaxOpen() int { return beneath.MaxOpen() }

// Opener returns the guard.Opener that registries for this tree need.
func Opener() guard.Opener { return beneath.Opener{} }

// StagingOpener is Opener for a session whose roots can be staged. The directory stages, which
// must lie in no root, has the stores of all sessions.
func StagingOpener(stages, session string) guard.Opener {
	return beneath.Opener{Stages: stages, Session: session}
}

// LeadsToLocal reports whether an absolute path without links leads to a file system
// that is known to be local, so that walking the path cannot hang. LeadsToLocal does not
// walk it.
func LeadsToLocal(path string) bool { return beneath.LeadsToLocal(path) }

// NewSourceWatcher returns a watcher of the roots' directories; see
// watch.Inotify.NewWatcher.
func (t *Tree) NewSourceWatcher(emit func(watch.SourceEvent), onLoss func()) *watch.SourceWatcher {
	return t.inotify.NewWatcher(t.reg, emit, onLoss)
}

// NewHub returns a hub of watches on the tree's roots. The caller must close it.
func (t *Tree) NewHub(o watch.HubOptions) *watch.Hub {
	return watch.NewHub(t.reg, &t.inotify, &t.remoteInotify, o)
}

// At is a place in a root, and what the front end knows of the file there.
type At struct {
	Path guard.Path
	// ID is the identity of the file that is expected at the path: a front end that has
	// shown the file to somebody (the kernel holds inodes) gets ESTALE when another file
	// lies there by now. The zero ID takes any file.
	ID rules.Identity
	// Epoch, unless 0, is the lifetime of the root in which the front end learned of the
	// path; in another lifetime the operation is refused.
	Epoch uint64
	// Nameless says that the path does not lead to the open file of the operation any more. The
	// operation is then refused with ESTALE if the file still has a name, because a moved file may
	// lie outside of the root by now, or where other patterns apply. A removed file has no name:
	// only programs that have the file open can use it.
	Nameless bool
	// Held, unless nil, is an open file or a reference (see Ref) of the file with the identity
	// ID. If the host has moved the file, so that the path does not lead to it any more, the
	// operation uses and judges the present path of Held.
	Held *File
	// Removed, of a directory in which an operation removes or replaces a name, asks for a
	// reference to the file that has the name.
	Removed *Removed
}

// Removed is how a front end keeps a file that loses its name and may still be in use. If
// the file has the identity ID, the operation passes a reference (see Ref) to Keep before
// it removes the name. The operation may call Keep after it was answered early, and may fail
// after the call.
type Removed struct {
	ID   rules.Identity
	Keep func(ref *File)
}

// request begins the description of an operation at a place, or at a name in it.
func (a At) request(c guard.Caller, op guard.Op, p guard.Path) guard.Request {
	return guard.Request{Caller: c, Op: op, Path: p, Epoch: a.Epoch}
}

var anyFile rules.Identity

// stale returns walk.Stale of err if the identity of the file is known, else err.
func (a At) stale(err error) error {
	if a.ID == anyFile {
		return err
	}
	return walk.Stale(err)
}

// follow changes the path to the present path of Held. It reports false, and leaves the path, if
// Held is nil, if ID is zero, or if Held has no path in the root that can be found. The caller
// calls follow after ESTALE, and resolves and judges the new path.
func (a *At) follow(l *guard.Lease) bool {
	if a.Held == nil || a.ID == anyFile {
		return false
	}
	fd, err := a.Held.enter()
	if err != nil {
		return false
	}
	defer a.Held.leave()
	path, err := beneath.PathOf(fd)
	if err != nil {
		return false
	}
	rel, below, err := relNow(l, path)
	if err != nil || !below {
		return false
	}
	if last, deleted := strings.CutSuffix(rel, beneath.Deleted); deleted {
		info, err := a.Held.h.Stat(l)
		if err != nil || info.Nlink == 0 {
			return false
		}
		if other, ok := a.Held.otherName(l, last); ok {
			rel = other
		}
	}
	p, err := guard.NewPath(a.Path.Root, rel)
	if err != nil {
		return false
	}
	a.Path = p
	return true
}

// dirAt resolves a directory and checks that it is the expected one.
func dirAt(l *guard.Lease, at At) (beneath.Dir, error) {
	d, err := dirAtOnce(l, at)
	for try := 0; err == unix.ESTALE && try < maxExchanges && at.follow(l); try++ { //nolint:errorlint // bare errno
		if d, err = dirAtOnce(l, at); err == nil {
			d.Spell(at.Path.Rel())
		}
	}
	return d, err
}

func dirAtOnce(l *guard.Lease, at At) (beneath.Dir, error) {
	d, err := beneath.OpenDir(l, at.Path.Rel())
	if err != nil {
		return d, at.stale(err)
	}
	if at.ID == anyFile {
		return d, nil
	}
	id, err := d.ID(l)
	if err == nil && id != at.ID {
		err = unix.ESTALE
	}
	if err != nil {
		d.Close()
		return beneath.Dir{}, err
	}
	return d, nil
}

// nodeAt resolves whatever lies at a place, judges it for an access, checks that it is the
// expected file, and that it may be seen.
func nodeAt(l *guard.Lease, at At, a rules.Access) (beneath.Dir, Info, error) {
	d, info, err := nodeAtOnce(l, at, a)
	for try := 0; err == unix.ESTALE && try < maxExchanges && at.follow(l); try++ { //nolint:errorlint // bare errno
		d, info, err = nodeAtOnce(l, at, a)
	}
	return d, info, err
}

func nodeAtOnce(l *guard.Lease, at At, a rules.Access) (beneath.Dir, Info, error) {
	d, err := beneath.Node(l, at.Path, a)
	if err != nil {
		return d, Info{}, at.stale(err)
	}
	info, err := d.Stat(l)
	if err == nil && at.ID != anyFile && info.ID() != at.ID {
		err = unix.ESTALE
	}
	if err == nil {
		err = walk.Visible(l, &info)
	}
	if err != nil {
		d.Close()
		return beneath.Dir{}, Info{}, err
	}
	return d, info, nil
}

// parentAt resolves the directory of a name, checks its identity, and judges the name for an
// access; name must be one clean element.
func parentAt(l *guard.Lease, dir At, name string, a rules.Access) (beneath.Dir, error) {
	d, err := dirAt(l, dir)
	if err != nil {
		return d, err
	}
	if err = beneath.Judge(l, d, dir.Path.Rel(), name, a); err == nil {
		err = beneath.Enter(l, &d, name)
	}
	if err != nil {
		d.Close()
		return beneath.Dir{}, err
	}
	return d, nil
}

// child returns the path of a name in dir, for a request. For a bad name it returns the error
// of the operation, which then does not reach the gate.
func (t *Tree) child(op guard.Op, dir At, name string) (guard.Path, error) {
	p, err := dir.Path.Join(name)
	if err != nil {
		return p, &guard.Error{Op: op, Path: dir.Path, Kind: names.Reason(err), Err: err}
	}
	return p, nil
}

// LookupRef is Lookup that also returns a reference to the file, see Ref.
func (t *Tree) LookupRef(ctx context.Context, c guard.Caller, dir At, name string) (*File, Info, error) {
	p, err := t.child(names.OpLookup, dir, name)
	if err != nil {
		return nil, Info{}, err
	}
	req := dir.request(c, names.OpLookup, p)
	return t.gateOpenOne(ctx, req, func(l *guard.Lease, room *slot) (opened, error) {
		d, err := parentAt(l, dir, name, l.Judge().Access())
		if err != nil {
			return opened{}, err
		}
		defer d.Close()
		h, info, err := beneath.Reference(l, d, name)
		if err == nil {
			if err = walk.Visible(l, &info); err == nil {
				_, err = beneath.CrossEntry(l, d, name, &info)
			}
			if err != nil {
				h.Close()
			}
		}
		if err != nil {
			return opened{}, err
		}
		f := newFile(t, l, h, At{Path: p, ID: info.ID()}, c, unix.O_RDONLY, room)
		f.quiet, f.ref = true, true
		return opened{f, info}, nil
	})
}

// Lookup returns the attributes of the file that has a name in a directory. It follows no links.
func (t *Tree) Lookup(ctx context.Context, c guard.Caller, dir At, name string) (Info, error) {
	p, err := t.child(names.OpLookup, dir, name)
	if err != nil {
		return Info{}, err
	}
	req := dir.request(c, names.OpLookup, p)
	return gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (Info, int64, error) {
		d, err := parentAt(l, dir, name, l.Judge().Access())
		if err != nil {
			return Info{}, 0, err
		}
		defer d.Close()
		info, err := walk.LookUp(l, d, name)
		return info, 0, err
	})
}

// Lstat returns the attributes of the file at a place. It does not follow a link there.
func (t *Tree) Lstat(ctx context.Context, c guard.Caller, at At) (Info, error) {
	req := at.request(c, names.OpGetattr, at.Path)
	return gate.Do(ctx, t.reg, req, nil, func(l *guard.Lease) (Info, int64, error) {
		d, info, err := nodeAt(l, at, l.Judge().Access())
		if err != nil {
			return Info{}, 0, err
		}
		d.Close()
		return info, 0, nil
	})
}

// Statfs describes the file system that a place, or an open file if f is not
// nil, lies on.
func (t *Tree) Statfs(ctx context.Context, c guard.Caller, at At, f *File) (unix.Statfs_t, error) {
	req := at.request(c, names.OpStatfs, at.Path)
	return onNode(ctx, t, req, at, f, func(l *guard.Lease, n *node) (unix.Statfs_t, error) {
		return beneath.Statfs(l, n.fd)
	})
}
