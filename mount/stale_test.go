//go:build linux

package mount

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// R092: each refusal names the path and what to do.
func TestCheckMountpointR092(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sub := func(name string) string { return filepath.Join(base, name) }
	for _, d := range []string{"empty", "full", "100%s d"} {
		if err := os.Mkdir(sub(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"file", "full/x"} {
		if err := os.WriteFile(sub(f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"link": "empty", "dangling": "nowhere", "tofile": "file", "loop": "loop"} {
		if err := os.Symlink(target, sub(link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		path, want string
		err        error
		says       []string
	}{
		{path: "empty", want: "empty"},
		{path: "empty/", want: "empty"},
		{path: "link", want: "empty"},
		{path: "100%s d", want: "100%s d"},
		{path: "absent", err: fs.ErrNotExist, says: []string{sub("absent") + " does not exist", "mkdir -p " + sub("absent")}},
		{path: "100%s d/x", err: fs.ErrNotExist, says: []string{"'" + sub("100%s d/x") + "' does not exist"}},
		{path: "absent/deeper", err: fs.ErrNotExist, says: []string{"mkdir -p " + sub("absent/deeper")}},
		{path: "dangling", err: fs.ErrNotExist, says: []string{"mkdir -p " + sub("nowhere")}},
		{path: "file", err: unix.ENOTDIR, says: []string{sub("file") + " is not a directory"}},
		{path: "tofile", err: unix.ENOTDIR, says: []string{sub("file") + " is not a directory"}},
		{path: "file/x", err: unix.ENOTDIR, says: []string{"is not a directory"}},
		{path: "full", err: unix.ENOTEMPTY, says: []string{sub("full") + " is not empty", "choose an empty"}},
		{path: "loop", err: unix.ELOOP, says: []string{"link that never ends"}},
		{path: strings.Repeat("n", 300), err: unix.ENAMETOOLONG, says: []string{"cannot be used"}},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			got, err := CheckMountpoint(base + "/" + tt.path)
			if tt.err == nil {
				if err != nil || got != sub(tt.want) {
					t.Fatalf("got %q, %v", got, err)
				}
				return
			}
			if !errors.Is(err, tt.err) || got != "" {
				t.Errorf("got %q, %v, want %v", got, err, tt.err)
			}
			oneLine(t, err, tt.says...)
		})
	}
}

// What only some causes can give is checked on the sentence alone.
func TestMountpointErrorSentences(t *testing.T) {
	for _, tt := range []struct {
		err  error
		says string
	}{
		{unix.EACCES, "is not yours to use"},
		{errNotOwned, "mkdir '/a b/rootsfs'"},
		{unix.EROFS, "read-only file system"},
		{os.ErrDeadlineExceeded, "does not answer"},
		{unix.EIO, "cannot be used: input/output error"},
	} {
		err := mountpointError("/a b", tt.err)
		oneLine(t, err, "mountpoint '/a b' ", tt.says)
		if !errors.Is(err, tt.err) {
			t.Errorf("%v does not wrap %v", err, tt.err)
		}
	}
}

func TestBoundedGivesUp(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	got, err := bounded(time.Millisecond, func() (int, error) { <-release; return 1, nil })
	if !errors.Is(err, os.ErrDeadlineExceeded) || got != 0 {
		t.Errorf("got %d, %v", got, err)
	}
}

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
	if Stale(point) {
		t.Error("alive, and called stale")
	}
	_, err := CheckMountpoint(point)
	oneLine(t, err, "a session is mounted there", "rootsfs unmount '"+point+"'")
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("alive: %v", err)
	}
	oneLine(t, ClearStale(point), "is alive")
	if _, err := Find(point); err != nil {
		t.Fatalf("ClearStale took a live mount away: %v", err)
	}

	kill(cmd)
	if !Stale(point) {
		t.Error("not called stale")
	}
	for _, p := range []string{point, point + "/x"} {
		_, err := CheckMountpoint(p)
		oneLine(t, err, "daemon is gone", "rootsfs unmount '"+point+"'")
		if !errors.Is(err, ErrStale) {
			t.Errorf("%s: %v", p, err)
		}
	}
	// Two more layers of the dead file system: all are taken off.
	for range 2 {
		if err := unix.Mount(point, point, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := ClearStale(point); err != nil {
		t.Fatal(err)
	}
	if got, err := CheckMountpoint(point); err != nil || got != point {
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
			_, err := CheckMountpoint(point)
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

func TestMountOwner(t *testing.T) {
	for opts, want := range map[string]int{
		"rw,user_id=1000,group_id=7": 1000, "user_id=0": 0, "rw": -1, "rw,user_id=x": -1, "rw,xuser_id=1": -1, "": -1,
	} {
		got, err := mountOwner(Info{Point: "/m", SuperOptions: opts})
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v", opts, got, err)
		}
	}
}
