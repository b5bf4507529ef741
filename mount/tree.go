package mount

import (
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// The tree has the names that the kernel knows. A file may have several names; operations on
// the file use one of them (node.name). A name stays until the kernel forgets the file, or
// until the name is removed or replaced through the mount. Changes by the host come into the
// tree when the file is looked up again.

// linkLocked puts the node under a name in dir. If another node had the name, that node's latest
// location (node.name) stays as it is. The caller holds nodeTable.mu.
func (n *node) linkLocked(dir *node, name string) {
	if dir.removed {
		return
	}
	if dir.children == nil {
		dir.children = map[string]*node{}
	}
	at := location{dir, name}
	dir.children[name] = n
	if n.name == at {
		return
	}
	if e := n.ext.Load(); e != nil {
		e.otherNames = slices.DeleteFunc(e.otherNames, func(o location) bool { return o == at })
	}
	if n.name.dir != nil {
		e := n.extra()
		e.otherNames = append(e.otherNames, n.name)
	}
	n.name = at
}

// unlinkLocked takes a name out of dir and returns the node that had it, or nil. The caller
// holds nodeTable.mu.
func (dir *node) unlinkLocked(name string) *node {
	n := dir.children[name]
	if n == nil {
		return nil
	}
	delete(dir.children, name)
	at := location{dir, name}
	e := n.ext.Load()
	if e != nil {
		e.otherNames = slices.DeleteFunc(e.otherNames, func(o location) bool { return o == at })
	}
	if n.name != at {
		return n
	}
	n.name = location{}
	if e == nil || n.isDir() {
		return n // the other names of a directory are out of date
	}
	for i := len(e.otherNames) - 1; i >= 0 && n.name.dir == nil; i-- {
		if o := e.otherNames[i]; o.dir.children[o.name] == n {
			n.name = o
			e.otherNames = slices.Delete(e.otherNames, i, i+1)
		}
	}
	return n
}

// names returns all names of the node.
func (n *node) names() []location {
	t := &n.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.namesLocked()
}

// namesLocked returns all names of the node. The caller holds nodeTable.mu.
func (n *node) namesLocked() []location {
	var all []location
	if n.name.dir != nil {
		all = append(all, n.name)
	}
	if e := n.ext.Load(); e != nil {
		all = append(all, e.otherNames...)
	}
	return all
}

// unlink notes that a name was removed from dir.
func (dir *node) unlink(name string) {
	t := &dir.view.m.nodes
	t.updateAndRelease(func() []*node { return t.removeUnusedLocked(dir.unlinkLocked(name), dir) })
}

// move notes that name in directory dir was renamed to newName in directory to. A file that had the
// new name has lost that name. If exchange is set, this file has got the old name instead.
func (dir *node) move(name string, to *node, newName string, exchange bool) {
	t := &dir.view.m.nodes
	t.updateAndRelease(func() []*node {
		n, replaced := dir.unlinkLocked(name), to.unlinkLocked(newName)
		if n == replaced { // two names of one file
			replaced = nil
		}
		if n != nil {
			n.linkLocked(to, newName)
		}
		if exchange && replaced != nil {
			replaced.linkLocked(dir, name)
		}
		return t.removeUnusedLocked(replaced, dir, to)
	})
}

// parent returns where the node was found last; dir is nil for a node without a name.
func (n *node) parent() location {
	t := &n.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.name
}

// isNamed reports whether the node is still under its latest name in the tree.
func (n *node) isNamed() bool {
	t := &n.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.name.dir != nil && n.name.dir.children[n.name.name] == n
}

// child returns the node under a name in the directory, or nil.
func (dir *node) child(name string) *node {
	t := &dir.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	return dir.children[name]
}

// childNodes returns the nodes in the directory, by name.
func (dir *node) childNodes() map[string]*node {
	t := &dir.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(dir.children)
}

// rootNode returns the node of the root's directory or single file; nil: not looked up yet.
func (v *view) rootNode() *node {
	t := &v.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	return v.root
}

// maxDepth bounds a walk to the top, as PATH_MAX does: names that are out of date may make a
// circle.
const maxDepth = 2048

// path returns the path of the node in its root. ok is false if the node, or a directory above
// it, is in no directory (unlinked, or never linked), or if names out of date make a circle.
func (n *node) path() (at vfs.At, ok bool) {
	var room [16]string
	elems, ok := n.appendElems(room[:0])
	if !ok {
		return vfs.At{}, false
	}
	slices.Reverse(elems)
	p, err := guard.NewPath(n.view.name, strings.Join(elems, "/"))
	if err != nil {
		return vfs.At{}, false
	}
	return vfs.At{Path: p, ID: n.identity(), Epoch: n.view.epoch}, true
}

// appendElems appends the names in the path of the node, from the node up to its root. It reports
// false if the node has no path, see path.
func (n *node) appendElems(elems []string) ([]string, bool) {
	t := &n.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	for cur := n; cur != n.view.root; cur = cur.name.dir {
		if cur.name.dir == nil || len(elems) >= maxDepth {
			return nil, false
		}
		elems = append(elems, cur.name.name)
	}
	return elems, true
}

// ids returns all node IDs by which the kernel may know the node: its own, and for a root
// those of the fixed directories that show the root.
func (n *node) ids() []uint64 {
	t := &n.view.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := []uint64{n.id}
	if n == n.view.root {
		for _, alias := range n.view.aliases {
			ids = append(ids, alias.id)
		}
	}
	return ids
}

// notifyContent makes the kernel drop the node's pages and attributes, under each of its IDs. It
// returns the error for the last ID: ENOENT if the kernel does not know the node by that ID.
func (n *node) notifyContent() (errno syscall.Errno) {
	for _, id := range n.ids() {
		errno = syscall.Errno(n.view.m.kernel.InodeNotify(id, 0, 0))
	}
	return errno
}

// notifyEntry makes the kernel drop a name in the directory. It returns ENOENT if the
// kernel does not know the name.
func (dir *node) notifyEntry(name string) (errno syscall.Errno) {
	drop := func() {
		errno = syscall.ENOENT
		for _, id := range dir.ids() {
			if got := syscall.Errno(dir.view.m.kernel.EntryNotify(id, name)); errno == syscall.ENOENT {
				errno = got
			}
		}
	}
	if child := dir.child(name); child != nil && child.isDir() && child.ownFile() == nil {
		child.withdrawName(drop)
	} else {
		drop()
	}
	return errno
}
