package mount

import (
	"sync"
	"syscall"

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
	e := n.ext.Load()
	if e == nil {
		return
	}
	if ref := e.ref.Swap(nil); ref != nil {
		n.view.m.refs.Add(-1)
		ref.Close()
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
