package vfs_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// R043: many changes of a file that come faster than the receiver reads them are reported as a few
// events. This holds for writes in place, replacements and uploads through the tree, and atomic
// saves by the host from outside the watched tree. The last state is reported after the last
// change, and the two halves of a rename come in order.
func TestWatchMergesReplacements(t *testing.T) {
	const times = 500
	for name, change := range map[string]func(b *bed, i int){
		"replaced": func(b *bed, i int) {
			b.must(second(b.replace("d/f", fmt.Sprint(i), vfs.IfMatch{})))
		},
		"uploaded": func(b *bed, i int) {
			up := b.begin("d/f", vfs.IfMatch{})
			b.must(piece(up, fmt.Sprint(i), 0))
			b.must(second(up.Commit(bg, who)))
		},
		"written in place": func(b *bed, i int) { b.put("d/f", fmt.Sprint(i)) },
		"saved by the host": func(b *bed, i int) {
			b.put("elsewhere", fmt.Sprint(i))
			b.must(os.Rename(b.host("elsewhere"), b.host("d/f")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite})
			b.put("d/f", "")
			for _, at := range []string{"d", "d/f"} {
				h := b.hub(watch.HubOptions{})
				x, control := b.watch(h, at, watch.Options{}), b.watch(h, "d", watch.Options{})
				busy := make(chan struct{})
				x.holdUntil(busy)
				change(b, 0)
				x.until("the first", has(watch.Modified, "d/f"))
				for i := range times {
					change(b, i)
				}
				if at == "d" {
					b.must(os.Rename(b.host("d/f"), b.host("d/moved")))
					// Both halves have come before any other event.
					control.until("the rename", has(watch.Created, "d/moved"))
					b.put("d/f", "")
				}
				close(busy)
				about := func(kind watch.EventKind, rel string) func(watch.Event) bool {
					return func(e watch.Event) bool { return e.Kind == kind && e.Path.Rel() == rel }
				}
				gone, moved, back := about(watch.Deleted, "d/f"), about(watch.Created, "d/moved"), about(watch.Created, "d/f")
				list := x.until("the last", func(list []watch.Event) bool {
					if at != "d" {
						return len(list) > 1
					}
					return slices.ContainsFunc(list, moved) && slices.IndexFunc(list, back) > slices.IndexFunc(list, gone)
				})
				// At most: an event that was being delivered, the events that waited, and one
				// that came while the waiting events were examined.
				if len(list) > 10 {
					t.Errorf("watching %s: %d changes are %d events", at, times, len(list))
				}
				if at == "d" {
					// The new file may be seen before the old one's event, but the halves of
					// the rename come in order.
					from, to := slices.IndexFunc(list, gone), slices.IndexFunc(list, moved)
					if from == 0 || from > to || list[from].MoveID == "" || list[from].MoveID != list[to].MoveID || list[from-1].Kind != watch.Modified {
						t.Errorf("the events are %v", list)
					}
				}
				x.w.Close()
				control.w.Close()
			}
		})
	}
}
