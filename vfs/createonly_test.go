package vfs_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// The right to create does not extend to existing files: their mode and times cannot be set,
// neither by path nor through an open file. The mode and times of a file that was made under the
// grant can be set while the file is open and directly afterwards, as tar and rsync do.
func TestCreateOnlyLeavesExistingFilesAlone(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.Create | guard.Read | guard.List | guard.Append})
	b.put("old", "x")
	b.put("dir/kept", "x")
	mode := uint32(0o600)
	stamp := time.Unix(1_000_000_000, 5)
	attrs := []vfs.Attrs{{Mode: &mode}, {Mtime: &stamp, Atime: &stamp}, {MtimeNow: true}}
	set := func(at vfs.At, f *vfs.File, want guard.Kind) {
		t.Helper()
		for _, a := range attrs {
			b.wantKind(second(b.t.Setattr(bg, who, at, f, a)), want)
		}
	}
	f := b.open("old", unix.O_RDONLY)
	defer f.Close()
	set(b.at("old"), nil, names.Permission)
	set(b.at("old"), f, names.Permission)
	set(b.at("dir"), nil, names.Permission)
	set(b.at(""), nil, names.Permission)
	if st, err := os.Stat(b.host("old")); err != nil || st.Mode() != 0o644 {
		t.Errorf("%v, %v", st.Mode(), err)
	}

	made, _, created, err := b.t.Create(bg, who, b.at("dir"), "new", unix.O_RDWR, 0o644)
	b.must(err)
	if !created {
		t.Fatal("the new file was not reported as created")
	}
	set(b.at("dir/new"), made, 0)
	made.Close()
	set(b.at("dir/new"), nil, 0)
	b.must(second(b.t.Mkdir(bg, who, b.at(""), "d", 0o755)))
	set(b.at("d"), nil, 0)
	b.must(second(b.t.Symlink(bg, who, "old", b.at(""), "l")))
	b.must(second(b.t.Setattr(bg, who, b.at("l"), nil, vfs.Attrs{Mtime: &stamp})))
	tmp, _, err := b.t.Tmpfile(bg, who, b.at(""), unix.O_RDWR, 0o644)
	b.must(err)
	set(b.at(""), tmp, 0)
	tmp.Close()

	// An existing file does not count as made when it is opened, or when it gets another name.
	same, _, created, err := b.t.Create(bg, who, b.at(""), "old", unix.O_RDONLY, 0o644)
	b.must(err)
	if created {
		t.Error("an existing file was reported as created")
	}
	set(b.at("old"), same, names.Permission)
	same.Close()
	b.must(second(b.t.Link(bg, who, b.at("old"), nil, b.at(""), "hard")))
	set(b.at("hard"), nil, names.Permission)
	// In another lifetime of the root, files from the first one are existing files.
	b.revoke("code")
	b.grant("code", "", guard.Policy{Rights: guard.Create | guard.Read})
	set(b.at("dir/new"), nil, names.Permission)
}
