package vfs_test

import (
	"fmt"
	"slices"
	"testing"

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
