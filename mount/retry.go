package mount

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/vfs"
)

// After ESTALE the kernel walks the path once more, and sends a LOOKUP for every name in it
// (LOOKUP_REVAL in fs/namei.c). It does so once: a second ESTALE reaches the program. While the
// kernel walks the path again, the host may save the file or exchange directories once more. So
// from the first ESTALE on, the look-ups of a thread take references to the files that they find.
// If the path leads elsewhere by the time of the request that follows the walk, the request works
// on the reference. A walk on a local file system holds its files in the same way.
//
// A thread that asks for a file again right after ESTALE, without a look-up, names the file by a
// descriptor (/proc/self/fd). The directory of the first look-up after ESTALE also comes from a
// descriptor (openat(2)).

const (
	// maxRetries bounds the threads in retries, and thereby their references.
	maxRetries = 64
	// maxWalkRefs is how many references a thread has at most: two for the last name of a path,
	// and two for the directory that the name is in. The kernel looks a name up to see whether
	// the name still leads to the file that the kernel knows (d_revalidate). If it does not,
	// the kernel looks the name up once more to get the new file.
	maxWalkRefs = 4
	// retryFor is how long a walk may take. If a system call makes only look-ups, the mount
	// does not learn when the call ends.
	retryFor = time.Second
)

// retries are the threads that were answered ESTALE lately, by thread ID.
type retries struct {
	active atomic.Int32 // len(threads), so that nearly all requests take no lock

	mu      sync.Mutex // guards the fields below
	threads map[uint32]*retry
}

// retry is the state of one thread that was answered ESTALE.
type retry struct {
	since time.Time // of the latest ESTALE

	// The next three fields are node IDs, or 0.

	stale  uint64 // the node for which the thread got ESTALE; until a look-up or an OPEN
	opened uint64 // the node that the thread opened after ESTALE; until a look-up or ESTALE
	base   uint64 // the directory of the first look-up after ESTALE; until an OPEN or ESTALE

	refs []walkRef // the latest last
}

// walkRef is a reference to a file that a look-up has found.
type walkRef struct {
	node *node
	ref  *vfs.File
}

// note notes the answer to a request.
func (t *retries) note(header *fuse.InHeader, errno fuse.Status) {
	if errno != fuse.Status(syscall.ESTALE) && t.active.Load() == 0 {
		return
	}
	var drop []walkRef
	t.mu.Lock()
	switch {
	case errno == fuse.Status(syscall.ESTALE):
		drop = t.noteStaleLocked(header.Pid, header.NodeId)
	case header.Opcode == opOpen && errno.Ok():
		drop = t.noteOpenLocked(header.Pid, header.NodeId)
	case !isOfWalk(header.Opcode):
		drop = t.endLocked(header.Pid) // the walk has reached its end
	}
	t.mu.Unlock()
	closeRefs(drop)
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
	opOpen     = 14 // at the end of the walk
	opGetxattr = 22
	opAccess   = 34
)

// noteStaleLocked notes that the thread gets ESTALE for a node. It returns the references to
// close.
func (t *retries) noteStaleLocked(tid uint32, id uint64) (drop []walkRef) {
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
	return append(drop, w.remove(func(f walkRef) bool { return f.node.id == id })...)
}

// noteOpenLocked ends the walk of a thread that has opened a node, and returns the references to
// close. It keeps the node's ID for the truncation that follows an open(2) with O_TRUNC.
func (t *retries) noteOpenLocked(tid uint32, id uint64) []walkRef {
	w := t.threads[tid]
	if w == nil {
		return nil
	}
	w.stale, w.opened, w.base = 0, id, 0
	return w.remove(func(walkRef) bool { return true })
}

// remove removes and returns the references that match.
func (w *retry) remove(match func(walkRef) bool) (removed []walkRef) {
	var kept []walkRef
	for _, f := range w.refs {
		if match(f) {
			removed = append(removed, f)
		} else {
			kept = append(kept, f)
		}
	}
	w.refs = kept
	return removed
}

func (t *retries) endLocked(tid uint32) []walkRef {
	w := t.threads[tid]
	if w == nil {
		return nil
	}
	delete(t.threads, tid)
	t.active.Store(int32(len(t.threads)))
	return w.refs
}

func (t *retries) endOldestLocked() []walkRef {
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
	var drop []walkRef
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
	closeRefs(drop)
}

// closeView closes the references to files of v, the view of an ended root.
func (t *retries) closeView(v *view) {
	var drop []walkRef
	t.mu.Lock()
	for _, w := range t.threads {
		drop = append(drop, w.remove(func(f walkRef) bool { return f.node.view == v })...)
	}
	t.mu.Unlock()
	closeRefs(drop)
}

func closeRefs(list []walkRef) {
	for _, f := range list {
		f.ref.Close()
	}
}

// beginLookup notes a look-up of the thread in a directory. It reports whether the look-up should
// take a reference.
func (t *retries) beginLookup(tid uint32, dir *node) bool {
	return t.matches(tid, func(w *retry) bool {
		if w.stale != 0 {
			w.base = dir.id
		}
		w.stale, w.opened = 0, 0
		return true
	})
}

// add notes the reference to the file that a look-up of the thread has found.
func (t *retries) add(tid uint32, n *node, ref *vfs.File) {
	drop := []walkRef{{n, ref}}
	t.mu.Lock()
	if w := t.threads[tid]; w != nil {
		w.refs, drop = append(w.refs, walkRef{n, ref}), nil
		if over := len(w.refs) - maxWalkRefs; over > 0 {
			drop = append(drop, w.refs[:over]...)
			w.refs = w.refs[over:]
		}
	}
	t.mu.Unlock()
	closeRefs(drop)
}

// find returns a reference to a node that a look-up of the thread has found, or nil.
func (t *retries) find(tid uint32, n *node) *vfs.File {
	if t.active.Load() == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.threads[tid]; w != nil {
		for _, f := range w.refs {
			if f.node == n {
				return f.ref
			}
		}
	}
	return nil
}

// hasOpened reports whether the thread has opened the node after ESTALE, and has made no look-up
// since. The thread's present request may then belong to the same open(2).
func (t *retries) hasOpened(tid uint32, n *node) bool {
	return t.matches(tid, func(w *retry) bool { return w.opened == n.id })
}

// hasDescriptor reports whether the thread names the node by a descriptor: the thread got ESTALE
// for the node and asks for the node again without a look-up, or the thread's walk after ESTALE
// began in the node.
func (t *retries) hasDescriptor(tid uint32, n *node) bool {
	return t.matches(tid, func(w *retry) bool { return w.stale == n.id || w.base == n.id })
}

// matches reports whether the thread was answered ESTALE lately and match returns true for it.
// match may change the retry.
func (t *retries) matches(tid uint32, match func(w *retry) bool) bool {
	if t.active.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.threads[tid]
	return w != nil && match(w)
}
