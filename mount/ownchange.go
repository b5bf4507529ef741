package mount

import (
	"context"
	"time"

	"github.com/rootsfs/rootsfs/vfs"
)

// Our own changes are reported by the source's watch like those of the host. Passing those
// on would throw away what the kernel has just learned, so they are recognised: names by
// counting what we were about to do, contents by the change time that our own write left
// behind.

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

// expectEvent says that an operation of ours is about to make a name appear or
// disappear in directory n. cancelEvent takes it back when the operation failed.
func (n *node) expectEvent(name string, created bool) { n.expectName(name, created, 1) }

func (n *node) cancelEvent(name string, created bool) { n.expectName(name, created, -1) }

func (n *node) expectName(name string, created bool, by int) {
	w := n.watch()
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

// ownChange is what we know of our own changes to one file; guarded by nodeExtra.mu.
type ownChange struct {
	busy  int   // operations of ours in progress
	ctime int64 // the change time our last one left, nanoseconds; 0: none
	event bool  // an event came while busy
}

// beginChange announces an operation of ours that changes n. endChange ends it; touch has
// the change times before and after it, and is zero if the operation failed.
func (n *node) beginChange() *ownChange {
	if n.view.m.opt.Level == Strict {
		return nil
	}
	e := n.extra()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.change == nil {
		e.change = &ownChange{}
	}
	e.change.busy++
	return e.change
}

func (n *node) endChange(o *ownChange, touch vfs.Touch) {
	if o == nil {
		return
	}
	e := n.extra()
	e.mu.Lock()
	o.busy--
	alone := o.busy == 0
	// If nobody else of us was writing and the file's change time was not the
	// one we left, the host changed it before us.
	foreign := alone && !o.event && o.ctime != 0 && touch.Before != 0 && touch.Before != o.ctime
	o.ctime = max(o.ctime, touch.After)
	check := alone && o.event
	if alone {
		o.event = false
	}
	e.mu.Unlock()
	if foreign || check && !n.isOwnChange() {
		go n.notifyContent() // not from here: the kernel waits for our answer
	}
}

// isOwnChange reports whether the file is as our own last change left it, so that an
// event about it tells the kernel nothing new.
func (n *node) isOwnChange() bool {
	e := n.ext.Load()
	if e == nil {
		return false
	}
	e.mu.Lock()
	var ctime int64
	o := e.change
	busy := o != nil && o.busy > 0
	if o != nil {
		ctime, o.event = o.ctime, o.event || busy
	}
	e.mu.Unlock()
	if busy || ctime == 0 {
		return busy
	}
	info, err := n.statByMount()
	if err == nil && info.ChangeNanos() == ctime {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if o.ctime == ctime {
		o.ctime = 0
	}
	return false
}

// statByMount reads the attributes on nobody's behalf, through an open file if there is one,
// which costs one system call.
func (n *node) statByMount() (vfs.Info, error) {
	m := n.view.m
	if f := n.anyFile(); f != nil && f.Retain() {
		defer f.Unretain()
		return f.Stat(context.Background(), m.self())
	}
	at, ok := n.path()
	if !ok {
		return vfs.Info{}, errNoPath
	}
	return m.tree.Lstat(context.Background(), m.self(), at)
}
