package mount

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// The kernel may cache names, attributes and pages for long only while the mount notifies it
// of the host's changes. So each directory is watched on the source before its entries are
// read for an answer. The mount notifies the kernel of the changes that inotify reports, except of
// the mount's own changes (see ownevents.go). The package fsnotify is not enough for this: it
// watches by path, not by a descriptor that was resolved beneath the root, and hides the cookies of
// renames.

// dirWatch is the watch of one directory node.
type dirWatch struct {
	state   atomic.Int32 // watchNone and so on
	stuck   atomic.Bool  // the kernel cannot be told of changes, see delivery
	mu      sync.Mutex   // guards the fields below
	wd      int32
	retryAt time.Time
	expect  map[expectation]expectedEvents
}

const (
	watchNone int32 = iota
	watchActive
	watchFailed
)

// retryWatch is how long the mount waits after it failed to watch a directory, before it tries
// again.
const retryWatch = 10 * time.Second

// dirWatch returns the watch of directory n, which may have ended or failed; nil: there was none.
func (n *node) dirWatch() *dirWatch {
	if e := n.ext.Load(); e != nil {
		return e.watch.Load()
	}
	return nil
}

// isActive reports whether the kernel can be told of all changes in the directory. w may be
// nil.
func (w *dirWatch) isActive() bool {
	return w != nil && w.state.Load() == watchActive && !w.stuck.Load()
}

// ensureWatched begins to watch directory n if it is not watched yet. It reports whether the
// kernel will be told of changes in n.
func (n *node) ensureWatched() bool {
	m := n.view.m
	if m.opt.Level == Strict || n.view.remote {
		return false
	}
	e := n.extra()
	if e.watch.Load() == nil {
		e.watch.CompareAndSwap(nil, &dirWatch{})
	}
	w := e.watch.Load()
	if w.state.Load() != watchActive && !n.beginWatch(w) {
		return false
	}
	return !w.stuck.Load()
}

func (n *node) beginWatch(w *dirWatch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.state.Load() {
	case watchActive:
		return true
	case watchFailed:
		if time.Now().Before(w.retryAt) {
			return false
		}
	}
	at, ok := n.path()
	if !ok || n.isForgotten() || n.view.staged && !n.ensureParentWatched() {
		return false
	}
	m := n.view.m
	wd, err := m.watcher.Watch(context.Background(), m.self(), at.Path, at.Epoch, at.ID, n)
	if err != nil {
		if errors.Is(err, watch.ErrNoWatches) || errors.Is(err, watch.ErrNoInstances) {
			m.noWatches.Do(func() {
				m.log.Warn("directories cannot be watched and fall back to one-second timeouts", "error", err)
			})
		}
		w.retryAt = time.Now().Add(retryWatch)
		w.state.Store(watchFailed)
		return false
	}
	w.wd = wd
	w.state.Store(watchActive)
	return true
}

// ensureParentWatched is ensureWatched for the directory that n lies in. In a staged root n's
// watch needs this: the owner may make, replace or remove the directory of the source that
// belongs to n, and only the watch of the directory above reports that.
func (n *node) ensureParentWatched() bool {
	if n == n.view.rootNode() {
		return true
	}
	dir := n.parent().dir
	return dir != nil && dir.ensureWatched()
}

// resetWatches ends the watches of directory n and of the directories below n, and has the kernel
// drop what it has cached of these directories. The next look-up in each directory begins another
// watch.
func (n *node) resetWatches(seen map[*node]bool) {
	seen[n] = true
	for _, child := range n.childNodes() {
		if child.isDir() && child.view == n.view && !seen[child] {
			child.resetWatches(seen)
		}
	}
	n.unwatch()
	n.view.m.delivery.enqueueAll(n)
}

// rewatchIn is called when the kernel learns that n lies in the directory dir. A directory of a
// staged root must not be watched while the directory around it is not (ensureParentWatched), so
// rewatchIn resets the watch of n if dir is not watched.
func (n *node) rewatchIn(dir *node) {
	if n.view.staged && n.isDir() && n.dirWatch().isActive() && !dir.dirWatch().isActive() {
		n.resetWatches(map[*node]bool{})
	}
}

