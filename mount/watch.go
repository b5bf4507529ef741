package mount

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// The kernel may keep names, attributes and pages for long only while somebody
// tells it of changes that the host makes. So every directory whose entries are
// handed out is watched on the source, before they are read, and what inotify
// reports is passed on. Our own changes are reported too; passing those on would
// throw away what the kernel has just learned, so they are recognised: names by
// counting what we were about to do, contents by the change time that our own
// write left behind.

// dirWatch is the watch of one directory node.
type dirWatch struct {
	state   atomic.Int32 // watchNone and so on
	stuck   atomic.Bool  // the kernel cannot be told of changes, see delivery
	mu      sync.Mutex   // guards the fields below
	wd      int32
	retryAt time.Time
	expect  map[expectation]expected
}

const (
	watchNone int32 = iota
	watchActive
	watchFailed
)

type expectation struct {
	name    string
	created bool // else deleted
}

type expected struct {
	n     int
	since time.Time
}

// expectFor bounds how long an event of our own is waited for: a rename between
// two names of one file makes none, and an expectation left over must not
// swallow a change of the host's later.
const expectFor = 2 * time.Second

// retryWatch is how long a directory stays unwatched before it is tried again.
const retryWatch = 10 * time.Second

// watched reports whether changes in directory n will be noticed, beginning to
// watch it if need be.
func (n *node) watched() bool {
	m := n.view.m
	if m.opt.Level == Strict || n.view.remote {
		return false
	}
	e := n.extra()
	w := e.watch.Load()
	if w == nil {
		w = &dirWatch{}
		if !e.watch.CompareAndSwap(nil, w) {
			w = e.watch.Load()
		}
	}
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
	at, ok := n.place()
	if !ok || n.forgotten() {
		return false
	}
	m := n.view.m
	wd, err := m.watcher.Watch(context.Background(), m.self(), at.Path, at.Epoch, at.ID, n)
	if err != nil {
		if errors.Is(err, vfs.ErrNoWatches) || errors.Is(err, vfs.ErrNoInstances) {
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

// self is the mount as a caller: it looks at the source on nobody's behalf.
func (m *Mount) self() guard.Caller {
	return guard.Caller{Subject: m.opt.Subject, Via: guard.ViaFUSE, PID: int32(os.Getpid())}
}

// unwatch ends the watch of a forgotten node.
func (n *node) unwatch() {
	e := n.ext.Load()
	if e == nil {
		return
	}
	w := e.watch.Load()
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

// parentWatched reports whether changes of n itself will be noticed.
func (n *node) parentWatched() bool {
	if n == n.view.rootNode() {
		return !n.view.fileRoot && n.watched()
	}
	_, parent := n.Parent()
	if parent == nil {
		return false
	}
	p, ok := parent.Operations().(*node)
	if top, fixed := parent.Operations().(*topNode); fixed {
		p = n.view.shownIn(top)
		ok = p != nil
	}
	if !ok {
		return false
	}
	e := p.ext.Load()
	if e == nil {
		return false
	}
	w := e.watch.Load()
	return w != nil && w.state.Load() == watchActive && !w.stuck.Load()
}

// own says that an operation of ours is about to make a name appear or
// disappear in directory n. disown takes it back when the operation failed.
func (n *node) own(name string, created bool) { n.expectName(name, created, 1) }

func (n *node) disown(name string, created bool) { n.expectName(name, created, -1) }

func (n *node) expectName(name string, created bool, by int) {
	e := n.ext.Load()
	if e == nil {
		return
	}
	w := e.watch.Load()
	if w == nil || w.state.Load() != watchActive {
		return
	}
	key := expectation{name, created}
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.expect[key]
	x.n, x.since = x.n+by, time.Now()
	if x.n <= 0 {
		delete(w.expect, key)
		return
	}
	if w.expect == nil {
		w.expect = map[expectation]expected{}
	}
	w.expect[key] = x
}

// expectedName uses up one expectation.
func (w *dirWatch) expectedName(name string, created bool) bool {
	key := expectation{name, created}
	w.mu.Lock()
	defer w.mu.Unlock()
	x, ok := w.expect[key]
	if !ok {
		return false
	}
	fresh := time.Since(x.since) < expectFor
	if x.n--; x.n <= 0 || !fresh {
		delete(w.expect, key)
	} else {
		w.expect[key] = x
	}
	return fresh
}

// sourceChanged takes one event of the source's watch, which waits for it.
func (m *Mount) sourceChanged(ev vfs.SourceEvent) {
	n := ev.Dir.(*node)
	w := n.extra().watch.Load()
	switch {
	case ev.Self:
		if n == n.view.rootNode() {
			name := n.view.name
			go func() { _ = m.reg.Recheck(context.Background(), name) }()
		}
	case (ev.Created || ev.Deleted) && ev.Name != "" && w != nil && w.expectedName(ev.Name, ev.Created):
	default:
		m.delivery.put(n, ev)
	}
}

// sourceLost is called when the kernel dropped events: anything may be stale.
func (m *Mount) sourceLost() {
	m.lostEvents.Do(func() {
		m.log.Warn("more changed on the source at a time than the kernel tells of; what it keeps of it is taken back, now and whenever it happens again",
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
			if e := n.ext.Load(); e != nil {
				if w := e.watch.Load(); w != nil {
					w.mu.Lock()
					w.expect = nil
					w.mu.Unlock()
				}
			}
			if _, parent := n.Parent(); n.IsDir() || parent == nil {
				m.delivery.putAll(n) // with the files in it
			}
		}
	}
}

// ownChange is what we know of our own changes to one file.
type ownChange struct {
	mu    sync.Mutex // guards the fields below
	busy  int        // operations of ours in progress
	ctime int64      // the change time our last one left, nanoseconds; 0: none
	event bool       // an event came while busy
}

// writing announces an operation of ours that changes n; written ends it and
// tells what change times it saw before and after (touch), or that it failed.
func (n *node) writing() *ownChange {
	if n.view.m.opt.Level == Strict {
		return nil
	}
	e := n.extra()
	e.mu.Lock()
	if e.own == nil {
		e.own = &ownChange{}
	}
	o := e.own
	e.mu.Unlock()
	o.mu.Lock()
	o.busy++
	o.mu.Unlock()
	return o
}

func (n *node) written(o *ownChange, touch vfs.Touch) {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.busy--
	alone := o.busy == 0
	// If nobody else of us was writing and the file's change time was not the
	// one we left, the host changed it before us.
	foreign := alone && !o.event && o.ctime != 0 && touch.Before != 0 && touch.Before != o.ctime
	if touch.After > o.ctime {
		o.ctime = touch.After
	}
	check := alone && o.event
	if alone {
		o.event = false
	}
	o.mu.Unlock()
	if foreign || check && !n.echo() {
		go n.notifyContent() // not from here: the kernel waits for our answer
	}
}

// echo reports whether the file is as our own last change left it, so that an
// event about it tells the kernel nothing new.
func (n *node) echo() bool {
	e := n.ext.Load()
	if e == nil {
		return false
	}
	e.mu.Lock()
	o := e.own
	e.mu.Unlock()
	if o == nil {
		return false
	}
	o.mu.Lock()
	ctime := o.ctime
	if o.busy > 0 {
		o.event = true
		o.mu.Unlock()
		return true
	}
	o.mu.Unlock()
	if ctime == 0 {
		return false
	}
	at, ok := n.place()
	if !ok {
		return false
	}
	info, err := n.tree().Lstat(context.Background(), n.view.m.self(), at)
	if err == nil && info.ChangeNanos() == ctime {
		return true
	}
	o.mu.Lock()
	if o.ctime == ctime {
		o.ctime = 0
	}
	o.mu.Unlock()
	return false
}

// SourceStatus tells how well the sources are watched.
type SourceStatus struct {
	Watched int64 // directories
	// Refused counts the times a watch could not be had; those directories
	// have one-second timeouts.
	Refused int64
	// Stuck counts the directories that somebody keeps the kernel from taking
	// changes of, at this moment; they have one-second timeouts, and what the
	// kernel knew of them before may be old until they are free again.
	Stuck int
	// Loose are the roots on file systems that do not report changes; all of
	// them has one-second timeouts.
	Loose []guard.RootName
}

// SourceStatus tells how well the sources are watched at this moment.
func (m *Mount) SourceStatus() SourceStatus {
	var s SourceStatus
	if m.opt.Level == Strict {
		return s // nothing is kept, so nothing can be stale
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
