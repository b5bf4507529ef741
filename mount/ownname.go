package mount

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"

	"github.com/rootsfs/rootsfs/vfs"
)

// That a name is absent from a directory is known to the kernel alone: no node of
// ours stands for it. Where nobody can say which names those are, because events of
// the source were lost, the kernel can be made to forget them only with the name of
// the directory itself. But a directory that a program holds open, or works in, goes
// on without a name once that was taken back, until somebody walks to it anew. So
// what is absent from a directory without a name is not kept at all.

// takeOwnName calls f, which makes the kernel drop the name of directory n.
func (n *node) takeOwnName(f func()) {
	e := n.extra()
	mark := func(by int) {
		e.mu.Lock()
		e.taking += by
		e.nameless.Store(true)
		e.mu.Unlock()
	}
	mark(1)
	defer mark(-1)
	f()
}

// hasOwnName says that the kernel is about to be given n's name. While that is being
// taken back, nobody can tell which of the two comes first.
func (n *node) hasOwnName() {
	e := n.ext.Load()
	if e == nil || !e.nameless.Load() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.taking == 0 {
		e.nameless.Store(false)
	}
}

// nameless reports that the kernel may know n without a name.
func (n *node) nameless() bool {
	e := n.ext.Load()
	return e != nil && e.nameless.Load()
}

// dropName makes the kernel drop a name in a directory.
func dropName(dir *fs.Inode, name string) (errno syscall.Errno) {
	child := dir.GetChild(name)
	if child == nil || !child.IsDir() {
		return dir.NotifyEntry(name)
	}
	n, ok := child.Operations().(*node)
	if !ok {
		return dir.NotifyEntry(name)
	}
	n.takeOwnName(func() { errno = dir.NotifyEntry(name) })
	return errno
}

// awaitLookups waits until the kernel has taken the answers to look-ups in directory
// n that are on their way: it asks with the directory's lock held, which any
// notification of a name in it takes too. The name is one that is never shown.
func (n *node) awaitLookups() { n.notifyEntry(vfs.TempPrefix) }
