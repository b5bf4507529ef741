package mount

import (
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Layout says where the roots appear in the mount.
type Layout struct {
	// ByPath shows each root at its own absolute path below the mountpoint: /home/u/code
	// as MOUNTPOINT/home/u/code. The directories above the roots are the mount's own, and no
	// program can change them. A process whose file system is the mount then finds the
	// same paths as on the host. A root that was granted through a link appears at its
	// resolved path, and the granted path is a link of the mount's own. A root inside another
	// root appears in the outer root with its own rights. The root "/" cannot be shown
	// this way, and is absent.
	//
	// Without ByPath each root appears at the top, under its name.
	ByPath bool
	// Tops are names of directories at the top of a ByPath layout that exist also without
	// a root below them. They stay the same directories: a process that has bound one
	// elsewhere sees the roots that are granted later, below the directory or at its path.
	Tops []string
	// Links has the targets of links of the mount's own in a ByPath layout, by the absolute
	// path of each link. No directory in such a path is a link. A path through such a link
	// leads to the same file as on the host, if the mount shows that file.
	Links map[string]string
	// Spare is the number of spare directories of a ByPath layout, see Mount.Show.
	Spare int
	// Missing is called, in a ByPath layout, with each path that a program looks up in a
	// directory of the mount's own and that does not exist there: nobody has granted it.
	// It may be called concurrently and must not wait. It may be nil.
	Missing func(path string)
}

// layoutIndex has the locations of the roots in a ByPath layout, for one version of the
// registry. Paths in it are relative to the mountpoint.
type layoutIndex struct {
	m *Mount

	mu       sync.Mutex // guards the fields below
	version  uint64
	computed bool // the fields below are those of version; false: not computed yet
	// dirs are the directories of the mount's own, by path, with the entries of each. A
	// directory stays when its last root goes: it may be a process's working directory.
	dirs map[string]map[string]layoutEntry
	// nested are the roots inside a root, by their paths in the root around them.
	nested map[guard.RootName]map[string]guard.RootName
}

// layoutEntry is an entry of a directory of the mount's own: a root, a link to target, or
// another directory of the mount's own (neither root nor target is set).
type layoutEntry struct {
	root   guard.RootName
	target string
	live   bool           // false: the root, or the root that the link belongs to, is not live
	isFile bool           // root is a single file
	id     rules.Identity // of root
}

// entries returns the entries of a directory of the mount's own, by name.
func (p *layoutIndex) entries(dir string) map[string]layoutEntry {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updateLocked()
	return p.dirs[dir]
}

// nestedRoot returns the root that lies at rel in another root, "" if none does.
func (p *layoutIndex) nestedRoot(outer guard.RootName, rel func() string) guard.RootName {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updateLocked()
	if len(p.nested[outer]) == 0 {
		return "" // without calling rel, which costs more
	}
	return p.nested[outer][rel()]
}

// updateLocked computes the layout again if the registry has changed.
func (p *layoutIndex) updateLocked() {
	version := p.m.reg.Version()
	if p.computed && p.version == version {
		return
	}
	old := p.dirs
	p.dirs = map[string]map[string]layoutEntry{"": {}}
	p.version, p.computed = version, true
	for dir := range old {
		p.addDirLocked(dir)
	}
	for _, top := range p.m.opt.Layout.Tops {
		p.addDirLocked(top)
	}
	links := p.m.opt.Layout.Links
	for link, target := range links {
		p.addLocked(trim(link), layoutEntry{target: target, live: true})
	}
	at := map[string]guard.RootName{}
	for _, st := range p.m.reg.RootsOf(p.m.opt.Subject) {
		if resolved := trim(st.Grant.Resolved); resolved != "" {
			at[resolved] = st.Grant.Root
			p.addLocked(resolved, layoutEntry{root: st.Grant.Root, live: st.State == guard.Live, isFile: st.FileRoot, id: st.ID})
			if granted := trim(st.Grant.Dir.Raw()); granted != resolved && trim(names.FollowLinks(links, st.Grant.Dir.Raw())) == granted {
				p.addLocked(granted, layoutEntry{target: st.Grant.Resolved, live: st.State == guard.Live})
			}
		}
	}
	p.nested = map[guard.RootName]map[string]guard.RootName{}
	for resolved, name := range at {
		for dir := path.Dir(resolved); dir != "."; dir = path.Dir(dir) {
			outer, ok := at[dir]
			if !ok {
				continue
			}
			if p.nested[outer] == nil {
				p.nested[outer] = map[string]guard.RootName{}
			}
			p.nested[outer][resolved[len(dir)+1:]] = name
			break
		}
	}
}

// addLocked adds an entry at a path. Only the entry of a root replaces that of a root.
func (p *layoutIndex) addLocked(at string, entry layoutEntry) {
	dir, name := path.Split(at)
	dir = strings.TrimSuffix(dir, "/")
	p.addDirLocked(dir)
	if have := p.dirs[dir][name]; have.root == "" || entry.root != "" {
		p.dirs[dir][name] = entry
	}
}

// addDirLocked adds the directory dir and all directories above it, unless they are there already.
func (p *layoutIndex) addDirLocked(dir string) {
	if p.dirs[dir] != nil {
		return
	}
	p.dirs[dir] = map[string]layoutEntry{}
	parent, name := path.Split(dir)
	parent = strings.TrimSuffix(parent, "/")
	p.addDirLocked(parent)
	if _, taken := p.dirs[parent][name]; !taken {
		p.dirs[parent][name] = layoutEntry{live: true}
	}
}

func trim(p string) string { return strings.Trim(p, "/") }

// lookupLayout finds a name in a directory of the mount's own, in a ByPath layout.
func (r *request) lookupLayout(dir *node, name string, out *fuse.EntryOut) error {
	at := dir.ownFile().path
	entry, ok := r.m.layout.entries(at)[name]
	switch {
	case !ok:
		if f := r.m.opt.Layout.Missing; f != nil {
			f("/" + path.Join(at, name))
		}
		return syscall.ENOENT
	case entry.root != "" && (entry.isFile || at != "" || !r.m.isTop(name)):
		return r.lookupRoot(dir, name, entry.root, out)
	case entry.target != "":
		if !entry.live {
			return syscall.ENOENT
		}
		r.m.fillOwn(r.m.publishOwn(dir, name, unix.S_IFLNK, entry.target, out), &out.Attr)
		return nil
	}
	return r.lookupOwnDir(dir, name, out)
}

// nestedRootAt returns the root that appears under a name in directory n, or "".
func (n *node) nestedRootAt(name string) guard.RootName {
	m := n.view.m
	if !m.opt.Layout.ByPath {
		return ""
	}
	return m.layout.nestedRoot(n.view.name, func() string {
		at, ok := n.path()
		if !ok {
			return ""
		}
		return path.Join(at.Path.Rel(), name)
	})
}

// Refresh makes the kernel look a root's path up again. The kernel drops the first name in the path
// that has no node, since the kernel may know this name as absent. If every name has a node, the
// kernel drops the root's own name or, if the root is at a directory of Layout.Tops, the entries
// of this directory. The caller calls Refresh after a root was added. The caller also calls it
// after the file of a single-file root was replaced: a process may have bound the old file.
func (m *Mount) Refresh(root guard.RootName) {
	st, ok := m.reg.Lookup(root)
	if !ok {
		return
	}
	paths := []string{string(root)}
	if m.opt.Layout.ByPath {
		paths = []string{trim(st.Grant.Resolved), trim(st.Grant.Dir.Raw())}
	}
	for _, rest := range slices.Compact(paths) {
		at := m.top
		for {
			elem, below, more := strings.Cut(rest, "/")
			child := at.child(elem)
			if at.ownFile() != nil {
				child = m.childrenOfOwn(at)[elem]
			}
			if !more && child != nil && at == m.top && m.isTop(elem) {
				m.invalidateFixed(child)
				break
			}
			if !more || child == nil {
				waitFor(inBackground(func() {
					at.notifyContent()
					for _, id := range at.ids() {
						m.kernel.EntryNotify(id, elem)
					}
				}), stuckAfter) // a program may hold the directory, see view.invalidate
				break
			}
			at, rest = child, below
		}
	}
}
