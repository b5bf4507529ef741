package mount

import (
	"context"
	"fmt"
	gopath "path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Somebody may bind a directory of ours elsewhere and tie rules to its inode
// (package sandbox does both), before there is a root in its place. For that a
// fixed directory stays the same inode for as long as the mount lives: a root that
// comes to its place is shown in it, and when the root goes it is an empty
// directory of ours again. The root's own node is then one that the kernel never
// hears of; what lies in it hangs below the fixed directory.
//
// Fixed are the directories of Layout.Tops, and the spare ones, which have no
// place of their own and show what Show says.

// spareDir is the top directory of the spare ones. It is not listed; they are listed
// in it, for one call instead of one for each (READDIRPLUS).
const spareDir = ".rootsfs-spare"

// SparePath is where a spare directory is, relative to the mountpoint.
func SparePath(i int) string { return spareDir + "/" + strconv.Itoa(i) }

// Show makes spare directory i, from 0 to below Layout.Spare, show a root that
// is a directory, or none (""). The root may come later, and may end: the
// directory is empty without it. It may be called concurrently.
func (m *Mount) Show(i int, root guard.RootName) error {
	if i < 0 || i >= len(m.spares) {
		return &guard.Error{Op: names.OpMount, Kind: names.Invalid, Err: fmt.Errorf("there is no spare directory %d: Layout.Spare is %d", i, len(m.spares))}
	}
	was := m.spares[i].Swap(&root)
	if was != nil && *was == root {
		return nil
	}
	if child := m.root.GetChild(spareDir); child != nil {
		if dir := child.GetChild(strconv.Itoa(i)); dir != nil {
			tellShown(dir)
		}
	}
	return nil
}

// Retell makes the kernel ask again for what is at a root's place: for whoever has
// bound a root that is a single file, and would keep the one that it was.
func (m *Mount) Retell(root guard.RootName) { m.tellPlace(root) }

// tellShown makes the kernel ask again for what is in a fixed directory, and what
// that is like. Never for its name: whoever has bound it would find it removed.
func tellShown(dir *fs.Inode) {
	waitFor(inBackground(func() {
		for name := range dir.Children() {
			dir.NotifyEntry(name)
		}
		dir.NotifyContent(0, 0)
	}), stuckAfter) // a program may hold the directory, see view.invalidate
}

// spare is the number of a spare directory, if it is one.
func (t *topNode) spare() (int, bool) {
	num, ok := strings.CutPrefix(t.path, spareDir+"/")
	i, err := strconv.Atoi(num)
	return i, ok && err == nil && i >= 0 && i < len(t.m.spares)
}

// isFixed reports whether the directory at a path is one that stays.
func (m *Mount) isFixed(path string) bool { return slices.Contains(m.opt.Layout.Tops, path) }

// rootHere is the root whose place a fixed directory is now, "" if there is none.
func (t *topNode) rootHere() guard.RootName {
	if t.m.isFixed(t.path) {
		return t.m.places.in("")[t.path].root
	}
	if i, ok := t.spare(); ok {
		if root := t.m.spares[i].Load(); root != nil {
			return *root
		}
	}
	return ""
}

// shown is the node of the root that a fixed directory shows now; nil: none. The
// error is that of the root's own getattr.
func (t *topNode) shown(ctx context.Context) (*node, syscall.Errno) {
	root := t.rootHere()
	if root == "" {
		return nil, 0
	}
	v := t.m.view(root)
	if v == nil || v.fileRoot {
		return nil, 0
	}
	if n := v.shownIn(t); n != nil {
		return n, 0
	}
	p, err := guard.NewPath(v.name, "")
	if err != nil {
		return nil, 0
	}
	f := t.m.raw.flights.of(ctx)
	in := f.enter(ctx, v)
	info, err := t.m.tree.Lstat(in, t.m.caller(ctx), vfs.At{Path: p, Epoch: v.epoch})
	switch {
	case err != nil && names.Reason(err) == names.NoConsent:
		return nil, 0 // another subject's: not this one's to know of
	case err != nil:
		return nil, names.Errno(err)
	case !info.IsDir():
		return nil, orphan
	}
	n := v.node(f, &t.Inode, &info, false).Operations().(*node)
	v.mu.Lock()
	v.root = n
	if !slices.Contains(v.shown, t) {
		v.shown = append(v.shown, t)
	}
	v.mu.Unlock()
	return n, 0
}

// shownIn is the root's node, if a directory shows it already.
func (v *view) shownIn(t *topNode) *node {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Contains(v.shown, t) {
		return nil
	}
	return v.root
}

// isShownIn reports whether a directory shows the root, or has shown it.
func (v *view) isShownIn(t *topNode) bool { return v.shownIn(t) != nil }

// shownAt are the fixed directories as which the kernel knows the node, if it is a
// root's.
func (n *node) shownAt() []*topNode {
	n.view.mu.Lock()
	defer n.view.mu.Unlock()
	if n != n.view.root {
		return nil
	}
	return slices.Clone(n.view.shown)
}

// inodes are all that the kernel may know the node as.
func (n *node) inodes() []*fs.Inode {
	list := []*fs.Inode{&n.Inode}
	for _, t := range n.shownAt() {
		list = append(list, &t.Inode)
	}
	return list
}

// notifyContent makes the kernel drop pages and attributes. It says ENOENT if the
// kernel does not know the node.
func (n *node) notifyContent() syscall.Errno {
	errno := n.NotifyContent(0, 0)
	for _, t := range n.shownAt() {
		errno = t.NotifyContent(0, 0)
	}
	return errno
}

// notifyEntry makes the kernel drop a name in the directory. It says ENOENT if the
// kernel does not know the name.
func (n *node) notifyEntry(name string) syscall.Errno {
	errno := dropName(&n.Inode, name)
	for _, t := range n.shownAt() {
		if also := dropName(&t.Inode, name); errno == syscall.ENOENT {
			errno = also
		}
	}
	return errno
}

// getChild is what is known under a name in the directory.
func (n *node) getChild(name string) *fs.Inode {
	for _, at := range n.inodes() {
		if child := at.GetChild(name); child != nil {
			return child
		}
	}
	return nil
}

// nodeOf is the node that an inode's operations are of, or that its fixed directory
// shows now.
func nodeOf(ctx context.Context, ops fs.InodeEmbedder) (*node, bool) {
	switch o := ops.(type) {
	case *node:
		return o, true
	case *topNode:
		n, errno := o.shown(ctx)
		return n, errno == 0 && n != nil
	}
	return nil, false
}

// or runs what a directory of ours does as the root that it shows, and refuses it
// otherwise: nobody can change a directory of ours. The refusal is recorded here, since
// there is no root whose gate would. name is what was to change in the directory, "" for
// the directory itself.
func (t *topNode) or(ctx context.Context, op guard.Op, name string, f func(n *node) syscall.Errno) syscall.Errno {
	n, errno := t.shown(ctx)
	switch {
	case errno != 0:
		return errno
	case n == nil:
		at := "/" + gopath.Join(t.path, name)
		_ = t.m.reg.NoteRefusal(t.m.caller(ctx), names.ReadOnly, op.String()+" "+names.Escape(at)+": of the mount, in none of its roots")
		return syscall.EROFS
	}
	return f(n)
}

// spareEntry finds the spare directories.
func (t *topNode) spareEntry(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, bool) {
	if len(t.m.spares) == 0 || t.path != spareDir && (t.path != "" || name != spareDir) {
		return nil, false
	}
	path := name
	if t.path != "" {
		path = t.path + "/" + name
		if _, ok := (&topNode{m: t.m, path: path}).spare(); !ok {
			return nil, false
		}
	}
	return t.ours(ctx, path, out), true
}

// ours returns the directory of ours at a path, which lies in this one.
func (t *topNode) ours(ctx context.Context, path string, out *fuse.EntryOut) *fs.Inode {
	name := path[strings.LastIndexByte(path, '/')+1:]
	child := t.GetChild(name)
	if child != nil {
		if _, ours := child.Operations().(*topNode); !ours {
			child = nil // a root was here, or a link
		}
	}
	if child == nil {
		d := &topNode{m: t.m, path: path, ino: t.m.ownIno()}
		child = t.NewPersistentInode(ctx, d, fs.StableAttr{Mode: unix.S_IFDIR, Ino: d.ino, Gen: t.m.gens.Add(1)})
	}
	d := child.Operations().(*topNode)
	var attr fuse.AttrOut
	if d.Getattr(ctx, nil, &attr) != 0 {
		d.fill(&attr.Attr) // the root does not say what it is like, the next request does
	}
	out.Attr = attr.Attr
	if t.m.opt.Level != Strict {
		out.SetEntryTimeout(keepTimeout)
		out.SetAttrTimeout(attr.Timeout())
	}
	return child
}
