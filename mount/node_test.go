package mount

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// newTestView returns a view of a mount without a registry, and the mount's top directory.
func newTestView() (*view, *node) {
	m := &Mount{}
	newFileSystem(m, &fakeKernel{})
	return &view{m: m, name: "code"}, m.top
}

// fileInfo describes a file with an inode number and a time of birth.
func fileInfo(ino uint64, birth int64, kind uint32) *vfs.Info {
	return &vfs.Info{Ino: ino, Btime: unix.StatxTimestamp{Sec: birth}, Mode: kind | 0o644}
}

// R070: if an inode number is used again, the old and the new file have different nodes, whether the
// new file was created through the mount or found by a look-up. A revocation takes back the nodes
// that view.all returns: both nodes are among them, and orphans, too.
func TestReusedInodeNumber(t *testing.T) {
	for name, c := range map[string]struct {
		again   *vfs.Info
		created bool
	}{
		"created":      {fileInfo(7, 1, unix.S_IFREG), true},
		"another kind": {fileInfo(7, 1, unix.S_IFLNK), false},
		"born later":   {fileInfo(7, 2, unix.S_IFREG), false},
	} {
		t.Run(name, func(t *testing.T) {
			v, top := newTestView()
			var out, again fuse.EntryOut
			root := v.publishRoot(top, "code", fileInfo(1, 1, unix.S_IFDIR), &fuse.EntryOut{})
			old, _ := v.publish(root, "f", fileInfo(7, 1, unix.S_IFREG), false, &out)
			next, _ := v.publish(root, "f", c.again, c.created, &again)
			if old == next || out.NodeId == again.NodeId {
				t.Fatal("two files are one node")
			}
			if all := v.all(); !slices.Contains(all, old) || !slices.Contains(all, next) {
				t.Error("view.all lacks one of the two nodes")
			}
			if found, _ := v.publish(root, "f", c.again, false, &out); found != next {
				t.Error("the node of the later file is not found")
			}
			v.orphan(next)
			if !slices.Contains(v.all(), next) || !next.isOrphan() {
				t.Error("an orphan is not in view.all, or not marked")
			}
			if found, _ := v.publish(root, "f", c.again, false, &out); found == next {
				t.Error("an orphan is handed out")
			}
			v.m.nodes.forget(old.id, 1)
			if v.m.nodes.find(old.id) != nil || v.m.nodes.find(next.id) != next {
				t.Error("the wrong node is forgotten")
			}
		})
	}
}

// A treeModel is the expected table of nodes, implemented in the simplest way.
type treeModel struct {
	top     *node
	names   map[location]*node // the node under each name
	at      map[*node]location // where each node was found last
	order   []location         // names in the order in which they were given
	lookups map[*node]int      // of nodes that are in the table
}

func (m *treeModel) link(dir *node, name string, n *node) {
	at := location{dir, name}
	m.names[at], m.at[n] = n, at
	m.order = append(slices.DeleteFunc(m.order, func(o location) bool { return o == at }), at)
}

func (m *treeModel) unlink(dir *node, name string) *node {
	at := location{dir, name}
	n := m.names[at]
	delete(m.names, at)
	if n == nil || m.at[n] != at {
		return n
	}
	delete(m.at, n)
	for _, o := range slices.Backward(m.order) {
		if m.names[o] == n && !n.isDir() {
			m.at[n] = o
			break
		}
	}
	return n
}

// prune removes unused nodes.
func (m *treeModel) prune() {
	for again := true; again; {
		again = false
		for n, lookups := range m.lookups {
			used := lookups > 0
			for at := range m.names {
				used = used || at.dir == n
			}
			if used {
				continue
			}
			again = true
			delete(m.lookups, n)
			delete(m.at, n)
			for at, have := range m.names {
				if have == n {
					delete(m.names, at)
				}
			}
		}
	}
}

// path returns the path of a node below the root.
func (m *treeModel) path(n, root *node) (string, bool) {
	var elems []string
	for n != root {
		at, ok := m.at[n]
		if !ok || len(elems) > maxDepth {
			return "", false
		}
		elems = append(elems, at.name)
		n = at.dir
	}
	slices.Reverse(elems)
	return strings.Join(elems, "/"), true
}

// check compares the table with the model. If paths is set, it also compares the path of each
// node, which takes long if names make a circle.
func (m *treeModel) check(t *testing.T, v *view, ever []*node, paths bool) {
	t.Helper()
	if got := len(v.all()); got != len(m.lookups) {
		t.Errorf("%d nodes are known, want %d", got, len(m.lookups))
	}
	for _, n := range ever {
		_, known := m.lookups[n]
		if found := v.m.nodes.find(n.id); (found == n) != known || n.isForgotten() == known {
			t.Errorf("node %#x: found %v, want %v", n.id, found == n, known)
		}
		if !known {
			continue
		}
		if got := n.parent(); got != m.at[n] {
			t.Errorf("node %#x was found last as %q, want %q", n.id, got.name, m.at[n].name)
		}
		for name := range strings.SplitSeq("abc", "") {
			if got := n.child(name); got != m.names[location{n, name}] {
				t.Errorf("node %#x: %s is the wrong node", n.id, name)
			}
		}
		if !paths {
			continue
		}
		at, ok := n.path()
		want, wantOK := m.path(n, v.root)
		if ok != wantOK || ok && at.Path.Rel() != want {
			t.Errorf("node %#x lies at %q, %v, want %q, %v", n.id, at.Path.Rel(), ok, want, wantOK)
		}
	}
}

