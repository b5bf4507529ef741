package rules

import "testing"

// The number of remembered new files is bounded. The most recently used ones are kept.
func TestMadeFilesAreBounded(t *testing.T) {
	const most = 3
	m := &CreatedFiles{max: most}
	for ino := range uint64(100) {
		m.Add(Identity{Ino: ino})
		m.Add(Identity{Ino: ino})
		if !m.Has(Identity{Ino: 0}) { // this counts as a use
			t.Fatalf("forgot the file used last, after %d", ino)
		}
		for late := ino; late > 0 && late > ino-most+1 && ino >= most; late-- {
			if _, young := m.young[Identity{Ino: late}]; !young {
				if _, old := m.old[Identity{Ino: late}]; !old {
					t.Errorf("forgot %d of the latest, after %d", late, ino)
				}
			}
		}
		if n := len(m.young) + len(m.old); n > 2*most {
			t.Fatalf("%d are kept", n)
		}
	}
	if m.Has(Identity{Ino: 1}) || m.Has(Identity{Ino: 1000}) {
		t.Error("an old file, or one never made, passes")
	}
	if !m.Has(Identity{Ino: 99}) || m.Has(Identity{Ino: 99, Birth: 1}) {
		t.Error("another file of the same number passes")
	}
}
