package vfs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// What was copied of a page stays when its memory is used again by others.
func TestPageRelease(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		for i := range 30 {
			b.put(fmt.Sprintf("d/one-%02d", i), "")
			b.put(fmt.Sprintf("e/sub/another-%02d", i), "text")
		}
		page, err := b.t.List(bg, who, b.at("d").Path, vfs.ListOptions{})
		b.must(err)
		kept, want := slices.Clone(page.Entries), rels(b.at("d").Path, page.Entries)
		if len(kept) != 30 || kept[0].Name == "" {
			t.Fatalf("listed %+v", kept)
		}
		page.Release()
		if page.Entries != nil {
			t.Errorf("a page released has %d entries", len(page.Entries))
		}
		for _, o := range []vfs.ListOptions{{}, {Recursive: true}, {Recursive: true, Limit: 7, NoInfo: true}} {
			other, err := b.t.List(bg, who, b.at("e").Path, o)
			b.must(err)
			for i := range other.Entries {
				other.Entries[i].Name = "overwritten"
			}
			other.Release()
		}
		b.same("what was copied", rels(b.at("d").Path, kept), want)
		for _, e := range kept {
			if _, base := e.Path.Split(); base != e.Name {
				t.Errorf("%s has the name %q", e.Path, e.Name)
			}
		}
		again := b.list(b.at("d").Path, vfs.ListOptions{}) // in memory used before
		b.same("listed again", rels(b.at("d").Path, again), want)
	})
}

// A page asks for its memory as it grows: one that gets no more ends early, and
// what is missing comes with the next.
func TestPageRoom(t *testing.T) {
	const files = 3000
	b := newBed(t, false, guard.Policy{Rights: guard.ReadOnly})
	for i := range files {
		b.put(fmt.Sprintf("d/%s-%04d", strings.Repeat("n", 100), i), "")
	}
	busy := errors.New("no room")
	for name, c := range map[string]struct {
		dir  string
		o    vfs.ListOptions
		want int
	}{
		"all": {"d", vfs.ListOptions{}, files}, "bare": {"d", vfs.ListOptions{NoInfo: true}, files},
		"recursive": {"", vfs.ListOptions{Recursive: true}, files + 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.o
			o.Limit = vfs.MaxListLimit
			asked, pages, seen := int64(0), 0, map[string]bool{}
			list := func(most int64) (vfs.Page, error) {
				left := most
				o.Room = func(n int64) error {
					if n > left {
						return busy
					}
					asked, left = asked+n, left-n
					return nil
				}
				return b.t.List(bg, who, b.at(c.dir).Path, o)
			}
			whole, err := list(1 << 30)
			b.must(err)
			least := int64(0) // what the page takes: its entries and their paths
			for _, e := range whole.Entries {
				least += int64(unsafe.Sizeof(e)) + int64(len(e.Path.Rel()))
			}
			if len(whole.Entries) != c.want || asked < least || asked > 3*least {
				t.Errorf("%d entries of %d bytes asked for %d", len(whole.Entries), least, asked)
			}
			for more := true; more; pages++ {
				page, err := list(256 << 10)
				b.must(err)
				for _, e := range page.Entries {
					seen[e.Path.Rel()] = true
				}
				o.Cursor, more = page.Next, page.Next != ""
			}
			if len(seen) != c.want || pages < 4 {
				t.Errorf("%d entries on %d pages", len(seen), pages)
			}
			o.Cursor = ""
			if _, err := list(0); !errors.Is(err, busy) {
				t.Errorf("without any room: %v", err)
			}
		})
	}
}
