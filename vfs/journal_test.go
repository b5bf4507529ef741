package vfs_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// memJournal is a journal in memory.
type memJournal struct {
	b    *bed
	mu   sync.Mutex // guards the fields below
	open map[guard.Path]bool
	all  []guard.Path
}

func (n *memJournal) Begin(p guard.Path) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if left := n.b.temps(); len(left) != 0 {
		n.b.Errorf("%v was there before it was noted", left)
	}
	n.open[p] = true
	n.all = append(n.all, p)
	return func() {
		if left := n.b.temps(); len(left) != 0 {
			n.b.Errorf("%v is there still", left)
		}
		n.mu.Lock()
		delete(n.open, p)
		n.mu.Unlock()
	}
}

// R074: a new file never has a temporary name. A file that replaces another has a temporary name
// only while that name is in the journal.
func TestJournal(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		n := &memJournal{b: b, open: map[guard.Path]bool{}}
		b.t.SetJournal(n)
		b.must(second(b.replace("new", "x", vfs.IfMatch{})))
		u := b.begin("up", vfs.IfMatch{})
		b.must(piece(u, "x", 0))
		b.must(second(u.Commit(bg, who)))
		b.must(second(b.t.CopyFile(bg, who, b.path("new"), b.path("copy"), vfs.CopyOptions{})))
		if len(n.all) != 0 {
			t.Errorf("journalled for new files: %v", n.all)
		}
		b.must(second(b.replace("new", "y", vfs.IfMatch{})))
		b.contents("new", "y")
		if len(n.all) != 1 || len(n.open) != 0 || !strings.HasPrefix(filepath.Base(n.all[0].Rel()), vfs.TempPrefix) {
			t.Errorf("journalled %v, still open %v", n.all, n.open)
		}
		if _, err := os.Lstat(b.host(n.all[0].Rel())); err == nil {
			t.Error("the journal's name is still there")
		}
	})
}

// The temporary file of a killed daemon is removed by its path in the journal. Nothing else can
// be removed this way.
func TestCleanTemp(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		temp := vfs.TempPrefix + "x"
		out := b.tree("f=kept", temp+"=", "d/"+temp+"=", vfs.TempPrefix+"d/", vfs.TempPrefix+"l => f", "ld => d", "outdir => $OUT")
		b.must(os.WriteFile(out+"/"+temp, nil, 0o644))
		for rel, want := range map[string]guard.Kind{
			temp: 0, "d/" + temp: 0, vfs.TempPrefix + "none": 0, "none/" + temp: 0,
			"f": names.Invalid, "": names.Invalid, vfs.TempPrefix + "d": names.Invalid, vfs.TempPrefix + "l": names.Invalid,
			"outdir/" + temp: names.Invalid, "f/" + temp: names.NotDir,
		} {
			b.wantKind(b.t.CleanTemp(bg, b.path(rel)), want)
		}
		if len(b.rec.Of(names.OpUnlink)) != 2 {
			t.Errorf("records %+v", b.rec.Of(names.OpUnlink))
		}
		if got := b.hostNames(); strings.Contains(got, temp) {
			t.Errorf("left %q", got)
		}
		if _, err := os.Stat(out + "/" + temp); err != nil {
			t.Error(err)
		}
		b.contents("f", "kept")
	})
	// A root without the right to remove is cleaned, too.
	b := newBed(t, false, guard.Policy{Rights: guard.ReadOnly})
	b.put(vfs.TempPrefix+"y", "")
	b.must(b.t.CleanTemp(bg, b.path(vfs.TempPrefix+"y")))
	// The temporary sibling of a single-file root.
	b.put("sub/file", "old")
	b.put("sub/"+vfs.TempPrefix+"z", "")
	b.grant("one", "sub/file", guard.Policy{})
	p, err := guard.NewPath("one", vfs.TempPrefix+"z")
	b.must(err)
	b.must(b.t.CleanTemp(bg, p))
	if left, _ := os.ReadDir(b.host("sub")); len(left) != 1 {
		t.Errorf("left %v", left)
	}
}
