package vfs_test

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// After random changes of a tree, by the host and through the guarded tree, the events folded into
// the first state give the last state. No event names a temporary file of the guarded tree.
func TestWatchFoldsToTheTree(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b := newBed(t, false, guard.Policy{})
			rnd := rand.New(rand.NewPCG(seed, 7))
			b.must(os.MkdirAll(b.host("t"), 0o755))
			b.must(os.MkdirAll(b.host("out"), 0o755))
			ops := operations(b, rnd)
			for range 60 {
				ops()
			}
			h := b.hub(watch.HubOptions{})
			known := b.state("t")
			x := b.watch(h, "t", watch.Options{Recursive: true})
			for round := range 12 {
				for range 60 {
					ops()
				}
				list := x.settle("t")
				if overflowed(list) {
					t.Fatalf("round %d: an overflow", round)
				}
				fold(known, list)
				if got, want := slices.Sorted(maps.Keys(known)), slices.Sorted(maps.Keys(b.state("t"))); !slices.Equal(got, want) {
					t.Fatalf("round %d: the events give\n%q, there is\n%q\nevents %q", round, got, want, short(list))
				}
				for _, e := range list {
					if strings.Contains(e.Path.Rel(), vfs.TempPrefix) {
						t.Errorf("%+v", e)
					}
				}
			}
		})
	}
}

// operations returns a function that does a random operation, if it is possible. There are few
// names, so that operations collide.
func operations(b *bed, rnd *rand.Rand) func() {
	name := func() string { return fmt.Sprintf("%c", 'a'+rnd.IntN(4)) }
	path := func() string {
		p := "t"
		for range 1 + rnd.IntN(4) {
			p += "/" + name()
		}
		return p
	}
	at := func(rel string) (vfs.At, string) {
		dir, base := b.at(rel).Path.Split()
		return vfs.At{Path: dir}, base
	}
	return func() {
		p, q := path(), path()
		switch rnd.IntN(12) {
		case 0:
			_ = os.MkdirAll(b.host(p), 0o755)
		case 1, 2:
			_ = os.WriteFile(b.host(p), []byte(q), 0o644)
		case 3:
			_ = os.RemoveAll(b.host(p))
		case 4, 5:
			_ = os.Rename(b.host(p), b.host(q))
		case 6:
			_ = unix.Renameat2(unix.AT_FDCWD, b.host(p), unix.AT_FDCWD, b.host(q), unix.RENAME_EXCHANGE)
		case 7:
			_ = os.Rename(b.host(p), b.host("out/"+name()))
		case 8:
			_ = os.Rename(b.host("out/"+name()), b.host(p))
		case 9:
			_, _ = b.t.Replace(bg, who, b.at(p), strings.NewReader(q), vfs.IfMatch{Mode: 0o644, NoDurable: true})
		case 10:
			d, n := at(p)
			_, _ = b.t.Mkdir(bg, who, d, n, 0o755)
		case 11:
			d, n := at(p)
			_ = b.t.Unlink(bg, who, d, n)
		}
	}
}

// state returns the paths below dir as a set, in the form that fold changes.
func (b *bed) state(dir string) map[string]bool {
	b.Helper()
	out := map[string]bool{}
	b.must(filepath.WalkDir(b.host(dir), func(p string, _ fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(b.host(""), p)
		if rel != dir {
			out[rel] = true
		}
		return err
	}))
	return out
}

// fold applies events to a state.
func fold(state map[string]bool, list []watch.Event) {
	for _, e := range list {
		rel := e.Path.Rel()
		switch e.Kind {
		case watch.Deleted:
			for have := range state {
				if have == rel || strings.HasPrefix(have, rel+"/") {
					delete(state, have)
				}
			}
		case watch.Created:
			state[rel] = true
		}
	}
}
