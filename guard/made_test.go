package guard

import "testing"

// What is remembered of the files that were made is bounded, and the files used
// last are the ones that stay.
func TestMadeFilesAreBounded(t *testing.T) {
	m := &madeFiles{max: 3}
	for ino := range uint64(3) {
		m.add(Identity{Ino: ino})
	}
	if !m.has(Identity{Ino: 0}) { // used: the oldest is now 1
		t.Error("forgot one within the bound")
	}
	m.add(Identity{Ino: 3})
	m.add(Identity{Ino: 3})
	for ino, want := range map[uint64]bool{0: true, 1: false, 2: true, 3: true, 4: false} {
		if got := m.has(Identity{Ino: ino}); got != want {
			t.Errorf("file %d: %v, want %v", ino, got, want)
		}
	}
	if len(m.index) != 3 || m.order.Len() != 3 {
		t.Errorf("%d and %d are kept", len(m.index), m.order.Len())
	}
	if m.has(Identity{Ino: 2, Birth: 1}) {
		t.Error("another file of the same number passes")
	}
}
