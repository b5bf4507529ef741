package mount

import (
	"container/list"
	"context"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// At level Max the kernel never says OPEN, so reads and writes come for a node
// without a handle. The node then keeps a descriptor of its own. keptFiles
// bounds how many: the least recently used one is closed, unless its file has
// lost its name, in which case nobody could open it again for the program that
// may still hold it.
type keptFiles struct {
	mu   sync.Mutex // guards the fields below and nodeExt.keep, nodeExt.elem
	lru  list.List  // of *node, most recent first
	max  int
	held int // nameless ones, outside the list
}

const defaultMaxOpen = 1024

// kept returns the node's own descriptor, opened for writing if write, and
// keeps it open until the flight has landed.
func (n *node) kept(ctx context.Context, c guard.Caller, write bool) (*vfs.File, syscall.Errno) {
	k := &n.view.m.keptFiles
	if f := k.use(n, write); f != nil {
		return n.retain(ctx, f)
	}
	flags := unix.O_RDONLY
	if write {
		flags = unix.O_RDWR
	}
	f, errno := n.openKept(ctx, c, flags)
	if errno != 0 {
		return nil, errno
	}
	f = k.add(n, f)
	return n.retain(ctx, f)
}

// openKept opens for reading and writing, or for writing only where the file
// may not be read.
func (n *node) openKept(ctx context.Context, c guard.Caller, flags int) (*vfs.File, syscall.Errno) {
	f, err := n.openAnyhow(ctx, c, flags)
	if err != nil && flags == unix.O_RDWR {
		f, err = n.openAnyhow(ctx, c, unix.O_WRONLY)
	}
	if err == nil {
		f.CountOnlyWhileUsed()
	}
	return f, errnoOf(err)
}

// openAnyhow opens the file by its place, or through what we hold of it.
func (n *node) openAnyhow(ctx context.Context, c guard.Caller, flags int) (*vfs.File, error) {
	err := error(orphan)
	if at, ok := n.place(); ok {
		var f *vfs.File
		f, _, err = n.tree().Open(ctx, c, at, flags)
		if names.Errno(err) != orphan {
			return f, err
		}
	}
	have := n.anyFile()
	if have == nil {
		return nil, err
	}
	f, again := have.Reopen(ctx, c, flags, vfs.Reopening{Read: n.view.m.opt.Level == Max})
	if names.Errno(again) == syscall.EBADF {
		return nil, err // closed meanwhile: there is nothing to go by
	}
	return f, again
}

func (n *node) retain(ctx context.Context, f *vfs.File) (*vfs.File, syscall.Errno) {
	if !f.Retain() {
		return nil, syscall.EBADF
	}
	if fl := n.view.m.raw.flights.of(ctx); fl != nil {
		fl.mu.Lock()
		fl.files = append(fl.files, f)
		fl.mu.Unlock()
	} else {
		f.Unretain()
	}
	return f, 0
}

// use returns the kept descriptor if it will do, and marks it as used.
func (k *keptFiles) use(n *node, write bool) *vfs.File {
	e := n.extra()
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.keep == nil || write && !e.keep.Writable() || !write && !e.keep.Readable() {
		return nil
	}
	if e.elem != nil {
		k.lru.MoveToFront(e.elem)
	}
	return e.keep
}

// add keeps a descriptor, closing the one it replaces and those over the bound.
func (k *keptFiles) add(n *node, f *vfs.File) *vfs.File {
	e := n.extra()
	var closing []*vfs.File
	k.mu.Lock()
	if e.keep != nil {
		closing = append(closing, e.keep)
	}
	e.keep = f
	if e.elem == nil {
		e.elem = k.lru.PushFront(n)
	}
	for k.lru.Len() > k.max {
		last := k.lru.Back()
		old := last.Value.(*node)
		oe := old.extra()
		k.lru.Remove(last)
		oe.elem = nil
		if _, parent := old.Parent(); parent == nil {
			k.held++ // nameless: kept outside the list
			continue
		}
		closing = append(closing, oe.keep)
		oe.keep = nil
	}
	k.mu.Unlock()
	for _, f := range closing {
		f.Close()
	}
	return f
}

// drop closes the node's descriptor.
func (k *keptFiles) drop(n *node) {
	e := n.ext.Load()
	if e == nil {
		return
	}
	k.mu.Lock()
	f := e.keep
	e.keep = nil
	if e.elem != nil {
		k.lru.Remove(e.elem)
		e.elem = nil
	} else if f != nil {
		k.held--
	}
	k.mu.Unlock()
	if f != nil {
		f.Close()
	}
}

// closeKept closes the descriptors we hold of an ended root.
func (v *view) closeKept() {
	for _, n := range v.all() {
		v.m.keptFiles.drop(n)
		n.dropRef()
		n.dropLocks()
	}
}
