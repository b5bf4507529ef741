package mount

import (
	"container/list"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fs"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// view is the kernel's picture of one root during one lifetime: every node of
// it that the kernel may know. The table is ours, because an unlinked file that
// is still held is in nobody's directory.
type view struct {
	m        *Mount
	name     guard.RootName
	epoch    uint64
	fileRoot bool        // a single file
	remote   bool        // changes on the source are not reported
	ended    atomic.Bool // the lifetime is over

	mu    sync.Mutex // guards the fields below
	nodes nodeTable
	// displaced are nodes whose identity now belongs to another node: the
	// inode number was reused, or the node was given up so that an old
	// writable mapping of it stays an orphan.
	displaced map[*node]struct{}
	// orphans are the displaced nodes whose mappings reach the file no more.
	orphans map[*node]struct{}
	root    *node
	parent  *fs.Inode // where root was found last; nil: nobody has looked
	entry   string
	shown   []*topNode // fixed directories that show root, or have shown it
}

// node is a file as the kernel knows it. There may be a million of them: what
// only some need is in nodeExt.
type node struct {
	fs.Inode
	view *view
	ext  atomic.Pointer[nodeExt]

	// The file's identity: its device's number (devIndex), inode and birth.
	ino   uint64
	birth int64
	dev   uint32

	pins  uint16 // guarded by view.mu
	ended bool   // forgotten by the kernel; guarded by view.mu
}

// id is the file's identity.
func (n *node) id() guard.Identity {
	return guard.Identity{Dev: n.view.m.device(n.dev), Ino: n.ino, Birth: n.birth}
}

// nodeTable finds nodes by identity. Keys are hashes, because a table keyed by
// the identity itself costs three times the memory; in the unlikely case that
// two identities share one, the later is keyed by the next free number.
type nodeTable map[uint64]*node

func (t nodeTable) slot(id guard.Identity) (key uint64, n *node) {
	for key = maphash.Comparable(seed, id); ; key++ {
		if n = t[key]; n == nil || n.id() == id {
			return key, n
		}
	}
}

func (t nodeTable) get(id guard.Identity) *node {
	_, n := t.slot(id)
	return n
}

func (t nodeTable) put(n *node) {
	key, _ := t.slot(n.id())
	t[key] = n
}

// remove takes n out, if it is the one under its identity.
func (t nodeTable) remove(n *node) {
	key, have := t.slot(n.id())
	if have != n {
		return
	}
	delete(t, key)
	// One that had to give way may now be unreachable: move it up.
	for next := key + 1; ; next++ {
		m := t[next]
		if m == nil {
			return
		}
		if maphash.Comparable(seed, m.id()) != next {
			delete(t, next)
			t.put(m)
		}
	}
}

// nodeExt is what only some nodes have, so that a million looked-up files do
// not carry it.
type nodeExt struct {
	watch   atomic.Pointer[dirWatch] // of a directory
	leaving atomic.Pointer[leaving]  // of a directory, see node.met

	ref atomic.Pointer[vfs.File] // of a file without a name, see removing

	nameless atomic.Bool // of a directory, see takeOwnName; set under mu

	mu     sync.Mutex // guards the fields below
	taking int        // calls that are taking back the name of a directory
	open   []*handle  // open files
	own    *ownChange // of a file changed through the mount
	// locks are the owners' descriptions on the source, see locks.go.
	locks map[lockOwner]*lockHolder

	keep *vfs.File     // level Max: see keptFiles, whose lock guards these
	elem *list.Element // keep's place in the list
}

func (n *node) extra() *nodeExt {
	if e := n.ext.Load(); e != nil {
		return e
	}
	e := &nodeExt{}
	if n.ext.CompareAndSwap(nil, e) {
		return e
	}
	return n.ext.Load()
}

// node returns the node for a file, making it if the kernel has none, and pins
// it for the rest of the flight: until the bridge has taken it over, nothing
// else keeps it in the table. fresh says that the file was made just now, so
// that whatever the table has under its identity is a dead predecessor.
func (v *view) node(f *flight, parent *fs.Inode, info *vfs.Info, fresh bool) *fs.Inode {
	id := info.ID()
	v.m.reached(publication, v.name)
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.nodes.get(id)
	if n != nil && (fresh || n.Inode.Mode()&unix.S_IFMT != info.Type()) {
		v.displaceLocked(n)
		n = nil
	}
	if n == nil {
		n = &node{view: v, ino: id.Ino, birth: id.Birth, dev: v.m.devIndex(id.Dev)}
		v.nodes.put(n)
	}
	if f != nil {
		n.pins++
		f.mu.Lock()
		f.pinned = append(f.pinned, n)
		f.mu.Unlock()
	}
	// NewInode of a node that has its inode already returns that one; the
	// lock keeps two flights from doing it at once.
	attr := fs.StableAttr{Mode: info.Type(), Ino: v.m.ino(id), Gen: v.m.gens.Add(1)}
	return parent.NewInode(ctxNone, n, attr)
}

// displaceLocked gives a node's identity up. The caller holds mu.
func (v *view) displaceLocked(n *node) {
	v.nodes.remove(n)
	if v.displaced == nil {
		v.displaced = map[*node]struct{}{}
	}
	v.displaced[n] = struct{}{}
}

// orphan displaces a node for good: what is stored through a mapping of it reaches the file
// no more, whatever the root's rights become.
func (v *view) orphan(n *node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.displaceLocked(n)
	if v.orphans == nil {
		v.orphans = map[*node]struct{}{}
	}
	v.orphans[n] = struct{}{}
}

// isOrphan reports whether orphan has been called for the node.
func (n *node) isOrphan() bool {
	n.view.mu.Lock()
	defer n.view.mu.Unlock()
	_, ok := n.view.orphans[n]
	return ok
}

// unpin ends a flight's hold on a node. If the bridge did not take the node
// over (the request failed), it leaves the table.
func (v *view) unpin(n *node) {
	v.mu.Lock()
	n.pins--
	over := n.overLocked()
	v.mu.Unlock()
	if over {
		n.release()
	}
}

// OnForget implements fs.NodeOnForgetter: the kernel has let go of the node.
func (n *node) OnForget() {
	n.view.mu.Lock()
	over := n.overLocked()
	n.view.mu.Unlock()
	if over {
		n.release()
	}
}

// overLocked takes a node that nobody holds any more out of the table and
// reports whether it did. OnForget comes after the fact, under no lock that
// would keep a look-up from handing the node out again meanwhile, so what counts
// is how things stand now: one that is pinned, or that the bridge has taken over
// again, lives on with all that is its own. (It once lost its watch there, and a
// name that was cached for an hour was never taken back.) The caller holds mu.
func (n *node) overLocked() bool {
	//lint:ignore SA1019 OnForget alone does not tell that the node came back.
	if n.ended || n.pins > 0 || !n.Inode.Forgotten() || n == n.view.root && len(n.view.shown) > 0 && !n.view.ended.Load() {
		return false // the last: the kernel knows it as another
	}
	n.view.nodes.remove(n)
	delete(n.view.displaced, n)
	delete(n.view.orphans, n)
	n.ended = true
	return true
}

// release gives back what a node held that is over.
func (n *node) release() {
	n.view.m.keptFiles.drop(n)
	n.dropRef()
	n.dropLocks()
	n.unwatch()
}

// forgotten reports whether the kernel has let go of the node.
func (n *node) forgotten() bool {
	n.view.mu.Lock()
	defer n.view.mu.Unlock()
	return n.ended
}

// all returns every node the kernel may know.
func (v *view) all() []*node {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]*node, 0, len(v.nodes)+len(v.displaced))
	for _, n := range v.nodes {
		out = append(out, n)
	}
	for n := range v.displaced {
		out = append(out, n)
	}
	return out
}

