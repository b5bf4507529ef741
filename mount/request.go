package mount

import (
	"context"
	"slices"
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/incoming"
	"github.com/rootsfs/rootsfs/vfs"
)

// fileSystem answers the kernel's requests. It embeds nothing, so that the compiler finds a
// missing method. Each method that answers a request of the kernel calls begin or beginUnobserved,
// so that a revocation can wait for the request. The exceptions are Forget, Release and ReleaseDir,
// which only free something, and Ioctl, which is refused.
type fileSystem struct {
	m     *Mount
	files handles[handle]
	dirs  handles[dirHandle]
}

// newFileSystem makes the mount's file system, with its top directory.
func newFileSystem(m *Mount, k kernel) *fileSystem {
	m.kernel = k
	m.ownView = &view{m: m}
	m.nodes.views = map[uint64]*view{}
	m.top = &node{view: m.ownView, ino: topIno, kind: fuse.S_IFDIR}
	m.top.extra().ownFile = &ownFile{}
	m.top.lookups = 1
	m.ownView.addLocked(m.top) // the first node gets the ID fuse.FUSE_ROOT_ID
	return &fileSystem{m: m}
}

// kernel takes notifications that make the kernel drop cached pages, attributes and names.
type kernel interface {
	InodeNotify(node uint64, off, length int64) fuse.Status
	EntryNotify(parent uint64, name string) fuse.Status
}

func (fs *fileSystem) String() string { return "rootsfs" }

// The following methods complete fuse.RawFileSystem. They have nothing to do here.

func (fs *fileSystem) SetDebug(bool)     {}
func (fs *fileSystem) Init(*fuse.Server) {}
func (fs *fileSystem) OnUnmount()        {}

// request is one request of the kernel that is being answered. It is also the context.Context of
// its operation (see caller.go).
type request struct {
	fs     *fileSystem
	m      *Mount
	from   fuse.Caller     // as the kernel names it
	cancel <-chan struct{} // closed by an INTERRUPT
	caller guard.Caller    // the same caller, for the gate
	// isTruncation is set for a SETATTR of the size. For an open(2) with O_TRUNC the kernel
	// sends such a SETATTR after the OPEN, and does not name the handle in it.
	isTruncation bool
	// alias is the fixed directory that the request is about, if that directory shows a root.
	alias *node

	mu       sync.Mutex // guards the fields below
	view     *view      // of the root that the request is about now; nil: none yet
	views    []*view    // all views that the request has joined
	room     [1]*view   // storage for views, so that one view needs no allocation
	draining []*view    // views whose drain waits for the request's end
	files    []*vfs.File
	ended    bool
	finished chan struct{} // closed at the end; nil: no goroutine waits for it
	death    chan struct{} // closed if the caller is dying, or by stopWaitingOutside; nil: no call of Done
}

// begin begins a request of a program.
func (fs *fileSystem) begin(cancel <-chan struct{}, header *fuse.InHeader) *request {
	if incoming.Observe != nil {
		incoming.Observe(header)
	}
	return fs.beginUnobserved(cancel, header)
}

// beginUnobserved begins a request that incoming.Observe does not see, such as a write-back of
// the kernel's cache: any thread may cause a write-back.
func (fs *fileSystem) beginUnobserved(cancel <-chan struct{}, header *fuse.InHeader) *request {
	r := &request{fs: fs, m: fs.m, cancel: cancel, from: header.Caller}
	r.views = r.room[:0]
	r.caller = fs.m.callerOf(&r.from)
	return r
}

// answer runs a request of a program.
func (fs *fileSystem) answer(cancel <-chan struct{}, header *fuse.InHeader, do func(r *request) error) fuse.Status {
	r := fs.begin(cancel, header)
	defer r.end()
	errno := fuse.Status(names.Errno(do(r)))
	fs.m.retries.note(header, errno)
	return errno
}

// onNode does what answer does, for a request about a node.
func (fs *fileSystem) onNode(cancel <-chan struct{}, header *fuse.InHeader, do func(r *request, n *node) error) fuse.Status {
	return fs.answer(cancel, header, func(r *request) error {
		n, err := r.resolve(header.NodeId)
		if err != nil {
			return err
		}
		return do(r, n)
	})
}

// changeNode does what onNode does, for a request that changes the node.
func (fs *fileSystem) changeNode(cancel <-chan struct{}, header *fuse.InHeader, op guard.Op, do func(r *request, n *node) error) fuse.Status {
	return fs.answer(cancel, header, func(r *request) error {
		n, err := r.resolveForChange(op, header.NodeId, "")
		if err != nil {
			return err
		}
		return do(r, n)
	})
}

// changeDir does what answer does, for a request that changes a name in a directory. at is the
// directory's path.
func (fs *fileSystem) changeDir(cancel <-chan struct{}, header *fuse.InHeader, op guard.Op, name string, do func(r *request, dir *node, at vfs.At) error) fuse.Status {
	return fs.answer(cancel, header, func(r *request) error {
		dir, err := r.resolveForChange(op, header.NodeId, name)
		if err != nil {
			return err
		}
		at, ok := r.pathOf(dir)
		if !ok {
			return dir.errnoWithoutPath()
		}
		return do(r, dir, at)
	})
}

