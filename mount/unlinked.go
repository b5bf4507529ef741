package mount

import (
	"sync"
	"syscall"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// A file that loses its name may still be in use: as an open file, a working
// directory, an O_PATH descriptor, or in a path walk that found it a moment ago.
// No path leads to it then. So the mount opens a reference to the file (O_PATH) before the
// name is removed, and keeps the reference until the kernel forgets the node.

// maxRefs bounds the descriptors for these references. The kernel forgets a file soon after
// its last use, so more references mean that a program collects nameless files. A nameless
// file beyond the bound, or beyond vfs.MaxKept, answers ESTALE unless it is open.
const maxRefs = 4096

// pendingRemoval is a removal of a name that the kernel knows.
type pendingRemoval struct {
	child *node

	mu        sync.Mutex // guards the fields below
	hasRef    bool       // child has got the reference from this removal
	hasFailed bool       // the removal has ended and the name is still there
}

// prepareRemoval makes the removal of a name in directory n keep a reference to the file, if
// the kernel knows the file. at is the directory's path. The caller must call done at the end
// of the removal; gone reports whether the name was removed.
func (n *node) prepareRemoval(at *vfs.At, name string) (done func(gone bool)) {
	nothing := func(bool) {}
	child := n.child(name)
	if child == nil || n.view.m.refs.Load() >= maxRefs {
		return nothing
	}
	l := &pendingRemoval{child: child}
	at.Removed = &vfs.Removed{ID: child.identity(), Keep: l.keep}
	return l.done
}

// keep stores the reference in the node. Package vfs calls it before the name is removed: a
// request that finds the name removed on the source, but not yet in the tree, needs the
// reference too.
func (l *pendingRemoval) keep(ref *vfs.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hasFailed || !l.child.extra().ref.CompareAndSwap(nil, ref) {
		ref.Close()
		return
	}
	l.hasRef = true
	l.child.view.m.refs.Add(1)
}

func (l *pendingRemoval) done(gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hasFailed = !gone; l.hasFailed && l.hasRef {
		l.child.dropRef()
	}
}

// dropRef closes the reference.
func (n *node) dropRef() {
	if ref := n.takeRef(); ref != nil {
		n.view.m.refs.Add(-1)
		ref.Close()
	}
}

// takeRef takes the reference from the node; nil: it has none.
func (n *node) takeRef() *vfs.File {
	e := n.ext.Load()
	if e == nil {
		return nil
	}
	return e.ref.Swap(nil)
}

// refCloser closes the references of a view that the kernel has forgotten, one after another.
// With the last reference to a removed file the source frees the file, which takes long on some
// disks. Meanwhile rmdir(2) of the directory that the file was in waits in a loop in the kernel,
// which uses a processor all the time (shrink_dcache_parent, fs/dcache.c). So the closer closes
// nothing during an RMDIR: a file whose reference is open does not make rmdir(2) wait. FORGET
// does not wait for an RMDIR: it leaves the reference to the closer.
type refCloser struct {
	mu      sync.Mutex    // guards the fields below
	waiting []func()      // each closes a reference
	busy    bool          // a reference is being closed
	rmdirs  int           // in progress
	closed  chan struct{} // closed when a reference was closed; nil: no RMDIR waits for it
}

const (
	// maxWaitingRefs bounds the references that stay open for RMDIRs: programs that remove
	// directories all the time must not use up maxRefs.
	maxWaitingRefs = maxRefs / 4
	// pauseLimit bounds how long an RMDIR waits for a source that hangs: a revocation waits for
	// the RMDIR.
	pauseLimit = guard.EndDeadline / 10
)

// add closes a reference: now, unless another is being closed, or after the RMDIRs in progress.
func (c *refCloser) add(closeRef func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, closeRef)
	c.closeWaitingLocked()
}

func (c *refCloser) isDueLocked() bool { return len(c.waiting) > 0 && c.rmdirs == 0 }

// closeWaitingLocked closes the references that wait, unless another call of it does. It
// releases the lock meanwhile.
func (c *refCloser) closeWaitingLocked() {
	for !c.busy && c.isDueLocked() {
		closeRef := c.waiting[0]
		c.waiting[0] = nil
		c.waiting = c.waiting[1:]
		c.busy = true
		c.mu.Unlock()
		closeRef()
		c.mu.Lock()
		c.busy = false
		if c.closed != nil {
			close(c.closed)
			c.closed = nil
		}
	}
}

// closeAll closes all references that wait. The caller calls it at the end of the root.
func (c *refCloser) closeAll() {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for _, closeRef := range waiting {
		closeRef()
	}
}

// pause makes the closer close nothing until the caller calls resume. It waits while too many
// references wait, and for the closing in progress, but at most for pauseLimit.
func (c *refCloser) pause() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var limit <-chan time.Time
	isLate := false
	awaitClosing := func() {
		if c.closed == nil {
			c.closed = make(chan struct{})
		}
		if limit == nil {
			limit = time.After(pauseLimit)
		}
		closed := c.closed
		c.mu.Unlock()
		defer c.mu.Lock()
		select {
		case <-closed:
		case <-limit:
			isLate = true
		}
	}
	for len(c.waiting) > maxWaitingRefs && !isLate {
		awaitClosing()
	}
	c.rmdirs++
	for c.busy && !isLate {
		awaitClosing()
	}
	return c.resume
}

func (c *refCloser) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rmdirs--
	if c.isDueLocked() {
		go func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.closeWaitingLocked()
		}()
	}
}

// errnoWithoutPath returns the error of an operation that needs the path of a node without
// path. A
// directory that was removed through the mount holds nothing (ENOENT); for everything else
// ESTALE makes the kernel look the path up again.
func (n *node) errnoWithoutPath() syscall.Errno {
	if e := n.ext.Load(); e != nil && e.ref.Load() != nil {
		return syscall.ENOENT
	}
	return errNoPath
}
