package mount

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/vfs"
)

// After ESTALE the kernel walks a path once more, and looks every name on the way up
// (LOOKUP_REVAL in fs/namei.c). It does so once: a second ESTALE reaches the program. A host
// that saves a file or exchanges directories may be faster than the second walk, too. So from
// the first ESTALE on, the look-ups of a thread take references to the files that they find. If
// the path leads elsewhere by then, the request works on the reference. A walk on a local file
// system holds its files in the same way.
//
// If a thread asks for a file again, right after ESTALE and without a look-up, it uses a
// descriptor and no name (/proc/self/fd). The directory of the first look-up after ESTALE also
// comes from a descriptor (openat(2)).

const (
	// maxRetries bounds the threads, and the references with them.
	maxRetries = 64
	// maxFound is how many references a thread has. The kernel looks a name up again to see
	// whether it still knows the file (d_revalidate), then once more to get the new one, and
	// then a name in it.
	maxFound = 4
	// retryFor is how long a walk may take. The mount does not learn when a system call ends
	// that only makes look-ups.
	retryFor = time.Second
)

// retries are the threads that were answered ESTALE lately, by thread ID.
type retries struct {
	active atomic.Int32 // len(threads), so that nearly all requests take no lock

	mu      sync.Mutex // guards the fields below
	threads map[uint32]*retry
}

// retry is one thread.
type retry struct {
	since time.Time
	// stale is the node for which the thread got ESTALE, and opened the one that it has
	// opened then; 0: it has looked a name up since. base is the directory of the first look-up.
	stale, opened, base uint64
	found               []found // the latest last
}

// found is the result of a look-up.
type found struct {
	node *node
	ref  *vfs.File
}

// note notes the answer to a request.
func (t *retries) note(header *fuse.InHeader, errno fuse.Status) {
	if errno != fuse.Status(syscall.ESTALE) && t.active.Load() == 0 {
		return
	}
	var drop []found
	t.mu.Lock()
	switch {
	case errno == fuse.Status(syscall.ESTALE):
		drop = t.tellLocked(header.Pid, header.NodeId)
	case header.Opcode == opOpen && errno.Ok():
		drop = t.openedLocked(header.Pid, header.NodeId)
	case !isOfWalk(header.Opcode):
		drop = t.endLocked(header.Pid) // the system call has got where it was going
	}
	t.mu.Unlock()
	closeFound(drop)
}

// isOfWalk reports whether a path walk makes requests of this kind.
func isOfWalk(opcode uint32) bool {
	switch opcode {
	case opLookup, opGetattr, opReadlink, opGetxattr, opAccess:
		return true
	}
	return false
}

// The kinds of requests of include/uapi/linux/fuse.h that a path walk makes.
const (
	opLookup   = 1
	opGetattr  = 3
	opReadlink = 5
	opOpen     = 14 // at its end
	opGetxattr = 22
	opAccess   = 34
)

func (t *retries) tellLocked(tid uint32, id uint64) (drop []found) {
	w := t.threads[tid]
	if w == nil {
		if len(t.threads) >= maxRetries {
			drop = t.endOldestLocked()
		}
		if t.threads == nil {
			t.threads = map[uint32]*retry{}
		}
		if len(t.threads) == 0 {
			time.AfterFunc(retryFor, t.expire)
		}
		w = &retry{}
		t.threads[tid] = w
		t.active.Store(int32(len(t.threads)))
	}
	w.since, w.stale, w.opened, w.base = time.Now(), id, 0, 0
	return append(drop, w.remove(func(f found) bool { return f.node.id == id })...)
}

// openedLocked ends the walk, except for the truncation that follows an open(2) with O_TRUNC.
func (t *retries) openedLocked(tid uint32, id uint64) []found {
	w := t.threads[tid]
	if w == nil {
		return nil
	}
	w.stale, w.opened, w.base = 0, id, 0
	return w.remove(func(found) bool { return true })
}

// remove removes and returns the references that match.
func (w *retry) remove(match func(found) bool) (removed []found) {
	var kept []found
	for _, f := range w.found {
		if match(f) {
			removed = append(removed, f)
		} else {
			kept = append(kept, f)
		}
	}
	w.found = kept
	return removed
}

func (t *retries) endLocked(tid uint32) []found {
	w := t.threads[tid]
	if w == nil {
		return nil
	}
	delete(t.threads, tid)
	t.active.Store(int32(len(t.threads)))
	return w.found
}

func (t *retries) endOldestLocked() []found {
	var oldest uint32
	since := time.Now()
	for tid, w := range t.threads {
		if w.since.Before(since) {
			oldest, since = tid, w.since
		}
	}
	return t.endLocked(oldest)
}

// expire ends the retries that are older than retryFor. If others are left, it runs again
// later.
func (t *retries) expire() {
	var drop []found
	t.mu.Lock()
	for tid, w := range t.threads {
		if time.Since(w.since) >= retryFor {
			drop = append(drop, t.endLocked(tid)...)
		}
	}
	if len(t.threads) > 0 {
		time.AfterFunc(retryFor, t.expire)
	}
	t.mu.Unlock()
	closeFound(drop)
}

// closeView closes the references to files of an ended root.
func (t *retries) closeView(v *view) {
	var drop []found
	t.mu.Lock()
	for _, w := range t.threads {
		drop = append(drop, w.remove(func(f found) bool { return f.node.view == v })...)
	}
	t.mu.Unlock()
	closeFound(drop)
}

func closeFound(list []found) {
	for _, f := range list {
		f.ref.Close()
	}
}

// beginLookup reports whether a look-up of the thread in a directory should take a reference.
func (t *retries) beginLookup(tid uint32, dir *node) bool {
	return t.is(tid, func(w *retry) bool {
		if w.stale != 0 {
			w.base = dir.id
		}
		w.stale, w.opened = 0, 0
		return true
	})
}

// add notes what a look-up of the thread has found.
func (t *retries) add(tid uint32, n *node, ref *vfs.File) {
	drop := []found{{n, ref}}
	t.mu.Lock()
	if w := t.threads[tid]; w != nil {
		w.found, drop = append(w.found, found{n, ref}), nil
		if over := len(w.found) - maxFound; over > 0 {
			drop = append(drop, w.found[:over]...)
			w.found = w.found[over:]
		}
	}
	t.mu.Unlock()
	closeFound(drop)
}

// find returns a reference to a node that a look-up of the thread has found, or nil.
func (t *retries) find(tid uint32, n *node) *vfs.File {
	if t.active.Load() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.threads[tid]; w != nil {
		for _, f := range w.found {
			if f.node == n {
				return f.ref
			}
		}
	}
	return nil
}

// hasOpened reports whether the thread got ESTALE in a system call that has opened the node
// since, and may be continuing with this request.
func (t *retries) hasOpened(tid uint32, n *node) bool {
	return t.is(tid, func(w *retry) bool { return w.opened == n.id })
}

// hasDescriptor reports whether the thread got ESTALE about a node and asks for it again, which
// it does only for a descriptor.
func (t *retries) hasDescriptor(tid uint32, n *node) bool {
	return t.is(tid, func(w *retry) bool { return w.stale == n.id || w.base == n.id })
}

func (t *retries) is(tid uint32, so func(w *retry) bool) bool {
	if t.active.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.threads[tid]
	return w != nil && so(w)
}
