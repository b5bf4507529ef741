package mount

import (
	"fmt"
	"maps"
	gopath "path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// ownFile describes a node of the mount's own. The node is a directory that no program can
// change: the mountpoint or, in a layout by path, another directory that lies in no root. Or the
// node is a link: from the granted path of a root to its resolved path, or one of Layout.Links.
//
// A process may bind a directory of the mount's own elsewhere and tie rules to its inode
// (package sandbox does both), before a root is granted at that path. Therefore a fixed
// directory (see below) keeps its inode for as long as the mount lives. While a root is at its
// path, the fixed directory is an alias of the root's directory. When the root goes, the fixed
// directory is an empty directory of the mount's own again. The files of the root are children of
// the root's node. The kernel may never get to know that node.
//
// The directories of Layout.Tops and the spare directories are fixed. A spare directory
// shows the root that Show has chosen for it.
type ownFile struct {
	path   string // relative to the mountpoint
	target string // of a link
	// views are the views of roots that a fixed directory shows, or has shown; guarded by
	// nodeTable.mu.
	views []*view
}

// spareDir is the directory that contains the spare directories. The top does not list it.
// spareDir lists the spare directories, so that one READDIRPLUS looks all of them up.
const spareDir = ".rootsfs-spare"

// SparePath returns the path of a spare directory, relative to the mountpoint.
func SparePath(i int) string { return spareDir + "/" + strconv.Itoa(i) }

// Show makes spare directory i show a root that is a directory, or no root (""). i counts from 0
// and is less than Layout.Spare. The root need not exist yet, and may end: the directory is empty
// without it. Show may be called concurrently.
func (m *Mount) Show(i int, root guard.RootName) error {
	if i < 0 || i >= len(m.spares) {
		return &guard.Error{Op: names.OpMount, Kind: names.Invalid, Err: fmt.Errorf("there is no spare directory %d: Layout.Spare is %d", i, len(m.spares))}
	}
	was := m.spares[i].Swap(&root)
	if was != nil && *was == root {
		return nil
	}
	if spares := m.top.child(spareDir); spares != nil {
		if dir := spares.child(strconv.Itoa(i)); dir != nil {
			m.invalidateFixed(dir)
		}
	}
	return nil
}

// invalidateFixed makes the kernel drop the entries and the attributes of a fixed directory.
// It does not drop the directory's name: processes that have bound the directory would find
// it removed.
func (m *Mount) invalidateFixed(dir *node) {
	waitFor(inBackground(func() {
		for name := range m.childrenOfOwn(dir) {
			m.kernel.EntryNotify(dir.id, name)
		}
		dir.notifyContent()
	}), stuckAfter) // a program may hold the directory, see view.invalidate
}

// childrenOfOwn returns the children that the kernel may know in a directory of the mount's
// own: the directory's own children, and those of the roots that it shows or has shown.
func (m *Mount) childrenOfOwn(dir *node) map[string]*node {
	m.nodes.mu.Lock()
	defer m.nodes.mu.Unlock()
	all := map[string]*node{}
	for _, v := range dir.ownFile().views {
		maps.Copy(all, v.root.children)
	}
	maps.Copy(all, dir.children)
	return all
}

// spareNumber returns the number of the spare directory at a path, if there is one.
func (m *Mount) spareNumber(path string) (int, bool) {
	num, ok := strings.CutPrefix(path, spareDir+"/")
	i, err := strconv.Atoi(num)
	return i, ok && err == nil && i >= 0 && i < len(m.spares)
}

// isTop reports whether the directory at a path is one of Layout.Tops.
func (m *Mount) isTop(path string) bool { return slices.Contains(m.opt.Layout.Tops, path) }

// rootAt returns the root that a fixed directory shows now, or "".
func (m *Mount) rootAt(path string) guard.RootName {
	if m.isTop(path) {
		return m.layout.entries("")[path].root
	}
	if i, ok := m.spareNumber(path); ok {
		if root := m.spares[i].Load(); root != nil {
			return *root
		}
	}
	return ""
}

// rootShownIn returns the node of the root that a directory of the mount's own shows now, or
// nil if it shows none or the root does not exist. The request then counts as one about that
// root. Any other error of reading the root's attributes is returned.
func (r *request) rootShownIn(n *node) (*node, error) {
	if !n.isDir() || !r.m.opt.Layout.ByPath {
		return nil, nil
	}
	root := r.m.rootAt(n.ownFile().path)
	if root == "" {
		return nil, nil
	}
	v := r.m.view(root)
	if v == nil || v.fileRoot {
		return nil, nil
	}
	if rootNode := v.rootIfAlias(n); rootNode != nil {
		r.join(v)
		return rootNode, nil
	}
	info, err := r.statRoot(v)
	switch {
	case names.Errno(err) == syscall.ENOENT:
		return nil, nil
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, errNoPath
	}
	return v.showIn(n, &info), nil
}

// rootIfAlias returns the root's node if dir shows the root already, else nil.
func (v *view) rootIfAlias(dir *node) *node {
	t := &v.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(v.aliases, dir) {
		return nil
	}
	return v.root
}

// showIn makes a directory of the mount's own an alias of the root's node, and returns the
// node. The node then stays until the root ends.
func (v *view) showIn(dir *node, info *vfs.Info) *node {
	dev := v.m.devIndex(info.ID().Dev)
	v.m.reportStep(publication, v.name)
	t := &v.m.nodes
	t.mu.Lock()
	defer t.mu.Unlock()
	v.root = v.nodeLocked(info, dev, false)
	if !slices.Contains(v.aliases, dir) {
		v.aliases = append(v.aliases, dir)
		file := dir.ownFile()
		file.views = append(slices.DeleteFunc(file.views, func(o *view) bool { return o.ended.Load() }), v)
	}
	return v.root
}

// resolveForChange is resolve for a request that changes a file. It refuses to change the
// mount's own files, and records the refusal, since no root's gate would do so. name is the name
// to change in the directory, or "" for the file itself.
func (r *request) resolveForChange(op guard.Op, id uint64, name string) (*node, error) {
	n, err := r.resolve(id)
	if err != nil || n.ownFile() == nil {
		return n, err
	}
	at := "/" + gopath.Join(n.ownFile().path, name)
	_ = r.m.reg.NoteRefusal(r.caller, names.ReadOnly, op.String()+" "+names.Escape(at)+": of the mount, in none of its roots")
	return nil, syscall.EROFS
}

// lookupOwn finds a root by its name. In a layout by path it finds a root, or a link or directory
// of the mount's own. The kernel may not cache that a name is absent: a root may be granted at
// any time.
func (r *request) lookupOwn(dir *node, name string, out *fuse.EntryOut) error {
	if !dir.isDir() {
		return syscall.ENOTDIR
	}
	if !r.m.opt.Layout.ByPath {
		return r.lookupRoot(dir, name, guard.RootName(name), out)
	}
	path := gopath.Join(dir.ownFile().path, name)
	if path == spareDir && len(r.m.spares) > 0 {
		return r.lookupOwnDir(dir, name, out)
	}
	if _, ok := r.m.spareNumber(path); ok {
		return r.lookupOwnDir(dir, name, out)
	}
	return r.lookupLayout(dir, name, out)
}

// lookupOwnDir answers a look-up of a name in dir if the name is that of a directory of the
// mount's own.
func (r *request) lookupOwnDir(dir *node, name string, out *fuse.EntryOut) error {
	d := r.m.publishOwn(dir, name, unix.S_IFDIR, "", out)
	var attr fuse.AttrOut
	n, err := r.resolve(d.id)
	if err == nil {
		err = r.getattr(n, 0, &attr)
	}
	if err != nil {
		r.m.fillOwn(d, &attr.Attr) // the next request reports why the root cannot be read
	}
	out.Attr = attr.Attr
	if r.m.opt.Level != Strict {
		out.SetEntryTimeout(keepTimeout)
		out.SetAttrTimeout(attr.Timeout())
	}
	return nil
}

// publishOwn returns the node of the mount's own file under a name in a directory, and
// creates it if there is none. It counts one more answer that names the node.
func (m *Mount) publishOwn(dir *node, name string, kind uint16, target string, out *fuse.EntryOut) *node {
	m.nodes.mu.Lock()
	defer m.nodes.mu.Unlock()
	n := dir.children[name]
	if n == nil || n.ownFile() == nil || n.kind != kind || n.ownFile().target != target {
		n = &node{view: m.ownView, ino: m.ownIno(), kind: kind}
		n.extra().ownFile = &ownFile{path: gopath.Join(dir.ownFile().path, name), target: target}
		m.ownView.addLocked(n)
	}
	n.countLocked(out)
	n.linkLocked(dir, name)
	return n
}

// fillOwn describes a file of the mount's own.
func (m *Mount) fillOwn(n *node, out *fuse.Attr) {
	owner := m.user
	if m.opt.Owner != nil {
		owner = *m.opt.Owner
	}
	out.Mode, out.Nlink = unix.S_IFDIR|0o555, 2
	if !n.isDir() {
		out.Mode, out.Nlink = unix.S_IFLNK|0o777, 1
		out.Size = uint64(len(n.ownFile().target))
	}
	out.Ino, out.Blksize = n.ino, 4096
	out.Uid, out.Gid = owner.UID, owner.GID
	sec, nsec := uint64(m.start.Unix()), uint32(m.start.Nanosecond())
	out.Atime, out.Mtime, out.Ctime = sec, sec, sec
	out.Atimensec, out.Mtimensec, out.Ctimensec = nsec, nsec, nsec
}

// ownIno returns a new inode number for a directory or link of the mount's own, in a range
// apart from those of the roots' files.
func (m *Mount) ownIno() uint64 { return 1<<61 | m.inos.Add(1) }

// ownEntries lists a directory of the mount's own. Offsets count the entries.
func (m *Mount) ownEntries(dir *node) []vfs.Entry {
	var list []vfs.Entry
	add := func(name string, kind uint32, id rules.Identity) {
		e := vfs.Entry{Name: name, Type: kind}
		if id != (rules.Identity{}) {
			e.Ino = m.ino(id)
		}
		list = append(list, e)
	}
	path := dir.ownFile().path
	switch {
	case !m.opt.Layout.ByPath:
		for _, st := range m.reg.RootsOf(m.opt.Subject) {
			if st.State == guard.Live {
				add(string(st.Grant.Root), rootKind(st.FileRoot), st.ID)
			}
		}
	case path == spareDir:
		for i := range m.spares {
			add(strconv.Itoa(i), unix.S_IFDIR, rules.Identity{})
		}
	default:
		for name, entry := range m.layout.entries(path) {
			switch {
			case !entry.live:
			case entry.target != "":
				add(name, unix.S_IFLNK, entry.id)
			default:
				add(name, rootKind(entry.isFile), entry.id)
			}
		}
		slices.SortFunc(list, func(a, b vfs.Entry) int { return strings.Compare(a.Name, b.Name) })
	}
	for i := range list {
		list[i].Off = uint64(i) + 1
	}
	return list
}

func rootKind(isFile bool) uint32 {
	if isFile {
		return unix.S_IFREG
	}
	return unix.S_IFDIR
}
