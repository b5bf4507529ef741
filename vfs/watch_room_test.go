package vfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// watchAs watches recursively, for a subject.
func (b *bed) watchAs(h *watch.Hub, s guard.Subject, rel string) (*watch.Watch, error) {
	c := who
	c.Subject = s
	return h.Watch(bg, c, b.at(rel).Path, watch.Options{Recursive: true}, func(context.Context, []watch.Event) {})
}

// R008: the watches of one server leave room for those of others, whatever it watches and
// however many sessions it begins. Its error names the limit. Room that it gives back can be
// used again.
func TestOneServerLeavesWatchesToOthers(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	const dirs = 10 // in each tree, its top included
	for _, d := range []string{"a", "b", "c", "d"} {
		for i := range dirs - 1 {
			b.put(fmt.Sprintf("%s/%d/f", d, i), "")
		}
	}
	h := b.hub(watch.HubOptions{MaxWatches: 8 * dirs})
	var hostile []*watch.Watch
	for n := uint64(0); ; n++ {
		w, err := b.watchAs(h, guard.Subject("hostile").InSession(n), "a")
		if err != nil {
			var limit *watch.LimitError
			if !errors.Is(err, names.Quota) || !errors.As(err, &limit) || limit.Limit != 4*dirs {
				t.Fatal(err)
			}
			break
		}
		hostile = append(hostile, w)
	}
	if n := len(hostile); n != 4 {
		t.Errorf("the hostile server has %d watches", n)
	}
	// Each later subject has half of the rest, and a further one still finds room.
	for i, want := range []int{2, 1} {
		who, have := guard.Subject(fmt.Sprint("server", i)), 0
		for ; have < 8; have++ {
			if _, err := b.watchAs(h, who, string("bc"[i])); err != nil {
				break
			}
		}
		if have != want {
			t.Errorf("%s has %d watches, want %d", who, have, want)
		}
	}
	if _, err := b.watchAs(h, "late", "d/0"); err != nil {
		t.Errorf("the last server: %v", err)
	}
	hostile[0].Close()
	hostile[1].Close()
	if _, err := b.watchAs(h, "hostile", "a/1"); err != nil {
		t.Errorf("after the hostile server gave room back: %v", err)
	}
	b.revoke("code")
	b.grant("code", "", guard.Policy{})
	for i := range 4 {
		if _, err := b.watchAs(h, "other", "a"); err != nil {
			t.Errorf("watch %d after the end of all: %v", i, err)
		}
	}
}

// The owner can set the limit of one server.
func TestMaxEach(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("d/1/f", "")
	b.put("d/2/f", "")
	h := b.hub(watch.HubOptions{MaxEach: 4})
	_, err := b.watchAs(h, "s", "d")
	b.must(err)
	var limit *watch.LimitError
	if _, err := b.watchAs(h, "s", "d"); !errors.As(err, &limit) || limit.Limit != 4 {
		t.Errorf("%v", err)
	}
	_, err = b.watchAs(h, "other", "d")
	b.must(err)
}

// A watch keeps its room when it judges everything anew, even if other watches have taken the rest
// of the room meanwhile.
func TestWatchKeepsItsRoom(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	for i := range 9 {
		b.put(fmt.Sprintf("d/%d/f", i), "")
	}
	h := b.hub(watch.HubOptions{MaxWatches: 20})
	x := b.watch(h, "d", watch.Options{Recursive: true})
	for _, s := range []guard.Subject{"a", "b", "c"} {
		for i := range 9 {
			if _, err := b.watchAs(h, s, fmt.Sprintf("d/%d", i)); err != nil {
				break
			}
		}
	}
	for range 3 {
		b.must(b.reg.Set(bg, "code", guard.ReadOnly))
		b.must(b.reg.Set(bg, "code", guard.ReadWrite))
	}
	x.until("to look again", overflowed)
	for i := range 9 {
		name := fmt.Sprintf("d/%d/new", i)
		b.put(name, "")
		x.until("going on", has(watch.Created, name))
	}
}

