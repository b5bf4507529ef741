package mount

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// Layout says where the roots appear in the mount.
type Layout struct {
	// ByPath shows each root at its own absolute path below the mountpoint,
	// /home/u/code as MOUNTPOINT/home/u/code, with directories of ours on the
	// way that nobody can change: for a process whose file system the mount
	// is, paths then mean what they mean on the host. A root that was asked
	// for by way of a link appears where it led, with a link of ours where it
	// was asked for. A root inside another is found under the outer one's
	// path with its own rights. "/" itself cannot be shown so, and is absent.
	//
	// Otherwise each root is under its name, at the top.
	ByPath bool
	// Tops are names at the top that are there without any root below, when
	// ByPath, and stay the same directories: whoever binds them somewhere sees
	// the roots that come later, below them or in their very place.
	Tops []string
	// Spare is how many spare directories there are, when ByPath: see Mount.Show.
	Spare int
	// Missing is told, when ByPath, of each path that was looked for in a
	// directory of ours and is not there: what a program wanted that nobody
	// granted. It may be called concurrently and must not wait. nil: nobody
	// asks.
	Missing func(path string)
}

// places is the layout of the roots as they are in one version of the registry,
// when Layout.ByPath. Paths in it are relative to the mountpoint.
type places struct {
	m *Mount

	mu      sync.Mutex // guards the fields below
	version uint64
	known   bool
	// dirs are the directories of ours, by path, with what is in each. One
	// that was there stays: somebody may stand in it when its last root goes.
	dirs map[string]map[string]place
	// inner are the roots inside a root, by their paths in that.
	inner map[guard.RootName]map[string]guard.RootName
}

// place is what is found under a name in a directory of ours: a root, a link to
// target, or another directory of ours.
type place struct {
	root   guard.RootName
	target string
	live   bool
	file   bool
	id     guard.Identity
}

// in returns what is in a directory of ours.
func (p *places) in(dir string) map[string]place {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updateLocked()
	return p.dirs[dir]
}

// innerRoot returns the root that lies at rel in another root, "" if none does.
func (p *places) innerRoot(outer guard.RootName, rel func() string) guard.RootName {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.updateLocked()
	if len(p.inner[outer]) == 0 {
		return "" // without asking where it is, which costs more
	}
	return p.inner[outer][rel()]
}

// updateLocked lays the roots out anew if they have changed.
func (p *places) updateLocked() {
	version := p.m.reg.Version()
	if p.known && p.version == version {
		return
	}
	old := p.dirs
	p.dirs = map[string]map[string]place{"": {}}
	p.version, p.known = version, true
	for dir := range old {
		p.wayLocked(dir)
	}
	for _, top := range p.m.opt.Layout.Tops {
		p.wayLocked(top)
	}
	at := map[string]guard.RootName{}
	for _, st := range p.m.reg.RootsOf(p.m.opt.Subject) {
		if where := trim(st.Grant.Resolved); where != "" {
			at[where] = st.Grant.Root
			p.putLocked(where, place{root: st.Grant.Root, live: st.State == guard.Live, file: st.FileRoot, id: st.ID})
			if asked := trim(st.Grant.Dir); asked != where {
				p.putLocked(asked, place{target: st.Grant.Resolved, live: st.State == guard.Live})
			}
		}
	}
	p.inner = map[guard.RootName]map[string]guard.RootName{}
	for where, name := range at {
		for dir := path.Dir(where); dir != "."; dir = path.Dir(dir) {
			outer, ok := at[dir]
			if !ok {
				continue
			}
			if p.inner[outer] == nil {
				p.inner[outer] = map[string]guard.RootName{}
			}
			p.inner[outer][where[len(dir)+1:]] = name
			break
		}
	}
}

// putLocked puts something at its place. A directory of ours on the way that is
// a root already is that root: what is below is found in it.
func (p *places) putLocked(where string, what place) {
	dir, name := path.Split(where)
	dir = strings.TrimSuffix(dir, "/")
	p.wayLocked(dir)
	if have := p.dirs[dir][name]; have.root == "" || what.root != "" {
		p.dirs[dir][name] = what
	}
}

// wayLocked makes the directories that lead to dir, and dir.
func (p *places) wayLocked(dir string) {
	if p.dirs[dir] != nil {
		return
	}
	p.dirs[dir] = map[string]place{}
	parent, name := path.Split(dir)
	parent = strings.TrimSuffix(parent, "/")
	p.wayLocked(parent)
	if _, taken := p.dirs[parent][name]; !taken {
		p.dirs[parent][name] = place{live: true}
	}
}

func trim(p string) string { return strings.Trim(p, "/") }

