package mount

import (
	"container/list"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// fileCache bounds the descriptors that nodes keep at level Max. There the kernel sends no
// OPEN, so READ and WRITE come without a handle, and the node keeps a descriptor of its
// own. Over the bound the least recently used descriptor is closed, but not that of a file
// without a name: such a file could not be opened again for a program that still holds it.
type fileCache struct {
	mu       sync.Mutex // guards the fields below, and cached and listed of nodes
	lru      list.List  // of *node, most recent first
	max      int
	nameless int // descriptors of files without a name, outside the list
}

// maxOpen is how many descriptors a mount at level Max keeps at most.
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

// openCached opens the file with flags. If opening for reading and writing fails, it opens
// for writing only: the file may not be readable.
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

// openByPathOrHandle opens the file by its path. If the path no longer leads to the file, it
// opens the file through what a look-up of the thread has found. Else the answer is ESTALE,
// upon which the kernel looks the name up again: the program may have asked for the file that
// has the name now. If that leads here once more, or the node has no name, the file is opened
// through an open descriptor of it. At level Max this is no open(2), and the kernel does not
// try again.
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
	have := at.Held
	if have == nil && (!ok || r.m.opt.Level == Max) {
		have = n.anyFile()
	}
	if have == nil {
		return nil, err
	}
	f, again := have.Reopen(r, r.caller, flags, vfs.Reopening{Read: r.m.opt.Level == Max})
	if names.Errno(again) == syscall.EBADF {
		return nil, err // have was closed meanwhile
	}
	return f, again
}

// use returns the node's own descriptor if it has the access mode, and marks it as used.
func (k *fileCache) use(n *node, write bool) *vfs.File {
	e := n.extra()
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.cached == nil || write && !e.cached.Writable() || !write && !e.cached.Readable() {
		return nil
	}
	if e.listed != nil {
		k.lru.MoveToFront(e.listed)
	}
	return e.cached
}

// add makes f the node's own descriptor. It closes the descriptor that f replaces, and
// descriptors over the bound.
func (k *fileCache) add(n *node, f *vfs.File) *vfs.File {
	e := n.extra()
	var closing []*vfs.File
	k.mu.Lock()
	if e.cached != nil {
		closing = append(closing, e.cached)
	}
	e.cached = f
	if e.listed == nil {
		e.listed = k.lru.PushFront(n)
	}
	for k.lru.Len() > k.max {
		last := k.lru.Back()
		old := last.Value.(*node)
		oe := old.extra()
		k.lru.Remove(last)
		oe.listed = nil
		if old.parent().dir == nil {
			k.nameless++
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
	if e.listed != nil {
		k.lru.Remove(e.listed)
		e.listed = nil
	} else if f != nil {
		k.nameless--
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