// If a watch has become larger than the room that it can get, its receiver is told from time to
// time to look again, until there is room for the whole watch.
func TestWatchBeyondItsRoom(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("d/f", "")
	b.put("other/f", "")
	h := b.hub(watch.HubOptions{MaxEach: 3, RetryRoom: 10 * time.Millisecond})
	other := b.watch(h, "other", watch.Options{})
	x := b.watch(h, "d", watch.Options{Recursive: true})
	b.must(os.MkdirAll(b.host("d/1/2"), 0o755))
	for range 3 {
		x.until("to look again", overflowed)
		x.forget()
	}
	other.w.Close()
	for i := 0; ; i++ {
		name := fmt.Sprint("d/1/2/", i)
		b.put(name, "")
		list := x.until("anything", func(list []watch.Event) bool { return overflowed(list) || has(watch.Created, name)(list) })
		if has(watch.Created, name)(list) {
			return // changes there are reported again
		}
		x.forget()
	}
}

// Directories with many names take more of a server's room, at the beginning and when they
// grow, because each name takes memory.
func TestNamesTakeRoom(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	many(b, "large", 3500)
	many(b, "grows", 900)
	h := b.hub(watch.HubOptions{MaxEach: 5, RetryRoom: 10 * time.Millisecond})
	first, err := b.watchAs(h, "s", "large") // 4 of 5
	b.must(err)
	var limit *watch.LimitError
	if _, err := b.watchAs(h, "s", "large"); !errors.As(err, &limit) || limit.Limit != 5 {
		t.Errorf("%v", err)
	}
	first.Close()
	var all []*watcher
	for range 5 {
		all = append(all, b.watch(h, "grows", watch.Options{}))
	}
	many(b, "grows/more", 10)
	for i := range 300 {
		b.put(fmt.Sprint("grows/new", i), "")
	}
	// After the directory has grown, each watch takes 2 of 5. A watch that finds no room gives up
	// the room that it had, and that may be enough for the next one: at most 2 watches see
	// everything.
	whole := 0
	for _, x := range all {
		list := x.until("to look again, or all", func(list []watch.Event) bool {
			return overflowed(list) || has(watch.Created, "grows/new299")(list)
		})
		if !overflowed(list) {
			whole++
		}
	}
	if whole > 2 {
		t.Errorf("%d of %d have room", whole, len(all))
	}
	for _, x := range all {
		x.w.Close()
	}
	first, err = b.watchAs(h, "s", "large")
	b.must(err) // all of the room was given back
	first.Close()
}

// R070: a revocation ends many watches of one directory, and tells each receiver. The memory that
// the revocation allocates for each watch does not grow with the number of watches.
func TestRevokeEndsManyWatches(t *testing.T) {
	few, some := endMany(t, 150)
	many, all := endMany(t, 3000)
	if some < 64 || all < some {
		t.Fatalf("only %d and %d watches could be begun", some, all)
	}
	t.Logf("ending one of %d watches allocates %d bytes, one of %d %d", some, few, all, many)
	if many > 4*few+1024 {
		t.Errorf("ending one of %d watches takes %d bytes, ending one of %d takes %d", some, few, all, many)
	}
}

// endMany begins the given number of watches in a root, or fewer if a limit is reached, and revokes
// the root. It returns the bytes that the revocation allocated for each watch, and the number of
// watches.
func endMany(t *testing.T, watches int) (perWatch uint64, n int) {
	b := newBed(t, false, guard.Policy{})
	for i := range 4 {
		b.put(fmt.Sprintf("d/%d/f", i), "")
	}
	h := b.hub(watch.HubOptions{MaxWatches: 1 << 20, MaxEach: 1 << 20})
	var ended atomic.Int64
	for n < watches {
		_, err := h.Watch(bg, who, b.at("d").Path, watch.Options{Recursive: true}, func(_ context.Context, list []watch.Event) {
			if len(list) == 1 && list[0].Ended {
				ended.Add(1)
			}
		})
		if errors.Is(err, names.Quota) {
			break // a machine with few inotify watches
		}
		b.must(err)
		n++
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.revoke("code")
	runtime.ReadMemStats(&after)
	if got := ended.Load(); got != int64(n) {
		t.Errorf("%d of %d watches were told of their end", got, n)
	}
	if n, dirs := h.Counts(); n != 0 || dirs != 0 {
		t.Errorf("%d watches on %d directories are left", n, dirs)
	}
	return (after.TotalAlloc - before.TotalAlloc) / uint64(max(n, 1)), n
}
