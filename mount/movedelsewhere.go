package mount

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fs"

	"github.com/rootsfs/rootsfs/vfs"
)

// A directory has one place in the kernel's tree. When a look-up finds one that the
// kernel knows elsewhere, because the host or another front has moved it, the kernel
// moves what it knows. It cannot while somebody renames between two directories
// (__d_unalias in fs/dcache.c only tries for the locks), least of all when the look-up
// is the rename's own: then the rename ends with ESTALE, however often it is tried.
// So the kernel is made to let go of the old name before it is told of the new one.
// A directory that somebody holds (it is open, or a working directory, or something
// below it is) keeps its place, and needs a look-up outside of a rename as before.

// movedWait bounds how long a look-up waits until the kernel has let go of an old
// name. It has to be bounded: that takes the lock of the directory in which the old
// name is, which may be held by the rename that waits for the look-up. It gets ESTALE
// then, gives its locks up and tries once more, looking up the directories on the way
// first; and those look-ups wait for what is outstanding in the directory.
const movedWait = 100 * time.Millisecond

// met takes note that n was found under a name in dir: if it is a directory that the
// kernel was told of under another, the kernel is made to let go of that one. It does
// not wait, see awaitLetGo.
func (n *node) met(dir *node, name string) {
	if !n.IsDir() {
		return
	}
	before, parent := n.Parent()
	if parent == nil {
		return
	}
	if old := n.view.nodeAs(parent); old != nil && (old != dir || before != name) {
		n.letGo(old, before)
	}
}

// nodeAs is the node that the kernel knows as inode at, nil if that is none of the
// view.
func (v *view) nodeAs(at *fs.Inode) *node {
	switch o := at.Operations().(type) {
	case *node:
		if o.view == v {
			return o
		}
	case *topNode:
		return v.shownIn(o)
	}
	return nil
}

// leaving is an old name that the kernel is being made to let go of.
type leaving struct {
	told  <-chan struct{} // closed when it has been told
	until time.Time       // nobody waits for it any longer: a program may hold it off
}

// letGo has the kernel drop an old name of n. By way of the delivery, which bounds
// how many may hang behind a directory that a program holds.
func (n *node) letGo(dir *node, name string) {
	told := n.view.m.delivery.putTold(dir, vfs.SourceEvent{Dir: dir, Name: name, Deleted: true, IsDir: true})
	x := &leaving{told, time.Now().Add(10 * movedWait)}
	n.extra().leaving.Store(x)
	dir.extra().leaving.Store(x)
}

// awaitLetGo waits until the kernel was told of an old name of n, or of one in n,
// if that is outstanding.
func (n *node) awaitLetGo() {
	e := n.ext.Load()
	if e == nil {
		return
	}
	x := e.leaving.Load()
	if x == nil {
		return
	}
	if left := time.Until(x.until); left <= 0 || waitFor(x.told, min(left, movedWait)) {
		e.leaving.CompareAndSwap(x, nil)
	}
}
