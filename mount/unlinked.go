package mount

import (
	"slices"
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
// its last use, so more references mean that a program collects nameless files. Beyond this bound,
// or beyond vfs.MaxOpen, a nameless file gets no reference, and requests for it are answered ESTALE
// unless it is open.
const maxRefs = 4096

// pendingRemoval is a removal of a name that the kernel knows.
type pendingRemoval struct {
	dir, child *node

	mu        sync.Mutex // guards the fields below
	hasRef    bool       // child has got the reference from this removal
	hasFailed bool       // the removal has ended and the name is still there
}

// prepareRemoval makes the removal of a name in directory n keep a reference to the file, if
// the kernel knows the file and there are fewer than maxRefs references. at is the directory's
// path. The caller must call done at the end of the removal, with gone set if the name was removed.
func (n *node) prepareRemoval(at *vfs.At, name string) (done func(gone bool)) {
	nothing := func(bool) {}
	child := n.child(name)
	if child == nil || n.view.m.refs.Load() >= maxRefs {
		return nothing
	}
	l := &pendingRemoval{dir: n, child: child}
	at.Removed = &vfs.Removed{ID: child.identity(), Keep: l.keep}
	return l.done
}

// keep stores the reference in the node. Package vfs calls keep before it removes the name: a request
// that comes when the name is removed on the source, but is still in the tree, needs the reference
// too.
func (l *pendingRemoval) keep(ref *vfs.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.child.extra()
	if l.hasFailed || !e.ref.CompareAndSwap(nil, ref) {
		ref.Close()
		return
	}
	e.refDir.Store(l.dir)
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

// refCloser closes the references of nodes that the kernel has forgotten, one after another. Each
// view has one refCloser. When the last reference to a removed file is closed, the source frees the
// file. This takes long on some disks. Meanwhile rmdir(2) of the directory that the file was in
// waits in a loop in the kernel, which uses a processor all the time (shrink_dcache_parent,
// fs/dcache.c). So during an RMDIR the closer closes no reference to what was in that directory:
// while the reference is open, rmdir(2) does not wait. FORGET does not wait for an RMDIR: it leaves
// the reference to the closer.
type refCloser struct {
	mu      sync.Mutex // guards the fields below
	waiting []removedRef
	busy    *removedRef   // the reference that is being closed; nil: none
	closed  chan struct{} // closed when busy has been closed; nil: no RMDIR waits for it
	rmdirs  []*node       // the directories that are being removed
}

// removedRef is a reference to a file that was removed from dir.
type removedRef struct {
	dir   *node
	close func()
}

// pauseLimit bounds how long an RMDIR waits for a source that hangs: a revocation waits for the
// RMDIR.
const pauseLimit = guard.EndDeadline / 10

// add makes the closer close a reference: at once, or after the reference that is being closed,
// or after the RMDIR of the reference's directory.
func (c *refCloser) add(ref removedRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, ref)
	c.closeWaitingLocked()
}

// closeWaitingLocked closes the waiting references whose directory is not being removed, unless
// another call is doing so. It releases the lock while it closes a reference.
func (c *refCloser) closeWaitingLocked() {
	for c.busy == nil {
		i := slices.IndexFunc(c.waiting, func(ref removedRef) bool { return !slices.Contains(c.rmdirs, ref.dir) })
		if i < 0 {
			return
		}
		ref := c.waiting[i]
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.busy = &ref
		c.mu.Unlock()
		ref.close()
		c.mu.Lock()
		c.busy = nil
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
	for _, ref := range waiting {
		ref.close()
	}
}

// beginRmdir makes the closer close no reference to what was in dir until the caller calls end.
// It waits if such a reference is being closed, but at most for pauseLimit.
func (c *refCloser) beginRmdir(dir *node) (end func()) {
	c.mu.Lock()
	c.rmdirs = append(c.rmdirs, dir)
	var closed chan struct{}
	if c.busy != nil && c.busy.dir == dir {
		if c.closed == nil {
			c.closed = make(chan struct{})
		}
		closed = c.closed
	}
	c.mu.Unlock()
	if closed != nil {
		select {
		case <-closed:
		case <-time.After(pauseLimit):
		}
	}
	return func() { c.endRmdir(dir) }
}

func (c *refCloser) endRmdir(dir *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.rmdirs, dir)
	c.rmdirs = slices.Delete(c.rmdirs, i, i+1)
	if len(c.waiting) > 0 && c.busy == nil {
		go func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.closeWaitingLocked()
		}()
	}
}

// errnoWithoutPath returns the error of an operation that needs a path, for a node that has none.
// A directory that was removed through the mount, and has a reference, is empty (ENOENT). For every
// other node ESTALE makes the kernel look the path up again.
func (n *node) errnoWithoutPath() syscall.Errno {
	if e := n.ext.Load(); e != nil && e.ref.Load() != nil {
		return syscall.ENOENT
	}
	return errNoPath
}
