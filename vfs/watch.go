package vfs

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
	"github.com/rootsfs/rootsfs/vfs/internal/gate"
)

// SourceEvent is a change of a source directory that inotify reported. Own
// changes are among them; whoever made them has to know.
type SourceEvent struct {
	Dir  any    // what Watch was given
	Name string // "" for the directory itself
	// What happened: the name appeared, disappeared, or the file's contents
	// or attributes changed. Moved is set for an appearance or disappearance
	// by renaming.
	Created, Deleted, Moved, Changed bool
	// IsDir is set when the name is, or was, a directory's.
	IsDir bool
	// Cookie is the same for both halves of a rename, else 0.
	Cookie uint32
	// Self is set when the directory itself was moved or removed.
	Self bool
}

// SourceWatcher watches directories of the roots on the source. inotify reports
// write(2), truncation, attributes and names; it does not report stores through
// a mapping of a host's process, and nothing that happens on another machine.
//
// All watchers of a Tree share one inotify instance, of which a user has few
// (fs.inotify.max_user_instances); it is made with the first watch.
type SourceWatcher struct {
	in    *notifier
	emit  func(SourceEvent)
	lost  func()
	limit int64
	count atomic.Int64
	full  atomic.Int64 // directories that could not be watched for want of watches

	dirs map[int32][]any // who watches each directory, mostly one; guarded by in.mu
}

// NewSourceWatcher returns a watcher without watches. emit is called for every
// event, and lost when the kernel dropped events, so that anything may have
// changed: both by one goroutine, which serves the tree's other watchers too.
func (t *Tree) NewSourceWatcher(emit func(SourceEvent), lost func()) *SourceWatcher {
	return newSourceWatcher(&t.notifier, emit, lost)
}

func newSourceWatcher(in *notifier, emit func(SourceEvent), lost func()) *SourceWatcher {
	w := &SourceWatcher{in: in, emit: emit, lost: lost, limit: watchRoom().mount, dirs: map[int32][]any{}}
	in.join(w)
	return w
}

// room is how many directories may be watched, of the user's inotify watches.
type room struct {
	mount int64 // by a mount, for its own coherence
	hub   int64 // by a hub, for what servers ask for
}

// watchRoom reads what the user may have and divides it.
func watchRoom() room {
	const fallback = 8192 // the kernel's default before 5.11
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		return divide(fallback)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return divide(fallback)
	}
	return divide(n)
}

// divide leaves a fifth of n watches to the user's other programs, and another to
// what servers ask for, so that no server takes from a mount what keeps it true.
func divide(n int64) room { return room{mount: n / 5 * 3, hub: n / 5} }

// What Watch fails with when the user's inotify watches or instances are used up.
var (
	ErrNoWatches   = errors.New("no inotify watches are left; raise fs.inotify.max_user_watches")
	ErrNoInstances = errors.New("no inotify instance is left; raise fs.inotify.max_user_instances")
)

// Watch begins to watch a directory; dir is what its events will carry. The
// returned number is for Unwatch.
func (w *SourceWatcher) Watch(ctx context.Context, t *Tree, c guard.Caller, at At, dir any) (int32, error) {
	if w.count.Load() >= w.limit {
		w.full.Add(1)
		return 0, ErrNoWatches
	}
	req := guard.Request{Caller: c, Op: names.OpGetattr, Path: at.Path, Epoch: at.Epoch, Quiet: true}
	drop := func(wd int32) { w.Unwatch(wd, dir) }
	wd, err := gate.Do(ctx, t.reg, req, drop, func(l *guard.Lease) (int32, int64, error) {
		d, err := dirAt(l, at)
		if err != nil {
			return 0, 0, err
		}
		defer d.Close()
		wd, err := w.add(d, dir)
		return wd, 0, err
	})
	switch {
	case errors.Is(err, unix.ENOSPC):
		w.full.Add(1)
		return 0, ErrNoWatches
	case errors.Is(err, ErrNoInstances):
		w.full.Add(1)
	}
	return wd, err
}

// add watches a directory that an operation has resolved.
func (w *SourceWatcher) add(d beneath.Dir, dir any) (int32, error) {
	// The table first: an event may come before Add has returned.
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	ino, err := w.in.instanceLocked(w)
	if err != nil {
		return 0, err
	}
	wd, err := ino.Add(d)
	if err != nil {
		return 0, err
	}
	if w.dirs[wd] == nil {
		w.count.Add(1)
	}
	w.dirs[wd] = append(w.dirs[wd], dir)
	return wd, nil
}

// Unwatch ends one watch.
func (w *SourceWatcher) Unwatch(wd int32, dir any) {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	x := w.dirs[wd]
	i := slices.Index(x, dir)
	switch {
	case i < 0:
	case len(x) == 1:
		w.dropLocked(wd)
		w.in.removeLocked(wd)
	default:
		w.dirs[wd] = slices.Delete(x, i, i+1)
	}
}

func (w *SourceWatcher) dropLocked(wd int32) {
	if _, ok := w.dirs[wd]; ok {
		delete(w.dirs, wd)
		w.count.Add(-1)
	}
}

// Counts returns how many directories are watched, and how often one could not
// be.
func (w *SourceWatcher) Counts() (watched, refused int64) { return w.count.Load(), w.full.Load() }

// Close ends all watches; neither function is called after it has returned.
func (w *SourceWatcher) Close() { w.in.leave(w) }