// entries lists a directory of ours, in order.
func (t *topNode) entries() []fuse.DirEntry {
	var list []fuse.DirEntry
	add := func(name string, mode uint32, id guard.Identity) {
		e := fuse.DirEntry{Name: name, Mode: mode}
		if id != (guard.Identity{}) {
			e.Ino = t.m.ino(id)
		}
		list = append(list, e)
	}
	if !t.m.opt.Layout.ByPath {
		for _, st := range t.m.reg.RootsOf(t.m.opt.Subject) {
			if st.State == guard.Live {
				add(string(st.Grant.Root), rootMode(st.FileRoot), st.ID)
			}
		}
		return list
	}
	if t.path == spareDir {
		for i := range t.m.spares {
			add(strconv.Itoa(i), unix.S_IFDIR, guard.Identity{})
		}
		return list
	}
	for name, what := range t.m.places.in(t.path) {
		switch {
		case !what.live:
		case what.target != "":
			add(name, unix.S_IFLNK, what.id)
		default:
			add(name, rootMode(what.file), what.id)
		}
	}
	slices.SortFunc(list, func(a, b fuse.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func rootMode(file bool) uint32 {
	if file {
		return unix.S_IFREG
	}
	return unix.S_IFDIR
}

// lookupPlace finds a name in a directory of ours, when ByPath.
func (t *topNode) lookupPlace(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	what, ok := t.m.places.in(t.path)[name]
	switch {
	case !ok:
		if f := t.m.opt.Layout.Missing; f != nil {
			f("/" + path.Join(t.path, name))
		}
		return nil, syscall.ENOENT
	case what.root != "" && (what.file || t.path != "" || !t.m.isFixed(name)):
		return t.m.lookupRoot(ctx, &t.Inode, name, what.root, out)
	case what.target != "":
		if !what.live {
			return nil, syscall.ENOENT
		}
		l := &linkNode{m: t.m, target: what.target}
		child := t.NewInode(ctx, l, fs.StableAttr{Mode: unix.S_IFLNK, Ino: t.m.ownIno(), Gen: t.m.gens.Add(1)})
		l.fill(&out.Attr)
		return child, 0
	}
	return t.ours(ctx, path.Join(t.path, name), out), 0
}

// ownIno numbers the directories and links of ours beside the mountpoint, apart
// from the files of the roots.
func (m *Mount) ownIno() uint64 { return 1<<61 | m.inos.Add(1) }

// innerRoot returns the root whose place is a name in directory n, "" for none.
func (n *node) innerRoot(name string) guard.RootName {
	m := n.view.m
	if !m.opt.Layout.ByPath {
		return ""
	}
	return m.places.innerRoot(n.view.name, func() string {
		at, ok := n.place()
		if !ok {
			return ""
		}
		return path.Join(at.Path.Rel(), name)
	})
}

// tellPlace makes the kernel ask again for what is found where a root has been
// added: at the first name on the way that it may know otherwise.
func (m *Mount) tellPlace(name guard.RootName) {
	st, ok := m.reg.Lookup(name)
	if !ok {
		return
	}
	ways := []string{string(name)}
	if m.opt.Layout.ByPath {
		ways = []string{trim(st.Grant.Resolved), trim(st.Grant.Dir)}
	}
	for _, way := range slices.Compact(ways) {
		at := &m.root.Inode
		for {
			elem, rest, more := strings.Cut(way, "/")
			child := at.GetChild(elem)
			if !more && child != nil && at == &m.root.Inode && m.isFixed(elem) {
				tellShown(child)
				break
			}
			if !more || child == nil {
				waitFor(inBackground(func() {
					at.NotifyContent(0, 0)
					at.NotifyEntry(elem)
				}), stuckAfter) // a program may hold the directory, see view.invalidate
				break
			}
			at, way = child, rest
		}
	}
}

// linkNode is a link of ours from where a root was asked for to where it lies.
type linkNode struct {
	fs.Inode
	m      *Mount
	target string
}

// Readlink returns the root's place.
func (l *linkNode) Readlink(context.Context) ([]byte, syscall.Errno) { return []byte(l.target), 0 }

// Getattr describes the link.
func (l *linkNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	l.fill(&out.Attr)
	return 0
}

func (l *linkNode) fill(out *fuse.Attr) {
	l.m.fillOwn(out, unix.S_IFLNK|0o777, l.StableAttr().Ino)
	out.Size = uint64(len(l.target))
}

// fillOwn describes a file of ours.
func (m *Mount) fillOwn(out *fuse.Attr, mode uint32, ino uint64) {
	own := m.owner()
	out.Mode, out.Ino, out.Nlink, out.Blksize = mode, ino, 1, 4096
	out.Uid, out.Gid = own.UID, own.GID
	sec, nsec := uint64(m.start.Unix()), uint32(m.start.Nanosecond())
	out.Atime, out.Mtime, out.Ctime = sec, sec, sec
	out.Atimensec, out.Mtimensec, out.Ctimensec = nsec, nsec, nsec
}

// owner is whose directories ours are.
func (m *Mount) owner() guard.User {
	if m.opt.Owner != nil {
		return *m.opt.Owner
	}
	return m.user
}
