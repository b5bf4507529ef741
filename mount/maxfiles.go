package mount

import (
	"container/list"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// fileCache bounds the descriptors that nodes keep at level Max. At this level the kernel
// sends no OPEN, so READ and WRITE come without a handle, and the node keeps a descriptor of its
// own. Over the bound the least recently used descriptor is closed, but not that of a file
// without a name: such a file could not be opened again for a program that still holds it.
type fileCache struct {
	mu  sync.Mutex // guards the fields below, and cached and lruElem of nodes
	lru list.List  // of *node, most recent first
	max int
}

// maxOpen is the largest possible value of fileCache.max.
const maxOpen = 1024

// cachedFile returns the node's own descriptor, opened for writing if write, and
// keeps it open until the request ends.
func (r *request) cachedFile(n *node, write bool) (*vfs.File, error) {
	k := &r.m.fileCache
	f := k.use(n, write)
	if f == nil {
		flags := unix.O_RDONLY
		if write {
			flags = unix.O_RDWR
		}
		opened, err := r.openCached(n, flags)
		if err != nil {
			return nil, err
		}
		f = k.add(n, opened)
	}
	if !r.borrow(f) {
		return nil, syscall.EBADF
	}
	return f, nil
}

// openCached opens the file with flags. If opening for reading and writing fails, openCached
// tries to open the file for writing only: perhaps the caller has no right to read it.
func (r *request) openCached(n *node, flags int) (*vfs.File, error) {
	f, err := r.openByPathOrHandle(n, flags)
	if err != nil && flags == unix.O_RDWR {
		f, err = r.openByPathOrHandle(n, unix.O_WRONLY)
	}
	if err == nil {
		f.CountOnlyWhileUsed()
	}
	return f, err
}

// openByPathOrHandle opens the file by its path. If the path no longer leads to the file,
// openByPathOrHandle reopens a descriptor of the file:
//   - at.Held, if pathOf has set it for the program's thread that made the request;
//   - for a node without a path, any descriptor of the node;
//   - at level Max any descriptor of the node, because the request is not an open(2), and the
//     kernel would not try again.
//
// Without a descriptor the answer is ESTALE. The kernel then looks the name up again: the
// program may mean the file that has the name now.
func (r *request) openByPathOrHandle(n *node, flags int) (*vfs.File, error) {
	err := error(errNoPath)
	at, ok := r.pathOf(n)
	if ok {
		var f *vfs.File
		f, _, err = r.m.tree.Open(r, r.caller, at, flags)
		if names.Errno(err) != errNoPath {
			return f, err
		}
	}
	held := at.Held
	if held == nil && (!ok || r.m.opt.Level == Max) {
		held = n.anyFile()
	}
	if held == nil {
		return nil, err
	}
	f, reopenErr := held.Reopen(r, r.caller, flags, vfs.ReopenOptions{Read: r.m.opt.Level == Max})
	if names.Errno(reopenErr) == syscall.EBADF {
		return nil, err // held was closed meanwhile
	}
	return f, reopenErr
}

// use returns the node's own descriptor if it has the access mode, and marks it as used.
func (k *fileCache) use(n *node, write bool) *vfs.File {
	e := n.extra()
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.cached == nil || write && !e.cached.Writable() || !write && !e.cached.Readable() {
		return nil
	}
	if e.lruElem != nil {
		k.lru.MoveToFront(e.lruElem)
	}
	return e.cached
}

// add makes f the node's own descriptor, and returns f. It closes the descriptor that f
// replaces. It also closes descriptors over the bound, as the comment of fileCache says.
func (k *fileCache) add(n *node, f *vfs.File) *vfs.File {
	e := n.extra()
	var closing []*vfs.File
	k.mu.Lock()
	if e.cached != nil {
		closing = append(closing, e.cached)
	}
	e.cached = f
	if e.lruElem == nil {
		e.lruElem = k.lru.PushFront(n)
	}
	for k.lru.Len() > k.max {
		last := k.lru.Back()
		old := last.Value.(*node)
		oe := old.extra()
		k.lru.Remove(last)
		oe.lruElem = nil
		if old.parent().dir == nil {
			continue
		}
		closing = append(closing, oe.cached)
		oe.cached = nil
	}
	k.mu.Unlock()
	for _, f := range closing {
		f.Close()
	}
	return f
}

// drop closes the node's own descriptor.
func (k *fileCache) drop(n *node) {
	e := n.ext.Load()
	if e == nil {
		return
	}
	k.mu.Lock()
	f := e.cached
	e.cached = nil
	if e.lruElem != nil {
		k.lru.Remove(e.lruElem)
		e.lruElem = nil
	}
	k.mu.Unlock()
	if f != nil {
		f.Close()
	}
}

// closeHeldFiles closes the cached files, references and locks of an ended root's nodes.
func (v *view) closeHeldFiles() {
	v.m.retries.closeView(v)
	for _, n := range v.all() {
		v.m.fileCache.drop(n)
		n.dropRef()
		n.dropLocks()
	}
	v.closer.closeAll()
}
