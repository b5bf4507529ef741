package guard

import (
	"container/list"
	"sync"
)

// Whoever may make files but not write to existing ones has to be able to set
// the times and modes of what was made just now, as tar, cp and rsync do. A root
// therefore remembers what was made in it while that right was missing: the
// latest maxMade files, by identity. What is forgotten, and what an earlier
// lifetime of the root made, is an existing file like any other. Where the file
// system keeps no birth time, an inode number that the source uses again within
// that number of files passes for the file that had it.

// maxMade bounds the memory for one root to a few megabytes.
const maxMade = 1 << 15

type madeFiles struct {
	mu    sync.Mutex // guards the fields below
	index map[Identity]*list.Element
	order list.List // of Identity, the latest first
	max   int       // 0: maxMade
}

func (m *madeFiles) add(id Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.index[id]; e != nil {
		m.order.MoveToFront(e)
		return
	}
	if m.index == nil {
		m.index = map[Identity]*list.Element{}
	}
	m.index[id] = m.order.PushFront(id)
	limit := m.max
	if limit == 0 {
		limit = maxMade
	}
	for m.order.Len() > limit {
		delete(m.index, m.order.Remove(m.order.Back()).(Identity))
	}
}

// has reports whether id was made, and counts as a use of it.
func (m *madeFiles) has(id Identity) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.index[id]
	if e != nil {
		m.order.MoveToFront(e)
	}
	return e != nil
}

// Narrowest are the rights that the root and every nested root the operation
// has met agree on.
func (l *Lease) Narrowest() Rights {
	have := l.policy.Rights
	for _, c := range l.crossed {
		have &= c.root.policy.Load().Rights
	}
	return have
}

// Made tells the lease what file the operation has made.
func (l *Lease) Made(id Identity) {
	if l.Narrowest()&Write == 0 {
		l.root.made.add(id)
	}
}

// MayChange reports whether the attributes of a file may be changed: with the
// right to write those of any, with the right to create alone only those of a
// file that was made in this lifetime of the root (see Made).
func (l *Lease) MayChange(id Identity) error {
	if l.Narrowest()&Write != 0 || l.root.made.has(id) {
		return nil
	}
	return l.Denied(Write)
}

// Denied is the refusal of an operation that turned out, while it ran, to lack
// rights, which its record then names.
func (l *Lease) Denied(lacks Rights) error {
	l.req.Need |= lacks
	return denied(lacks, l.Narrowest())
}
