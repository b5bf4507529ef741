package mountpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// patience only turns a hang into a failure; no test passes because of it.
const patience = 30 * time.Second

func waitClosed(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the end of the mount was not reported")
	}
}

func watchPoint(t *testing.T, point string) <-chan struct{} {
	t.Helper()
	in, err := Find(point)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := WatchGone(t.Context(), in.ID)
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

func TestWatchGone(t *testing.T) {
	requireMounts(t)
	tests := []struct {
		name string
		held bool
		end  func(t *testing.T, point string)
	}{
		{"unmounted", false, func(t *testing.T, point string) {
			if err := unix.Unmount(point, 0); err != nil {
				t.Fatal(err)
			}
		}},
		{"detached lazily while held", true, func(t *testing.T, point string) {
			if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		}},
		{"the freed ID given out at once", true, func(t *testing.T, point string) {
			if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			mountTmpfs(t, point)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			point := tempPoint(t, "m", 0)
			serve(t, point, "rootsfs")
			gone := watchPoint(t, point)
			if tt.held {
				f, err := os.Open(filepath.Join(point, "f"))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
			}
			select {
			case <-gone:
				t.Fatal("gone while mounted")
			default:
			}
			tt.end(t, point)
			waitClosed(t, gone)
		})
	}
}

// Neither a change of another mount, which wakes the watch, nor a move of the watched mount ends
// the watch.
func TestWatchGoneOtherChanges(t *testing.T) {
	requireMounts(t)
	point := tempPoint(t, "m", 0)
	mountTmpfs(t, point)
	// The kernel moves a mount only if the mount around it is private.
	if err := unix.Mount("", point, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	sub := func(name string) string { return filepath.Join(point, name) }
	for _, d := range []string{"watched", "moved", "other"} {
		if err := os.Mkdir(sub(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mountTmpfs(t, sub("watched"))
	watched := watchPoint(t, sub("watched"))
	if err := unix.Mount(sub("watched"), sub("moved"), "", unix.MS_MOVE, ""); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		mountTmpfs(t, sub("other"))
		other := watchPoint(t, sub("other"))
		if err := unix.Unmount(sub("other"), 0); err != nil {
			t.Fatal(err)
		}
		waitClosed(t, other)
		select {
		case <-watched:
			t.Fatal("another mount's end was taken for the watched one's")
		default:
		}
	}
	if err := unix.Unmount(sub("moved"), 0); err != nil {
		t.Fatal(err)
	}
	waitClosed(t, watched)
}

func TestWatchGonePresentComparesDevice(t *testing.T) {
	all, err := Mounts()
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	for _, tt := range []struct {
		dev  string
		want bool
	}{{all[0].Dev, true}, {"4095:1048575", false}} {
		table, err := openTable()
		if err != nil {
			t.Fatal(err)
		}
		defer table.Close()
		w := &goneWatch{table: table, id: all[0].ID, dev: tt.dev}
		if got, err := w.present(); err != nil || got != tt.want {
			t.Errorf("device %s: present %v, %v, want %v", tt.dev, got, err, tt.want)
		}
	}
}

func TestWatchGoneNoSuchMount(t *testing.T) {
	before := watchResources(t)
	_, err := WatchGone(t.Context(), 1<<30)
	if !errors.Is(err, ErrNotMounted) {
		t.Fatalf("got %v", err)
	}
	oneLine(t, err, "1073741824")
	if after := watchResources(t); after != before {
		t.Errorf("%d descriptors and goroutines before, %d after", before, after)
	}
}

// A cancelled context ends the goroutine and closes its descriptors, even if it is cancelled at
// once. The channel stays open.
func TestWatchGoneCancel(t *testing.T) {
	all, err := Mounts()
	if err != nil || len(all) == 0 {
		t.Fatal(len(all), err)
	}
	before := watchResources(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				gone, err := WatchGone(ctx, all[0].ID)
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-gone:
					t.Error("closed by the end of the context")
				default:
				}
			}
		})
	}
	wg.Wait()
	after := 0
	if !testkit.Eventually(func() bool { after = watchResources(t); return after == before }) {
		t.Fatalf("%d descriptors and goroutines before, %d after", before, after)
	}
}

// watchResources counts the resources of watches: goroutines of pollTable and descriptors of
// mountinfo.
func watchResources(t *testing.T) int {
	t.Helper()
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	n := strings.Count(string(buf), "mountpoint.pollTable.func1(")
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range dir {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && strings.HasSuffix(target, "/mountinfo") {
			n++
		}
	}
	return n
}
