package vfs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// A page requests memory as it grows. If it gets no more, it ends early, and the next page has
// the missing entries.
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

// R079: a pattern that would take minutes for one deep path, in a match that could not be
// stopped, is refused at once. Patterns that people write work on that tree.
func TestListGlobOfDeepTree(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	guardtest.Deep(t, b.host(""), strings.Repeat("a", 250), 800, "deep")
	ctx, cancel := context.WithTimeout(bg, 30*time.Second) // so that a hang ends
	defer cancel()
	bomb := "**/" + strings.Repeat("{*,a*}/", 8) + strings.Repeat("*/", 200) + "b"
	if _, err := b.t.List(ctx, who, b.at("").Path, vfs.ListOptions{Recursive: true, Glob: bomb}); !errors.Is(err, names.Invalid) || !strings.Contains(err.Error(), "fewer braces") {
		t.Errorf("%.100v", err)
	}
	if _, err := b.t.List(ctx, who, b.at("").Path, vfs.ListOptions{Recursive: true, Glob: "**/d{e,i}ep"}); err != nil {
		t.Errorf("%.100v", err)
	}
}
