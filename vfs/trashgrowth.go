package vfs

import (
	"sync"
	"sync/atomic"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// What is kept in a trash may still grow: through a descriptor that was open when
// the file lost its name, or through another name of it. Such files are remembered,
// and what is written to one counts at once. What the host writes to one, or a
// descriptor that is lent (File.Lend), is found when the trash is searched, see
// lookEvery.

// maxGrowing bounds the memory for them, to about a megabyte. With more, the trash is
// searched at the next chance.
const maxGrowing = 4096

// growing are the files in trashes that may grow, by identity.
type growing struct {
	any atomic.Int64 // how many there are: nearly always none, and then nothing is locked

	mu    sync.Mutex // guards the field below
	files map[guard.Identity]*keptOpen
}

type keptOpen struct {
	bin     guard.Identity // the trash it is in
	entry   string         // its name there
	counted int64          // bytes
}

// add remembers a file; false: there are too many.
func (g *growing) add(id guard.Identity, f keptOpen) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.files == nil {
		g.files = map[guard.Identity]*keptOpen{}
	}
	if _, known := g.files[id]; !known && len(g.files) >= maxGrowing {
		return false
	}
	g.files[id] = &f
	g.any.Store(int64(len(g.files)))
	return true
}

// has reports whether a file is in a trash, and remembered.
func (g *growing) has(id guard.Identity) bool {
	if g.any.Load() == 0 {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.files[id] != nil
}

// drop forgets an entry that has left its trash.
func (g *growing) drop(bin guard.Identity, entry string) {
	if g.any.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, f := range g.files {
		if f.bin == bin && f.entry == entry {
			delete(g.files, id)
		}
	}
	g.any.Store(int64(len(g.files)))
}

// counts says how large a file is by now, and returns by how much more that is than
// what was counted.
func (g *growing) counts(id, bin guard.Identity, size int64) (more int64) {
	if g.any.Load() == 0 {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.files[id]
	if f == nil || f.bin != bin {
		return 0
	}
	more, f.counted = size-f.counted, size
	return more
}

// grew is told that a file has been written through fd: if it is in a trash, that
// counts what has been added, and is kept within its bounds.
func (t *Tree) grew(l *guard.Lease, fd int, id guard.Identity) {
	if !t.bins.growing.has(id) {
		return
	}
	dir, below, how, ok := l.Trash()
	if !ok {
		return
	}
	d, info, err := beneath.Trash(dir)
	if err != nil {
		return // what cannot be opened cannot be kept in bounds either
	}
	b := &bin{t: t, l: l, d: d, id: info.ID(), below: below}
	defer b.close()
	b.size, b.age = how.Bounds()
	now, err := beneath.Stat(fd)
	if err != nil {
		return
	}
	if more := t.bins.growing.counts(id, b.id, b.usage(&now)); more != 0 {
		b.added(more - entryCost) // the entry itself is counted
	}
}

// usage is what a file takes of the disk, in bytes: a file is no larger for the holes
// in it. Remote sources may not tell, and are counted by length.
func (b *bin) usage(info *Info) int64 {
	if b.l.Remote() {
		return info.Size
	}
	return min(info.Size, int64(info.Blocks)*512)
}