// pathOf returns the path of the node, as node.path does, and sets the field Held of the path. Held
// is the reference to the node that a look-up of the calling thread has taken (see retries).
// Without such a reference, Held is a descriptor of the node if the thread names the node by a
// descriptor, else nil.
func (r *request) pathOf(n *node) (vfs.At, bool) {
	at, ok := n.path()
	if ok {
		at.Held = r.m.retries.find(r.from.Pid, n)
		if at.Held == nil && r.m.retries.hasDescriptor(r.from.Pid, n) {
			at.Held = n.anyFile()
		}
	}
	return at, ok
}

// join counts the request as one about a root. The caller calls join before the gate checks the
// request, so that a revocation finds every request that has passed the gate.
func (r *request) join(v *view) {
	v.m.reportStep(viewEntry, v.name)
	r.mu.Lock()
	r.view = v
	if !slices.Contains(r.views, v) {
		r.views = append(r.views, v) // several: READDIRPLUS of a directory with roots in it
		v.mu.Lock()
		if v.running == nil {
			v.running = map[*request]struct{}{}
		}
		v.running[r] = struct{}{}
		v.mu.Unlock()
	}
	if slices.ContainsFunc(r.draining, func(d *view) bool { return d != v }) {
		r.dieLocked()
	}
	r.mu.Unlock()
}

// end ends the request. The nodes in its answer must be in the node table by then.
func (r *request) end() {
	r.mu.Lock()
	r.ended = true
	if r.finished != nil {
		close(r.finished)
	}
	views, files := r.views, r.files
	r.files = nil
	r.mu.Unlock()
	for _, v := range views {
		v.mu.Lock()
		delete(v.running, r)
		v.mu.Unlock()
	}
	for _, f := range files {
		f.Unretain()
	}
}

// borrow keeps an open file open until the request ends. It reports false if the file has
// been closed.
func (r *request) borrow(f *vfs.File) bool {
	if !f.Retain() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = append(r.files, f)
	return true
}

// drain waits until all requests that have joined v have ended, or until ctx ends. The gate refuses
// requests that begin meanwhile, so drain need not wait for them.
func (v *view) drain(ctx context.Context) error {
	v.mu.Lock()
	waiting := make([]*request, 0, len(v.running))
	for r := range v.running {
		waiting = append(waiting, r)
	}
	v.mu.Unlock()
	for _, r := range waiting {
		r.stopWaitingOutside(v)
	}
	for _, r := range waiting {
		finished, ended := r.finishedChan()
		if ended {
			continue
		}
		select {
		case <-finished:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// stopWaitingOutside makes the request stop waiting in roots other than v, now and later, as if
// its caller were dying. So the source of another root does not delay the revocation of v.
func (r *request) stopWaitingOutside(v *view) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = append(r.draining, v)
	if r.view != v {
		r.dieLocked()
	}
}

// finishedChan returns a channel that is closed at the end of the request. If the request has
// ended already, ended is true instead.
func (r *request) finishedChan() (finished <-chan struct{}, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished == nil && !r.ended {
		r.finished = make(chan struct{})
	}
	return r.finished, r.ended
}

// step is a point in a request. A revocation must be complete whether it comes before or after that
// point. Tests hold requests there.
type step int

const (
	viewLookup  step = iota // the registry has returned the root's epoch; no view is looked up yet
	viewEntry               // before the request joins the view
	publication             // the request has passed the gate; the node is not in the table yet
)

// reportStep reports a step of a request to Options.atStep, where a test may hold the request.
func (m *Mount) reportStep(s step, root guard.RootName) {
	if m.opt.atStep != nil {
		m.opt.atStep(s, root)
	}
}

// handles has the open files, or the open directories, by the numbers that the kernel uses for
// them. The number 0 stands for no handle.
type handles[T any] struct {
	mu   sync.Mutex // guards the fields below
	list []*T       // the handle with a number is at number-1; nil: the number is free
	free []uint64   // the numbers that are free
}

// add adds a handle and returns its number.
func (h *handles[T]) add(handle *T) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := len(h.free) - 1; last >= 0 {
		number := h.free[last]
		h.free = h.free[:last]
		h.list[number-1] = handle
		return number
	}
	h.list = append(h.list, handle)
	return uint64(len(h.list))
}

// get returns the handle with a number, or nil.
func (h *handles[T]) get(number uint64) *T {
	h.mu.Lock()
	defer h.mu.Unlock()
	if number == 0 || number > uint64(len(h.list)) {
		return nil
	}
	return h.list[number-1]
}

// remove returns the handle with a number, or nil, and frees the number. The kernel releases
// a handle when no request with the handle is left.
func (h *handles[T]) remove(number uint64) *T {
	h.mu.Lock()
	defer h.mu.Unlock()
	if number == 0 || number > uint64(len(h.list)) || h.list[number-1] == nil {
		return nil
	}
	handle := h.list[number-1]
	h.list[number-1] = nil
	h.free = append(h.free, number)
	return handle
}
