package vfs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs/watch"
)

// When a root ends, its watches end before the revocation returns, and nothing is reported
// afterwards. Granting the root again revives no watch.
func TestWatchOfEndedRoot(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("d/f", "")
		h := b.hub(watch.HubOptions{Coalesce: time.Hour}) // so that the watch still waits for further events
		defer h.Close()
		x := b.watch(h, "d", watch.Options{Recursive: true})
		b.put("d/g", "")
		b.revoke("code")
		list := x.events()
		if len(list) != 1 || !list[0].Ended || list[0].Kind != watch.Deleted || list[0].Path.Rel() != "d" {
			t.Errorf("%v", short(list))
		}
		select {
		case <-x.w.Done():
		default:
			t.Error("the watch goes on")
		}
		b.grant("code", "", guard.Policy{})
		y := b.watch(h, "d", watch.Options{})
		b.put("d/h", "")
		y.w.Close()
		x.w.Close()
		if n := len(x.events()); n != 1 {
			t.Errorf("%v", short(x.events()))
		}
		if n, dirs := h.Counts(); n != 0 || dirs != 0 {
			t.Errorf("%d watches on %d directories", n, dirs)
		}
	})
}

// A revocation does not wait forever for a receiver that hangs. The error of the revocation says
// that the receiver hangs, and the receiver gets no more events.
func TestWatchRevokedWhileReceiverHangs(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("d/f", "")
	h := b.hub(watch.HubOptions{})
	x := b.watch(h, "d", watch.Options{})
	release := make(chan struct{})
	x.holdUntil(release)
	b.put("d/g", "")
	x.until("the first", has(watch.Created, "d/g"))
	_, err := b.reg.Revoke(bg, "code")
	if err == nil || !strings.Contains(err.Error(), "hangs") {
		t.Errorf("%v", err)
	}
	n := len(x.events())
	close(release)
	<-x.w.Done()
	if list := x.events(); len(list) != n {
		t.Errorf("%v after the revocation", short(list[n:]))
	}
}

// A watch ends when the right to watch is removed, and continues when another right is removed.
// It reports nothing in a nested root without the right to watch, also after that root is revoked.
func TestWatchNarrowed(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("d/f", "")
		b.put("d/in/f", "")
		h := b.hub(watch.HubOptions{})
		defer h.Close()
		x := b.watch(h, "d", watch.Options{Recursive: true})
		b.must(b.reg.Set(bg, "code", guard.ReadOnly))
		x.until("to look again", overflowed)
		b.put("d/in/g", "")
		x.until("going on", has(watch.Created, "d/in/g"))

		b.grant("in", "d/in", guard.Policy{Rights: guard.Read | guard.List})
		b.put("d/in/secret", "")
		b.must(os.Mkdir(b.host("d/in/dir"), 0o755))
		b.must(os.Chmod(b.host("d/in"), 0o700))
		if list := x.settle("d"); has(watch.Created, "d/in/secret")(list) || has(watch.Created, "d/in/dir")(list) {
			t.Errorf("events of a root without the right to watch: %v", short(list))
		}
		b.revoke("in")
		b.put("d/in/secret2", "")
		if list := x.settle("d"); has(watch.Created, "d/in/secret2")(list) {
			t.Errorf("events of a revoked root: %v", short(list))
		}
		b.must(b.reg.Set(bg, "code", guard.Read|guard.List))
		list := x.events()
		if len(list) == 0 || !list[len(list)-1].Ended {
			t.Errorf("%v", short(list))
		}
		b.put("d/h", "")
		x.w.Close()
		if has(watch.Created, "d/h")(x.events()) {
			t.Error("an event without the right to watch")
		}
	})
}

