package rules

import "testing"

// The number of remembered new files is bounded. The most recently used ones are kept.
func TestCreatedFilesAreBounded(t *testing.T) {
	const most = 3
	m := &CreatedFiles{max: most}
	for ino := range uint64(100) {
		m.Add(Identity{Ino: ino})
		m.Add(Identity{Ino: ino})
		if !m.Has(Identity{Ino: 0}) { // this counts as a use
			t.Fatalf("forgot the file used last, after %d", ino)
		}
		for recent := ino; recent > 0 && recent > ino-most+1 && ino >= most; recent-- {
			if _, young := m.young[Identity{Ino: recent}]; !young {
				if _, old := m.old[Identity{Ino: recent}]; !old {
					t.Errorf("forgot %d, one of the latest files, after %d", recent, ino)
				}
			}
		}
		if n := len(m.young) + len(m.old); n > 2*most {
			t.Fatalf("%d files are remembered", n)
		}
	}
	if m.Has(Identity{Ino: 1}) || m.Has(Identity{Ino: 1000}) {
		t.Error("Has reports true for an old file, or for a file that was never added")
	}
	if !m.Has(Identity{Ino: 99}) || m.Has(Identity{Ino: 99, Birth: 1}) {
		t.Error("Has forgot the latest file, or took another file with its inode number for it")
	}
}
