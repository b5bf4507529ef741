package mount

import (
	"context"
	"time"

	"github.com/rootsfs/rootsfs/vfs"
)

// The source's watch reports the mount's own changes like those of the host. Sending
// notifications for them would make the kernel drop what it has just learned. So own changes
// are recognised: changes of names by counting the expected events, and changes of contents by
// the change time after the mount's own write.

// expectation is a kind of event that operations of the mount will cause in a directory.
type expectation struct {
	name    string
	created bool // else deleted
}

// expectedEvents is how many events of one kind are still expected.
type expectedEvents struct {
	n     int
	since time.Time // when n changed last, other than by an event
}

// expectFor bounds how long an expectation is valid. A rename between two names of one file
// causes no event, and a leftover expectation must not hide a later change by the host.
const expectFor = 2 * time.Second

// expectEvent notes that an operation of the mount is about to create or delete a name in
// directory n. The caller calls cancelEvent if the operation fails.
func (n *node) expectEvent(name string, created bool) { n.expectName(name, created, 1) }

func (n *node) cancelEvent(name string, created bool) { n.expectName(name, created, -1) }

func (n *node) expectName(name string, created bool, by int) {
	w := n.dirWatch()
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
		w.expect = map[expectation]expectedEvents{}
	}
	w.expect[key] = x
}

// takeExpected uses up one expected event, and reports whether a valid one was expected.
func (w *dirWatch) takeExpected(name string, created bool) bool {
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

// ownChange describes the mount's own changes to one file. It is guarded by nodeExtra.mu.
type ownChange struct {
	busy  int   // own operations in progress
	ctime int64 // the change time after the last own operation, nanoseconds; 0: not known
	event bool  // an event came while busy
}

// beginChange notes that the mount begins an operation that changes n. endChange notes the
// end of the operation. The argument touch of endChange has the change times before and after the
// operation; 0 stands for a time that is not known, also after a failure.
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
	// The host has changed the file if no other own operation is in progress and the change
	// time before this operation differs from that after the last one.
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

// isOwnChange reports whether the file is as the mount's own last change left it, so that an
// event about the file need not be sent to the kernel. It also reports true while an own
// operation is in progress: endChange then checks the file.
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

// statByMount reads the attributes for the mount itself. It uses an open file if there is
// one, which costs only one system call.
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