// unwatch ends the watch of a node.
func (n *node) unwatch() {
	w := n.dirWatch()
	if w == nil {
		return
	}
	w.mu.Lock()
	active, wd := w.state.Swap(watchNone) == watchActive, w.wd
	w.mu.Unlock()
	if active {
		n.view.m.watcher.Unwatch(wd, n)
	}
}

// hasWatchedParent reports whether the kernel will be told of changes of n itself, because the
// directory that n lies in is watched. If n is a root's directory, hasWatchedParent watches n
// itself instead. For a root that is a single file it returns false.
func (n *node) hasWatchedParent() bool {
	if n == n.view.rootNode() {
		return !n.view.fileRoot && n.ensureWatched()
	}
	dir := n.parent().dir
	return dir != nil && dir.dirWatch().isActive()
}

// sourceChanged handles one event. The source's watch reads no other event meanwhile.
func (m *Mount) sourceChanged(ev watch.SourceEvent) {
	n := ev.Dir.(*node)
	w := n.dirWatch()
	switch {
	case ev.Self:
		if n == n.view.rootNode() {
			name := n.view.name
			go func() { _ = m.reg.Recheck(context.Background(), name) }()
		}
	case ev.Stale:
		n.unwatch() // each watched directory below n gets such an event of its own
		m.delivery.enqueueAll(n)
	case (ev.Created || ev.Deleted) && ev.Name != "" && w != nil && w.takeExpected(ev.Name, ev.Created):
	default:
		m.delivery.enqueue(n, ev)
	}
}

// sourceLost handles lost events of the source: anything that the kernel cached may be stale.
func (m *Mount) sourceLost() {
	m.lostEvents.Do(func() {
		m.log.Warn("the kernel dropped inotify events, because too much changed on the source at a time; the mount drops its cached names and pages, now and whenever this happens again",
			"remedy", "raise fs.inotify.max_queued_events")
	})
	m.mu.Lock()
	views := make([]*view, 0, len(m.views))
	for _, all := range m.views {
		views = append(views, all...)
	}
	m.mu.Unlock()
	for _, v := range views {
		for _, n := range v.all() {
			if w := n.dirWatch(); w != nil {
				w.mu.Lock()
				w.expect = nil
				w.mu.Unlock()
			}
			if n.isDir() || !n.isNamed() {
				m.delivery.enqueueAll(n) // with the files in it
			}
		}
	}
}

// Settle waits until programs see all earlier changes of the sources and stages, or until ctx
// ends. It does not wait for stuck directories (SourceStatus.Stuck).
func (m *Mount) Settle(ctx context.Context) {
	if m.watcher != nil {
		m.watcher.Settle(ctx)
	}
	m.delivery.settle(ctx)
}

// SourceStatus describes how well the sources are watched.
type SourceStatus struct {
	Watched int64 // directories
	// Refused counts the failed attempts to watch a directory. Such a directory has
	// one-second timeouts.
	Refused int64
	// Stuck counts the directories whose lock a program holds in the kernel at this moment,
	// so that the kernel cannot be told of changes in them. They have one-second timeouts.
	// What the kernel cached of them before may be out of date until the lock is released.
	Stuck int
	// Loose are the roots on file systems that do not report changes. All files in them
	// have one-second timeouts.
	Loose []guard.RootName
}

// SourceStatus returns how well the sources are watched at this moment.
func (m *Mount) SourceStatus() SourceStatus {
	var s SourceStatus
	if m.opt.Level == Strict {
		return s // the kernel caches nothing, so nothing can be stale
	}
	s.Watched, s.Refused = m.watcher.Counts()
	s.Stuck = m.delivery.stuckDirs()
	for _, st := range m.reg.Roots() {
		if st.Remote {
			s.Loose = append(s.Loose, st.Grant.Root)
		}
	}
	return s
}
