package mountpoint

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

func TestStaleAndClear(t *testing.T) {
	requireMounts(t)
	point := tempPoint(t, "a mount", 0)
	if err := ClearStale(point); !errors.Is(err, ErrNotMounted) {
		t.Errorf("nothing mounted: %v", err)
	}
	cmd := serve(t, point, "rootsfs")
	if _, err := os.Stat(point); err != nil { // the kernel now holds attributes for an hour
		t.Fatal(err)
	}
	if IsStale(point) {
		t.Error("alive, and called stale")
	}
	_, err := Check(point)
	oneLine(t, err, "a session is mounted there", "rootsfs unmount "+names.ShellWord(point))
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("alive: %v", err)
	}
	oneLine(t, ClearStale(point), "is alive")
	if _, err := Find(point); err != nil {
		t.Fatalf("ClearStale took a live mount away: %v", err)
	}

	kill(cmd)
	if !IsStale(point) {
		t.Error("not called stale")
	}
	for _, p := range []string{point, point + "/x"} {
		_, err := Check(p)
		oneLine(t, err, "daemon is gone", "rootsfs unmount "+names.ShellWord(point))
		if !errors.Is(err, ErrStale) {
			t.Errorf("%s: %v", p, err)
		}
	}
	// Two bind mounts cover the dead mount with two more layers of its file system. ClearStale
	// unmounts all three.
	for range 2 {
		if err := unix.Mount(point, point, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := ClearStale(point); err != nil {
		t.Fatal(err)
	}
	if got, err := Check(point); err != nil || got != point {
		t.Errorf("after clearing: %q, %v", got, err)
	}
}

func TestClearStaleLeavesOthersAlone(t *testing.T) {
	requireMounts(t)
	tests := []struct {
		name, says string
		mount      func(t *testing.T, point string)
	}{
		{"another type", "tmpfs", func(t *testing.T, point string) { mountTmpfs(t, point) }},
		{"another FUSE file system, stale", "fuse.otherfs (source 'a source')", func(t *testing.T, point string) {
			kill(serve(t, point, "otherfs"))
			_, err := Check(point)
			oneLine(t, err, "daemon is gone", "(fuse.otherfs): fusermount3 -u -z "+point)
		}},
		{"another user's, stale", "the user with id 65534", func(t *testing.T, point string) {
			mountDead(t, point, nobody)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			point := tempPoint(t, "m", nobody)
			tt.mount(t, point)
			before, err := Find(point)
			if err != nil {
				t.Fatal(err)
			}
			err = ClearStale(point)
			oneLine(t, err, point, tt.says, "left alone")
			if !errors.Is(err, ErrNotOurs) {
				t.Errorf("got %v", err)
			}
			if after, err := Find(point); err != nil || after != before {
				t.Errorf("mount %+v became %+v, %v", before, after, err)
			}
		})
	}
}
