package rules

import (
	"cmp"
	"sync"
)

// Programs such as tar, cp and rsync make files and then set their times and modes. A program
// without the right to write to existing files must be able to do that, too. A root without the
// right to write therefore remembers the identities of the files that were made in it: at least
// the latest maxCreated, and at most twice as many. A file that is forgotten, or was made in an
// earlier lifetime of the root, is an existing file like any other. If the file system keeps no
// birth time, and gives the inode number of a remembered file to another file, that other file is
// taken for the remembered one.

// maxCreated bounds the memory for one root to a few megabytes.
const maxCreated = 1 << 15

// CreatedFiles are the files that were created in a root.
type CreatedFiles struct {
	mu sync.Mutex // guards the fields below
	// The latest files are in young, those before them in old. When young is full it becomes
	// old, and the earlier old is forgotten.
	young, old map[Identity]struct{}
	max        int // 0: maxCreated
}

// Add notes a file that was created.
func (m *CreatedFiles) Add(id Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addLocked(id)
}

func (m *CreatedFiles) addLocked(id Identity) {
	if m.young == nil || len(m.young) >= cmp.Or(m.max, maxCreated) {
		m.young, m.old = map[Identity]struct{}{}, m.young
	}
	m.young[id] = struct{}{}
}

// Has reports whether a file is remembered. A call counts as a use, which keeps the file remembered.
func (m *CreatedFiles) Has(id Identity) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.young[id]; ok {
		return true
	}
	_, ok := m.old[id]
	if ok {
		m.addLocked(id)
	}
	return ok
}
