package vfs_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
)

// Without attributes the same names are listed, with the same types: special
// files are hidden, directories entered, nested roots kept closed.
func TestListNoInfo(t *testing.T) {
	for name, nested := range map[string]bool{"alone": false, "with a nested root": true} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b *bed) {
				b.put("d/f", "contents")
				b.put("d/sub/deep/g", "")
				b.put("d/.dot", "")
				b.must(os.Symlink("f", b.host("d/link")))
				b.must(unix.Mkfifo(b.host("d/fifo"), 0o644))
				if nested {
					b.put("d/closed/secret", "")
					b.grant("closed", "d/closed", guard.Policy{Rights: guard.Read})
				}
				p := b.at("d").Path
				for _, o := range []vfs.ListOptions{{}, {Hidden: true}, {Recursive: true, Limit: 2}, {Recursive: true, Glob: "**/g"}} {
					want := b.list(p, o)
					o.NoInfo = true
					got := b.list(p, o)
					b.same("names", rels(p, got), rels(p, want))
					types := map[string]uint32{}
					for _, e := range want {
						types[e.Path.Rel()] = e.Info.Type()
					}
					for _, e := range got {
						if e.Info != (vfs.Info{Mode: types[e.Path.Rel()]}) {
							t.Errorf("%s: %+v, want the type %o alone", e.Path, e.Info, types[e.Path.Rel()])
						}
					}
				}
			})
		})
	}
}

// A cursor of a listing without attributes is invalid for one with attributes.
func TestListNoInfo_cursor(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("d/a", "")
	b.put("d/b", "")
	o := vfs.ListOptions{Limit: 1, NoInfo: true}
	page, err := b.t.List(bg, who, b.at("d").Path, o)
	b.must(err)
	o.Cursor = page.Next
	b.must(second(b.t.List(bg, who, b.at("d").Path, o)))
	o.NoInfo = false
	if _, err := b.t.List(bg, who, b.at("d").Path, o); err == nil || page.Next == "" {
		t.Errorf("cursor %q was taken: %v", page.Next, err)
	}
}