// The table of nodes equals the model after each of many random operations: files are found and
// made under names, removed, moved, exchanged and forgotten, and found elsewhere than before.
func TestNodesAgainstModel(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			v, top := newTestView()
			root := v.publishRoot(top, "code", fileInfo(1, 1, unix.S_IFDIR), &fuse.EntryOut{})
			m := &treeModel{top: top, names: map[location]*node{{top, "code"}: root}, at: map[*node]location{root: {top, "code"}},
				lookups: map[*node]int{root: 1}}
			ever := []*node{root}
			files := map[uint64]*node{} // by inode number, the latest
			for step := range 400 {
				var known, dirs []*node
				for _, n := range ever {
					if _, ok := m.lookups[n]; ok {
						known = append(known, n)
						if n.isDir() && m.lookups[n] > 0 {
							dirs = append(dirs, n)
						}
					}
				}
				pick := func(from []*node) *node { return from[random.IntN(len(from))] }
				name := func() string { return string(rune('a' + random.IntN(3))) }
				switch random.IntN(8) {
				case 0, 1, 2:
					dir, at, ino := pick(dirs), name(), uint64(2+random.IntN(12))
					kind := uint32(unix.S_IFREG)
					if ino < 8 {
						kind = unix.S_IFDIR
					}
					created := random.IntN(4) == 0
					n, before := v.publish(dir, at, fileInfo(ino, 1, kind), created, &fuse.EntryOut{})
					_, have := m.lookups[files[ino]]
					if (n == files[ino]) != (have && !created) {
						t.Fatal("the wrong node is handed out")
					}
					if before != m.at[n] {
						t.Fatalf("publish returned %q as the name before", before.name)
					}
					if n != files[ino] {
						ever, files[ino] = append(ever, n), n
					}
					m.lookups[n]++
					m.link(dir, at, n)
				case 3:
					n := pick(known)
					if n == root || m.lookups[n] == 0 {
						continue
					}
					times := 1 + random.IntN(m.lookups[n])
					v.m.nodes.forget(n.id, uint64(times))
					m.lookups[n] -= times
				case 4:
					dir, at := pick(dirs), name()
					dir.unlink(at)
					m.unlink(dir, at)
				default:
					from, to, at, newName, exchange := pick(dirs), pick(dirs), name(), name(), random.IntN(3) == 0
					if from == to && at == newName {
						continue
					}
					from.move(at, to, newName, exchange)
					n, replaced := m.unlink(from, at), m.unlink(to, newName)
					if n != nil {
						m.link(to, newName, n)
					}
					if exchange && replaced != nil && replaced != n {
						m.link(from, at, replaced)
					}
				}
				m.prune()
				if m.check(t, v, ever, step%20 == 0); t.Failed() {
					return
				}
			}
			for n, times := range m.lookups {
				v.m.nodes.forget(n.id, uint64(times))
			}
			var ids []rules.Identity
			for _, n := range v.all() { // directories whose old names make a circle
				ids = append(ids, n.identity())
				if len(n.childNodes()) == 0 {
					t.Errorf("a node is left: %v", ids)
				}
			}
		})
	}
}

// The memory of a file that the kernel knows is bounded. The file has a name of sixteen bytes,
// in a directory of a hundred files.
func TestMemoryOfANode(t *testing.T) {
	v, top := newTestView()
	root := v.publishRoot(top, "code", fileInfo(1, 1, unix.S_IFDIR), &fuse.EntryOut{})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const dirs, files = 1000, 100
	for d := range uint64(dirs) {
		dir, _ := v.publish(root, fmt.Sprintf("directory %06d", d), fileInfo(2+d, 1, unix.S_IFDIR), false, &fuse.EntryOut{})
		for f := range uint64(files) {
			name := fmt.Sprintf("a file's name %02d", f)
			v.publish(dir, name, fileInfo(2+dirs+d*files+f, 1, unix.S_IFREG), false, &fuse.EntryOut{})
		}
	}
	each := (heap() - before) / (dirs * (files + 1))
	t.Logf("%d bytes", each)
	if each > 300 {
		t.Errorf("a node costs %d bytes", each)
	}
	if len(v.all()) != dirs*(files+1)+1 {
		t.Error("the number of nodes is wrong")
	}
}
