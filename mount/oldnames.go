package mount

import (
	"time"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
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

// foundAt is told where a look-up has found n, and where it was found before. If n is a
// directory that has moved, foundAt has the kernel drop the old name. It does not wait: see
// awaitWithdrawal.
func (n *node) foundAt(before, at location) {
	if n.isDir() && before.dir != nil && before != at && before.dir.view == n.view {
		n.withdrawOldName(before.dir, before.name)
	}
}

// nameWithdrawal is an old name that the kernel is being made to let go of.
type nameWithdrawal struct {
	done     <-chan struct{} // closed when the kernel has been told
	deadline time.Time       // of the waiting: a program may hold the kernel off
}

// withdrawOldName has the kernel drop an old name of n. By way of the delivery, which bounds
// how many may hang behind a directory that a program holds.
func (n *node) withdrawOldName(dir *node, name string) {
	done := n.view.m.delivery.enqueueNotify(dir, watch.SourceEvent{Dir: dir, Name: name, Deleted: true, IsDir: true})
	x := &nameWithdrawal{done, time.Now().Add(10 * movedWait)}
	n.extra().withdrawal.Store(x)
	dir.extra().withdrawal.Store(x)
}

// awaitWithdrawal waits until the kernel was told of an old name of n, or of one in n,
// if that is outstanding.
func (n *node) awaitWithdrawal() {
	e := n.ext.Load()
	if e == nil {
		return
	}
	x := e.withdrawal.Load()
	if x == nil {
		return
	}
	if left := time.Until(x.deadline); left <= 0 || waitFor(x.done, min(left, movedWait)) {
		e.withdrawal.CompareAndSwap(x, nil)
	}
}

// That a name is absent from a directory is known to the kernel alone: no node of
// ours stands for it. Where nobody can say which names those are, because events of
// the source were lost, the kernel can be made to forget them only with the name of
// the directory itself. But a directory that a program holds open, or works in, goes
// on without a name once that was taken back, until somebody walks to it anew. So
// what is absent from a directory without a name is not kept at all.

// withdrawName calls f, which makes the kernel drop the name of directory n.
func (n *node) withdrawName(f func()) {
	e := n.extra()
	mark := func(by int) {
		e.mu.Lock()
		e.withdrawing += by
		e.nameless.Store(true)
		e.mu.Unlock()
	}
	mark(1)
	defer mark(-1)
	f()
}

// nameRestored says that the kernel is about to be given n's name. While that is being
// taken back, nobody can tell which of the two comes first.
func (n *node) nameRestored() {
	e := n.ext.Load()
	if e == nil || !e.nameless.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.withdrawing == 0 {
		e.nameless.Store(false)
	}
}

// nameless reports that the kernel may know n without a name.
func (n *node) nameless() bool {
	e := n.ext.Load()
	return e != nil && e.nameless.Load()
}

// awaitLookups waits until the kernel has taken the answers to look-ups in directory
// n that are on their way: it asks with the directory's lock held, which any
// notification of a name in it takes too. The name is one that is never shown.
func (n *node) awaitLookups() { n.notifyEntry(vfs.TempPrefix) }