// A nested root that is a single file is reported by a watch of the outer root only if the nested
// root has the right to watch. Without this right it is not reported after its revocation either.
func TestWatchNestedFile(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("d/open", "")
	b.put("d/shut", "")
	h := b.hub(watch.HubOptions{})
	x := b.watch(h, "d", watch.Options{Recursive: true})
	b.grant("open", "d/open", guard.Policy{Rights: guard.ReadOnly})
	b.grant("shut", "d/shut", guard.Policy{Rights: guard.Read | guard.List})
	check := func() {
		t.Helper()
		b.put("d/open", "text")
		b.put("d/shut", "text")
		list := x.settle("d")
		if !has(watch.Modified, "d/open")(list) || has(watch.Modified, "d/shut")(list) || has(watch.Created, "d/shut")(list) {
			t.Errorf("%v", short(list))
		}
	}
	check()
	b.revoke("shut")
	check()
	b.must(os.Remove(b.host("d/shut")))
	if list := x.settle("d"); has(watch.Deleted, "d/shut")(list) {
		t.Errorf("%v", short(list))
	}
}

// The watch ends when its path is removed, renamed, or moved out of the root together with a
// directory above it.
func TestWatchedPathGoes(t *testing.T) {
	for name, act := range map[string]func(b *bed){
		"removed":     func(b *bed) { b.must(os.RemoveAll(b.host("a/d"))) },
		"renamed":     func(b *bed) { b.must(os.Rename(b.host("a/d"), b.host("a/e"))) },
		"above moved": func(b *bed) { b.must(os.Rename(b.host("a"), filepath.Join(b.TempDir(), "a"))) },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, b *bed) {
				b.put("a/d/f", "")
				h := b.hub(watch.HubOptions{})
				defer h.Close()
				x := b.watch(h, "a/d", watch.Options{Recursive: true})
				fd, err := unix.Open(b.host("a/d"), unix.O_PATH|unix.O_DIRECTORY, 0)
				b.must(err)
				defer unix.Close(fd)
				act(b)
				// inotify itself would still report events of the directory.
				_ = unix.Mknodat(fd, "outside", unix.S_IFREG|0o600, 0)
				<-x.w.Done()
				list := x.events()
				if len(list) == 0 || !list[len(list)-1].Ended || has(watch.Created, "a/d/outside")(list) {
					t.Errorf("%v", short(list))
				}
			})
		})
	}
}

// Watches leave no goroutine, descriptor or inotify watch behind, and closing
// one does not touch another on the same directories.
func TestWatchLeavesNothing(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	for i := range 20 {
		b.put(fmt.Sprintf("d/%d/f", i), "")
	}
	before, routines := openFDs(t), runtime.NumGoroutine()
	h := b.t.NewHub(watch.HubOptions{Coalesce: time.Millisecond})
	var all []*watcher
	for range 10 {
		all = append(all, b.watch(h, "d", watch.Options{Recursive: true}))
	}
	if n, dirs := h.Counts(); n != 10 || dirs != 21 {
		t.Errorf("%d watches on %d directories", n, dirs)
	}
	for i := range 9 {
		b.put(fmt.Sprintf("d/%d/g", i), "")
		all[i].w.Close()
		all[i].w.Close()
		b.put(fmt.Sprintf("d/%d/h", i), "")
		all[9].until("the other", has(watch.Created, fmt.Sprintf("d/%d/h", i)))
	}
	h.Close()
	<-all[9].w.Done()
	testkit.Eventually(func() bool { return runtime.NumGoroutine() <= routines })
	if n := runtime.NumGoroutine(); n > routines {
		t.Errorf("%d goroutines before, %d now", routines, n)
	}
	noLeak(t, before, 0)
}

// Concurrent closes, revocations and changes cause no deadlock.
func TestWatchEndsConcurrently(t *testing.T) {
	for range 20 {
		b := newBed(t, false, guard.Policy{})
		b.put("d/f", "")
		h := b.hub(watch.HubOptions{})
		x, y := b.watch(h, "d", watch.Options{Recursive: true}), b.watch(h, "", watch.Options{Recursive: true})
		var wg sync.WaitGroup
		wg.Go(x.w.Close)
		wg.Go(func() { b.revoke("code") })
		wg.Go(func() {
			w, err := h.Watch(bg, who, b.at("d").Path, watch.Options{}, func(context.Context, []watch.Event) {})
			if err == nil {
				<-w.Done() // its root ends
			}
		})
		wg.Go(func() { _ = os.WriteFile(b.host("d/g"), nil, 0o644) })
		wg.Wait()
		<-y.w.Done()
		h.Close()
	}
}
