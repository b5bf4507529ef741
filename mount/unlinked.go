package mount

import (
	"sync"
	"syscall"

	"github.com/rootsfs/rootsfs/vfs"
)

// A file that loses its name may still be in use: as an open file, a working
// directory, an O_PATH descriptor, or in a path walk that found it a moment ago.
// No path leads to it then, so a reference to the file (O_PATH) is taken before its name
// goes, and kept until the kernel forgets the node.

// maxRefs bounds the descriptors for these references. The kernel forgets a file soon
// after its last user has, so more means that somebody collects nameless files;
// those beyond the bound, or beyond vfs.MaxKept, answer ESTALE where no open
// file helps.
const maxRefs = 4096

// pendingRemoval is a removal of a name that the kernel knows.
type pendingRemoval struct {
	child *node

	mu        sync.Mutex // guards the fields below
	taken     bool       // the reference
	remaining bool       // the name is still there, at the end
}

// prepareRemoval has the removal of a name in n, whose path is at, keep a reference to the
// file, if the kernel knows it. The caller calls done at the end, and says whether the name
// has gone.
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

// keep takes the reference. It is there before the name goes: a request that finds
// the name gone on the source, but not yet in our tree, needs it too.
func (l *pendingRemoval) keep(ref *vfs.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remaining || !l.child.extra().ref.CompareAndSwap(nil, ref) {
		ref.Close()
		return
	}
	l.taken = true
	l.child.view.m.refs.Add(1)
}

func (l *pendingRemoval) done(gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.remaining = !gone; l.remaining && l.taken {
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

// errnoWithoutPath is the answer to an operation that needs the path of a node without one. A
// directory that was removed through the mount holds nothing (ENOENT); for everything else
// ESTALE makes the kernel look the path up again.
func (n *node) errnoWithoutPath() syscall.Errno {
	if e := n.ext.Load(); e != nil && e.ref.Load() != nil {
		return syscall.ENOENT
	}
	return errNoPath
}