// place is where the node lies now: its path in the root. ok is false for a
// node that is in no directory (unlinked, or never linked).
func (n *node) place() (vfs.At, bool) {
	var elems []string
	size := 0
	for at := &n.Inode; ; {
		cur, isNode := at.Operations().(*node)
		if top, ok := at.Operations().(*topNode); ok && n.view.isShownIn(top) {
			break
		}
		if !isNode {
			return vfs.At{}, false
		}
		if cur == n.view.rootNode() {
			break
		}
		name, parent := at.Parent()
		if parent == nil {
			return vfs.At{}, false
		}
		elems = append(elems, name)
		size += len(name) + 1
		at = parent
	}
	rel := make([]byte, 0, size)
	for i := len(elems) - 1; i >= 0; i-- {
		if len(rel) > 0 {
			rel = append(rel, '/')
		}
		rel = append(rel, elems[i]...)
	}
	p, err := guard.NewPath(n.view.name, string(rel))
	if err != nil {
		return vfs.At{}, false
	}
	return vfs.At{Path: p, ID: n.id(), Epoch: n.view.epoch}, true
}

// dropNames makes the kernel drop the root's own name, or, where that must stay,
// the names in it, and with them all below that nobody holds.
func (v *view) dropNames() {
	v.mu.Lock()
	parent, entry, shown := v.parent, v.entry, slices.Clone(v.shown)
	v.mu.Unlock()
	if parent == nil && !v.m.opt.Layout.ByPath {
		parent, entry = &v.m.root.Inode, string(v.name) // as absent as anywhere
	}
	if parent != nil {
		if outer, ok := parent.Operations().(*node); ok {
			outer.notifyEntry(entry)
		} else {
			dropName(parent, entry)
		}
	}
	for _, t := range shown {
		for name := range t.Children() {
			dropName(&t.Inode, name)
		}
	}
}

// unshow lets go of the node of an ended root that the kernel knew as a directory
// of ours only, and so does not forget.
func (v *view) unshow() {
	v.mu.Lock()
	n := v.root
	over := n != nil && len(v.shown) > 0 && n.overLocked()
	v.mu.Unlock()
	if over {
		n.release()
	}
}

func (v *view) rootNode() *node {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.root
}
