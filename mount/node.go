package mount

import (
	"container/list"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// node is a file that the kernel knows: one of a root, or one of the mount's own (see
// ownFile). There may be a million of them: what only some need is in nodeExtra.
type node struct {
	view *view
	ext  atomic.Pointer[nodeExtra]
	id   uint64 // node ID: never given out twice

	// The file's identity: its device's number (devIndex), inode and birth. A file of the
	// mount's own has only ino, the number that it shows.
	ino   uint64
	birth int64
	dev   uint32
	kind  uint16      // file type
	kept  atomic.Bool // see takeKept

	// The fields below are guarded by nodeTable.mu.

	removed bool // from the table: the kernel has forgotten it
	orphan  bool // see view.orphan
	lookups uint64
	name    location
	// children are the names that the kernel may know in a directory. A directory that
	// was found elsewhere since is still under its old name.
	children map[string]*node
}

// location is a name in a directory.
type location struct {
	dir  *node
	name string
}

// nodeExtra is what only some nodes have, so that a million looked-up files do
// not carry it.
type nodeExtra struct {
	own        *ownFile   // of a file of the mount's own; does not change
	otherNames []location // beside node.name, the latest last; guarded by nodeTable.mu

	watch      atomic.Pointer[dirWatch]       // of a directory
	withdrawal atomic.Pointer[nameWithdrawal] // of a directory, see node.foundAt

	ref atomic.Pointer[vfs.File] // of a file without a name, see prepareRemoval

	nameless atomic.Bool // of a directory, see withdrawName; set under mu

	mu          sync.Mutex // guards the fields below
	withdrawing int        // calls that are taking back the name of a directory
	open        []*handle  // open files
	change      *ownChange // of a file changed through the mount
	// locks are the owners' descriptions on the source, see locks.go.
	locks map[lockOwner]*lockHolder

	cached *vfs.File     // level Max: see fileCache, whose lock guards these two
	listed *list.Element // cached in the list of fileCache
}

func (n *node) extra() *nodeExtra {
	if n.ext.Load() == nil {
		n.ext.CompareAndSwap(nil, &nodeExtra{})
	}
	return n.ext.Load()
}

// own is what makes a node a file of the mount's own; nil: it is a file of a root.
func (n *node) own() *ownFile {
	if e := n.ext.Load(); e != nil {
		return e.own
	}
	return nil
}

func (n *node) isDir() bool     { return n.kind == unix.S_IFDIR }
func (n *node) isRegular() bool { return n.kind == unix.S_IFREG }

// identity is the file's identity on the source.
func (n *node) identity() guard.Identity {
	return guard.Identity{Dev: n.view.m.device(n.dev), Ino: n.ino, Birth: n.birth}
}

// shownIno is the inode number that programs see.
func (n *node) shownIno() uint64 {
	if n.own() != nil {
		return n.ino
	}
	return inoOf(n.ino, n.dev)
}

// view is the kernel's picture of one root during one lifetime: every node of it that the
// kernel may know, and the requests about it that are in progress. The mount's own files
// have a view of their own, without a root.
type view struct {
	m        *Mount
	name     guard.RootName
	epoch    uint64
	fileRoot bool        // a single file
	remote   bool        // changes on the source are not reported
	ended    atomic.Bool // the lifetime is over

	mu      sync.Mutex // guards running
	running map[*request]struct{}

	// The fields below are guarded by nodeTable.mu.

	number uint64 // in node IDs, see nodeTable
	lastID uint64
	byID   map[uint64]*node
	most   int // the largest size of byID since it was made
	// latest are the nodes by identity. Of an inode number that was used again, the file
	// before is in byID only.
	latest  map[fileKey]*node
	root    *node
	foundAt location // where root was looked up last
	aliases []*node  // fixed directories that show root, or have shown it
}

// fileKey finds a node in its view.
type fileKey struct {
	ino uint64
	dev uint32
}

// nodeTable is all that the kernel knows of the mount. It has one lock, because names lead
// from one view into another: a root's own name is in a directory of the mount's own, or
// of the root around it.
type nodeTable struct {
	mu sync.Mutex // guards all of the table, and the fields of views and nodes that say so
	// views are those that have nodes, by number: the number is the upper part of a node
	// ID. The mount's own files are number 0.
	views    map[uint64]*view
	lastView uint64
}

// viewShift is how many bits of a node ID number the node in its view.
const viewShift = 40

// find returns the node with an ID, or nil.
func (t *nodeTable) find(id uint64) *node {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := t.views[id>>viewShift]; v != nil {
		return v.byID[id]
	}
	return nil
}

// publish returns the node of a file that a request hands out under a name in dir ("" for
// no name), counts that the kernel knows it once more, and fills in its ID: in one critical
// section, so that no FORGET for an earlier answer comes between, and before the request
// ends, so that a revocation finds it. created says that the file was made just now, so
// that another node with its inode number is of a dead predecessor. before is where the
// node was found last.
func (v *view) publish(dir *node, name string, info *vfs.Info, created bool, out *fuse.EntryOut) (n *node, before location) {
	dev := v.m.devIndex(info.ID().Dev)
	v.m.reached(publication, v.name)
	t := &v.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	n = v.nodeLocked(info, dev, created)
	before = n.name
	n.countLocked(out)
	if name != "" {
		n.linkLocked(dir, name)
	}
	return n, before
}

// publishRoot is publish for the root itself.
func (v *view) publishRoot(dir *node, name string, info *vfs.Info, out *fuse.EntryOut) *node {
	dev := v.m.devIndex(info.ID().Dev)
	v.m.reached(publication, v.name)
	t := &v.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	n := v.nodeLocked(info, dev, false)
	n.countLocked(out)
	n.linkLocked(dir, name)
	v.root, v.foundAt = n, location{dir, name}
	return n
}

// countLocked counts that the kernel is given the node, and fills in its ID. The caller
// holds nodeTable.mu.
func (n *node) countLocked(out *fuse.EntryOut) {
	n.lookups++
	out.NodeId, out.Generation = n.id, 1
}

// nodeLocked returns the node for a file, making it if there is none. The caller holds
// nodeTable.mu.
func (v *view) nodeLocked(info *vfs.Info, dev uint32, created bool) *node {
	id := info.ID()
	key := fileKey{id.Ino, dev}
	if n := v.latest[key]; n != nil && !created && n.birth == id.Birth && uint32(n.kind) == info.Type() {
		return n
	}
	n := &node{view: v, ino: id.Ino, birth: id.Birth, dev: dev, kind: uint16(info.Type())}
	v.addLocked(n)
	if v.latest == nil {
		v.latest = map[fileKey]*node{}
	}
	v.latest[key] = n
	return n
}

// addLocked gives a new node its ID. The caller holds nodeTable.mu.
func (v *view) addLocked(n *node) {
	t := &v.m.nodes
	if v.byID == nil {
		v.byID = map[uint64]*node{}
		if v != v.m.ownView {
			t.lastView++
			v.number = t.lastView
		}
		t.views[v.number] = v
	}
	v.lastID++
	n.id = v.number<<viewShift | v.lastID
	v.byID[n.id] = n
	v.most = max(v.most, len(v.byID))
}

// orphan gives a node's identity up for good: what is stored through a mapping of it
// reaches the file no more, whatever the root's rights become.
func (v *view) orphan(n *node) {
	t := &v.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	if key := (fileKey{n.ino, n.dev}); v.latest[key] == n {
		delete(v.latest, key)
	}
	n.orphan = true
}

// isOrphan reports whether orphan has been called for the node.
func (n *node) isOrphan() bool {
	t := &n.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.orphan
}

// takeKept reports whether the kernel keeps what a LOOKUP answered about a name, so that
// the listing after it need not tell the same: git asks for each file of its index, and
// then lists the directories. It is said once for each LOOKUP: what was changed since is
// asked for anew, and later listings tell it as ever.
func (n *node) takeKept(name string) bool {
	t := &n.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	child := n.children[name]
	return child != nil && child.kept.Swap(false)
}

// forget takes back what countLocked has counted. A node that nobody uses any more is
// removed.
func (t *nodeTable) forget(id, times uint64) {
	t.removing(func() []*node {
		v := t.views[id>>viewShift]
		if v == nil || v.byID[id] == nil {
			return nil
		}
		n := v.byID[id]
		n.lookups -= min(times, n.lookups)
		return t.removeUnusedLocked(n)
	})
}

// removeUnused removes the node if nobody uses it.
func (t *nodeTable) removeUnused(n *node) {
	t.removing(func() []*node { return t.removeUnusedLocked(n) })
}

// removing runs a change of the table, and then releases the nodes that the change has
// removed, without the lock.
func (t *nodeTable) removing(change func() []*node) {
	t.mu.Lock()
	removed := change()
	t.mu.Unlock()
	for _, n := range removed {
		n.release()
	}
}

// isUsedLocked reports whether the kernel knows a node, or it is on the way to one that
// the kernel knows, or has to stay by itself. The caller holds nodeTable.mu.
func (n *node) isUsedLocked() bool {
	if n.lookups > 0 || len(n.children) > 0 {
		return true
	}
	if own := n.own(); own != nil {
		return n.isDir() // somebody may stand in it, or have bound it
	}
	v := n.view
	return n == v.root && len(v.aliases) > 0 && !v.ended.Load() // the kernel knows it as another
}

// removeUnusedLocked takes those nodes that nobody uses out of the table and out of the
// directories they are in, and such a directory too if it is then not used either. A node
// may be nil. The caller holds nodeTable.mu, and releases what is returned without it.
func (t *nodeTable) removeUnusedLocked(todo ...*node) (removed []*node) {
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n == nil || n.removed || n.isUsedLocked() {
			continue
		}
		n.removed = true
		removed = append(removed, n)
		for _, at := range n.namesLocked() {
			if at.dir.children[at.name] == n {
				delete(at.dir.children, at.name)
				todo = append(todo, at.dir)
			}
		}
		n.name = location{}
		v := n.view
		delete(v.byID, n.id)
		if key := (fileKey{n.ino, n.dev}); v.latest[key] == n {
			delete(v.latest, key)
		}
		if len(v.byID) == 0 {
			delete(t.views, v.number)
			v.byID, v.latest, v.most = nil, nil, 0
		} else if v.most > 1000 && len(v.byID) < v.most/100 {
			v.shrinkLocked()
		}
	}
	return removed
}

// shrinkLocked makes the maps anew: a map keeps the memory of what was deleted from it.
// The caller holds nodeTable.mu.
func (v *view) shrinkLocked() {
	byID, latest := make(map[uint64]*node, len(v.byID)), make(map[fileKey]*node, len(v.latest))
	maps.Copy(byID, v.byID)
	maps.Copy(latest, v.latest)
	v.byID, v.latest, v.most = byID, latest, len(byID)
}

// release gives back what a removed node held.
func (n *node) release() {
	n.view.m.fileCache.drop(n)
	n.dropRef()
	n.dropLocks()
	n.unwatch()
}

// forgotten reports whether the kernel has forgotten the node.
func (n *node) forgotten() bool {
	t := &n.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.removed
}

// all returns every node the kernel may know.
func (v *view) all() []*node {
	t := &v.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*node, 0, len(v.byID))
	for _, n := range v.byID {
		out = append(out, n)
	}
	return out
}
