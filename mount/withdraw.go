package mount

import (
	"time"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// A directory has one location in the kernel's tree. When the host or another front has moved a
// directory that the kernel knows, and a look-up finds it at the new location, the kernel moves
// its entry. The kernel cannot do so while a program renames between two directories
// (__d_unalias in fs/dcache.c only tries for the locks). If the look-up belongs to the rename
// itself, the rename ends with ESTALE, however often it is tried. So the mount makes the
// kernel drop the old name before it answers with the new one. A directory that a program holds
// (it is open, or a working directory, or a file below it is) keeps its old name in the kernel
// until a look-up outside of a rename.

// withdrawWait bounds how long a look-up waits until the kernel has dropped an old name. The
// wait must be bounded: dropping takes the lock of the old name's directory, and the rename
// that waits for the look-up may hold this lock. Such a rename gets ESTALE, releases its
// locks and tries once more. First the rename looks up the directories of its paths again. Each of
// these look-ups waits, at the longest for withdrawWait, until the old names in the directory that
// it finds are dropped.
const withdrawWait = 100 * time.Millisecond

// noteLocation is called after a look-up has found n at a location; before is where n was
// found last. If n is a directory that has moved, noteLocation has the kernel drop the old
// name. It does not wait for that: see awaitWithdrawal.
func (n *node) noteLocation(before, at location) {
	if n.isDir() && before.dir != nil && before != at && before.dir.view == n.view {
		n.withdrawOldName(before.dir, before.name)
	}
}

// nameWithdrawal is an old name of a directory that the kernel is being made to drop.
type nameWithdrawal struct {
	done     <-chan struct{} // closed when the kernel was notified
	deadline time.Time       // of every wait: a program may keep the kernel from dropping the name
}

// withdrawOldName has the kernel drop an old name of n. It uses the delivery, which bounds
// the goroutines that wait for a directory whose lock a program holds.
func (n *node) withdrawOldName(dir *node, name string) {
	done := n.view.m.delivery.enqueueNotify(dir, watch.SourceEvent{Dir: dir, Name: name, Deleted: true, IsDir: true})
	x := &nameWithdrawal{done, time.Now().Add(10 * withdrawWait)}
	n.extra().withdrawal.Store(x)
	dir.extra().withdrawal.Store(x)
}

// awaitWithdrawal waits, at the longest for withdrawWait, until the latest withdrawal of an old
// name of n, or of an old name in directory n, is done.
func (n *node) awaitWithdrawal() {
	e := n.ext.Load()
	if e == nil {
		return
	}
	x := e.withdrawal.Load()
	if x == nil {
		return
	}
	if left := time.Until(x.deadline); left <= 0 || waitFor(x.done, min(left, withdrawWait)) {
		e.withdrawal.CompareAndSwap(x, nil)
	}
}

// Only the kernel knows which absent names it has cached: the mount has no node for an
// absent name. When events of the source were lost, the kernel forgets these absences only
// together with the name of the directory itself. But a directory that a program has open, or
// works in, stays in use without a name after that, until a program walks to it again. So the
// kernel may not cache absences in a directory without a name.

// withdrawName calls f, which makes the kernel drop the name of directory n, and marks n as nameless
// (see isNameless).
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

// noteNameRestored notes that an answer is about to give n's name to the kernel. It has no effect
// while withdrawName is running for n: the kernel may drop the name after the answer.
func (n *node) noteNameRestored() {
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

// isNameless reports whether the kernel may know n without a name.
func (n *node) isNameless() bool {
	e := n.ext.Load()
	return e != nil && e.nameless.Load()
}

// awaitLookups waits until the kernel has processed the answers to look-ups in directory n.
// The kernel holds the directory's lock during a look-up, and a notification of a name in the
// directory takes the same lock. The notified name is one that no program ever sees.
func (n *node) awaitLookups() { n.notifyEntry(vfs.TempPrefix) }
