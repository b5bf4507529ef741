package mount

import (
	"container/list"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// node is a file that the kernel knows: one of a root, or one of the mount's own (see
// ownFile). There may be a million nodes, so fields that only some need are in nodeExtra.
type node struct {
	view *view
	ext  atomic.Pointer[nodeExtra]
	id   uint64 // node ID: never given out twice

	// The file's identity: its device's number (devIndex), inode and birth. A file of the
	// mount's own has only ino, the number that it shows.
	ino   uint64
	birth int64
	dev   uint32
	kind  uint16 // file type

	attrsCached atomic.Bool // see takeAttrsCached

	// The fields below are guarded by nodeTable.mu.

	removed bool // from the table: the kernel has forgotten it
	orphan  bool // see view.orphan
	lookups uint64
	name    location
	// children are the names that the kernel may know in a directory. A directory that the
	// host has moved stays here under its old name, too.
	children map[string]*node
}

// location is a name in a directory.
type location struct {
	dir  *node
	name string
}

// nodeExtra has the fields that only some nodes need, so that a million looked-up files do
// not take memory for them.
type nodeExtra struct {
	ownFile    *ownFile   // of a file of the mount's own; does not change
	otherNames []location // beside node.name, the latest last; guarded by nodeTable.mu

	watch      atomic.Pointer[dirWatch]       // of a directory
	withdrawal atomic.Pointer[nameWithdrawal] // of a directory, see node.noteLocation

	ref    atomic.Pointer[vfs.File] // of a file without a name, see prepareRemoval
	refDir atomic.Pointer[node]     // the directory that the file was in

	nameless atomic.Bool // of a directory, see withdrawName; set under mu

	mu          sync.Mutex // guards the fields below
	withdrawing int        // calls that are taking back the name of a directory
	open        []*handle  // open files
	openDirs    []*dirHandle
	change      *ownChange // of a file changed through the mount
	// locks holds, for each lock owner, the open file description on the source that carries
	// its locks; see locks.go.
	locks map[lockOwner]*lockHolder

	cached  *vfs.File     // level Max: see fileCache, whose lock guards these two
	lruElem *list.Element // of cached in the list of fileCache
}

func (n *node) extra() *nodeExtra {
	if n.ext.Load() == nil {
		n.ext.CompareAndSwap(nil, &nodeExtra{})
	}
	return n.ext.Load()
}

// ownFile returns the description of a file of the mount's own, or nil for a file of a root.
func (n *node) ownFile() *ownFile {
	if e := n.ext.Load(); e != nil {
		return e.ownFile
	}
	return nil
}

func (n *node) isDir() bool     { return n.kind == unix.S_IFDIR }
func (n *node) isRegular() bool { return n.kind == unix.S_IFREG }

// identity returns the file's identity on the source.
func (n *node) identity() rules.Identity {
	return rules.Identity{Dev: n.view.m.device(n.dev), Ino: n.ino, Birth: n.birth}
}

// shownIno returns the inode number that programs see.
func (n *node) shownIno() uint64 {
	if n.ownFile() != nil {
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
	remote   bool        // the source is remote: its changes are not watched
	staged   bool        // changes by programs are kept apart from the source
	ended    atomic.Bool // the lifetime is over
	// unreadable: the root's rights do not include reading, see request.refuseRead.
	unreadable atomic.Bool

	mu      sync.Mutex // guards running
	running map[*request]struct{}

	closer refCloser

	// The fields below are guarded by nodeTable.mu.

	number uint64 // in node IDs, see nodeTable
	lastID uint64
	byID   map[uint64]*node
	peak   int // the largest size of byID since the map was created
	// latest are the nodes by identity. If an inode number was used again, the node of the
	// earlier file is in byID only.
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

// nodeTable has the nodes that the kernel may know. It has one lock, because names lead
// from one view into another: a root's own name is in a directory of the mount's own, or
// of the root around it.
type nodeTable struct {
	mu sync.Mutex // guards the fields below, and those of views and nodes whose comments name it
	// views are the views that have nodes, by number. The number is the upper part of a
	// node ID. The view of the mount's own files has the number 0.
	views    map[uint64]*view
	lastView uint64
}

// viewShift is how many low bits of a node ID hold the node's number in its view.
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

// publish returns the node of a file that a request gives to the kernel under a name in dir
// ("": without a name). It counts one more answer that names the node, and fills in the node's
// ID. It does so in one critical section, so that no FORGET for an earlier answer comes between.
// The caller calls publish before the request ends, so that a revocation finds the node. If
// created is set, the file is new, and an existing node with its inode number belongs to an
// earlier file. before is where the node was found last.
func (v *view) publish(dir *node, name string, info *vfs.Info, created bool, out *fuse.EntryOut) (n *node, before location) {
	dev := v.m.devIndex(info.ID().Dev)
	v.m.reportStep(publication, v.name)
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
	v.m.reportStep(publication, v.name)
	t := &v.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	n := v.nodeLocked(info, dev, false)
	n.countLocked(out)
	n.linkLocked(dir, name)
	v.root, v.foundAt = n, location{dir, name}
	return n
}

// countLocked counts an answer that gives the node to the kernel, and fills in the node's
// ID. The caller holds nodeTable.mu.
func (n *node) countLocked(out *fuse.EntryOut) {
	n.lookups++
	out.NodeId, out.Generation = n.id, 1
}

// nodeLocked returns the node for a file, and creates it if there is none. The caller holds
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
	v.peak = max(v.peak, len(v.byID))
}

// orphan removes a node from the look-up by identity, for good. Later look-ups of the file
// create another node. Stores through a mapping of the orphan never reach the file, whatever
// rights the root gets later.
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

// takeAttrsCached reports whether the kernel may still cache the attributes from a LOOKUP of a
// name in the directory. A listing need not repeat such attributes: git looks up each file of its
// index, and then lists the directories. takeAttrsCached reports true at most once for each LOOKUP.
// If the kernel has dropped the attributes since, the kernel asks for them, and later listings
// repeat them again.
func (n *node) takeAttrsCached(name string) bool {
	t := &n.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	child := n.children[name]
	return child != nil && child.attrsCached.Swap(false)
}

// forget subtracts times from what countLocked has counted. It removes the node if it is then
// unused.
func (t *nodeTable) forget(id, times uint64) {
	t.updateAndRelease(func() []*node {
		v := t.views[id>>viewShift]
		if v == nil || v.byID[id] == nil {
			return nil
		}
		n := v.byID[id]
		n.lookups -= min(times, n.lookups)
		return t.removeUnusedLocked(n)
	})
}

// removeUnused removes the node if isUsedLocked is false for it.
func (t *nodeTable) removeUnused(n *node) {
	t.updateAndRelease(func() []*node { return t.removeUnusedLocked(n) })
}

// updateAndRelease calls change with the table locked, and then releases the nodes that change
// returns, with the table unlocked.
func (t *nodeTable) updateAndRelease(change func() []*node) {
	t.mu.Lock()
	removed := change()
	t.mu.Unlock()
	for _, n := range removed {
		n.release()
	}
}

// isUsedLocked reports whether the node must stay in the table: the kernel knows it, it has
// children, it is a directory of the mount's own, or it is a live root that is shown under an
// alias. The caller holds nodeTable.mu.
func (n *node) isUsedLocked() bool {
	if n.lookups > 0 || len(n.children) > 0 {
		return true
	}
	if n.ownFile() != nil {
		return n.isDir() // a process may have bound it, or work in it
	}
	v := n.view
	return n == v.root && len(v.aliases) > 0 && !v.ended.Load() // the kernel knows it by its aliases
}

// removeUnusedLocked removes unused nodes from the table and from their directories, and then
// each directory that this has left unused. An element of todo may be nil. The caller
// holds nodeTable.mu, and releases the returned nodes after unlocking it.
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
			v.byID, v.latest, v.peak = nil, nil, 0
		} else if v.peak > 1000 && len(v.byID) < v.peak/100 {
			v.shrinkLocked()
		}
	}
	return removed
}

// shrinkLocked copies the maps: a map keeps the memory of its deleted elements.
// The caller holds nodeTable.mu.
func (v *view) shrinkLocked() {
	byID, latest := make(map[uint64]*node, len(v.byID)), make(map[fileKey]*node, len(v.latest))
	maps.Copy(byID, v.byID)
	maps.Copy(latest, v.latest)
	v.byID, v.latest, v.peak = byID, latest, len(byID)
}

// release closes a removed node's descriptors and ends its watch.
func (n *node) release() {
	n.view.m.fileCache.drop(n)
	if ref := n.takeRef(); ref != nil {
		n.view.closer.add(removedRef{dir: n.extra().refDir.Load(), close: func() {
			n.view.m.refs.Add(-1)
			ref.Close()
		}})
	}
	n.dropLocks()
	n.unwatch()
}

// isForgotten reports whether the kernel has forgotten the node.
func (n *node) isForgotten() bool {
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
