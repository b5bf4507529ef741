package vfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func TestRemovePath(t *testing.T) {
	eachSource(t, func(t *testing.T, remote bool) {
		for _, c := range []struct {
			name, rel string
			recursive bool
			etag      string
			kind      guard.Kind
			errno     unix.Errno
			gone      string
		}{
			{name: "file", rel: "f", gone: "f"},
			{name: "file, recursively", rel: "f", recursive: true, gone: "f"},
			{name: "empty directory", rel: "empty", gone: "empty"},
			{name: "full directory", rel: "d", kind: names.NotEmpty},
			{name: "full directory, recursively", rel: "d", recursive: true, gone: "d"},
			{name: "link", rel: "l", gone: "l"},
			{name: "link, recursively", rel: "l", recursive: true, gone: "l"},
			{name: "link that leads out, recursively", rel: "outdir", recursive: true, gone: "outdir"},
			{name: "behind a link", rel: "l/f", gone: "d/f"},
			{name: "behind a link that leads out", rel: "outdir/secret", kind: names.Escaped},
			{name: "behind a link that leads out, recursively", rel: "outdir/dir", recursive: true, kind: names.Escaped},
			{name: "absent", rel: "none", recursive: true, kind: names.NotExist},
			{name: "etag", rel: "f", etag: "f", gone: "f"},
			{name: "other etag", rel: "f", etag: "d/f", kind: names.Conflict},
			{name: "etag of a directory", rel: "d", etag: "d", recursive: true, gone: "d"},
			{name: "the root", rel: "", recursive: true, kind: names.Permission},
			{name: "a nested root", rel: "nest/in", recursive: true, kind: names.IO, errno: unix.EBUSY},
			{name: "a directory with a nested root", rel: "nest", recursive: true, kind: names.Permission},
			{name: "hidden", rel: "fifo", recursive: true, kind: names.Hidden},
			{name: "a directory with a hidden name", rel: "h", recursive: true, kind: names.NotEmpty, gone: "h/f"},
		} {
			t.Run(c.name, func(t *testing.T) {
				b := newBed(t, remote, guard.Policy{})
				out := b.tree("f=", "empty/", "d/f=", "d/sub/deep/f=", "d/sub/l => ../../f", "d/out => $OUT", "d/sub/.hidden=", "l => d",
					"outdir => $OUT", "nest/in/x=", "nest/first=", "fifo|", "h/f=", "h/sub/fifo|")
				b.grant("in", "nest/in", guard.Policy{})
				if c.etag != "" {
					c.etag = b.tag(c.etag)
				}
				before := openFDs(t)
				err := b.t.RemovePath(bg, who, b.path(c.rel), vfs.RemoveOptions{Recursive: c.recursive, ETag: c.etag})
				b.wantKind(err, c.kind)
				noLeak(t, before, 1)
				if c.errno != 0 {
					b.wantErrno(err, c.errno)
				}
				if c.gone != "" {
					if _, err := os.Lstat(b.host(c.gone)); err == nil {
						t.Errorf("%s is still there", c.gone)
					}
				}
				for _, p := range []string{out + "/secret", out + "/dir", b.host("nest/in/x"), b.host("nest/first"), b.host("fifo"), b.host("h/sub/fifo")} {
					if _, err := os.Lstat(p); err != nil {
						t.Error(err)
					}
				}
				if c.rel != "f" {
					if _, err := os.Lstat(b.host("f")); err != nil {
						t.Error(err)
					}
				}
			})
		}
	})
}

// One call removes a directory with many files and many subdirectories. The call leaves one record.
func TestRemoveWide(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		for i := range 700 {
			b.must(os.MkdirAll(b.host(fmt.Sprintf("d/dir-%04d/sub", i)), 0o755))
			b.must(unix.Mknod(b.host(fmt.Sprintf("d/file-%04d", i)), unix.S_IFREG|0o644, 0))
		}
		mark := len(b.rec.All())
		b.must(b.t.RemovePath(bg, who, b.path("d"), vfs.RemoveOptions{Recursive: true}))
		b.oneRecord(mark, "remove", 0, 0)
		if got := b.hostNames(); got != "" {
			t.Errorf("left %q", got)
		}
	})
}

// The error of a removal that stops has the path at which the removal stopped, and the number of
// names that it has removed before.
func TestRemoveStops(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.tree("d/a/f=", "d/a/g=", "d/a/fifo|")
	err := b.t.RemovePath(bg, who, b.path("d"), vfs.RemoveOptions{Recursive: true})
	b.wantKind(err, names.NotEmpty)
	var p *vfs.Partial
	if !errors.As(err, &p) || p.Removed != 2 || p.At != b.path("d/a") || p.Kind != names.NotEmpty {
		t.Errorf("%v: %+v", err, p)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	b.tree("e/f=")
	b.wantErrno(b.t.RemovePath(ctx, who, b.path("e"), vfs.RemoveOptions{Recursive: true}), unix.EINTR)
	b.contents("e/f", "")
}

// Other file systems are not entered, whether or not the grant lets resolution
// cross into them.
func TestRemoveStopsAtMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	for _, other := range []bool{false, true} {
		b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, OtherFileSystems: other})
		b.tree("d/m/")
		outside := t.TempDir()
		b.must(os.WriteFile(outside+"/precious", nil, 0o644))
		if err := unix.Mount(outside, b.host("d/m"), "", unix.MS_BIND, ""); err != nil {
			t.Skip("no bind mount can be made: ", err)
		}
		err := b.t.RemovePath(bg, who, b.path("d"), vfs.RemoveOptions{Recursive: true})
		b.wantErrno(err, unix.EXDEV)
		b.must(unix.Unmount(b.host("d/m"), unix.MNT_DETACH))
		if _, err := os.Stat(outside + "/precious"); err != nil {
			t.Error(err)
		}
	}
}

// R064: a directory is moved out of the root while a removal empties it. If the moved directory has
// names left, the removal returns an error. The files lie one or 60 levels below.
func TestRemoveOfMovedDirectory(t *testing.T) {
	for _, depth := range []int{1, 60} {
		b := newBed(t, false, guard.Policy{})
		rel := "d"
		for range depth {
			rel += "/d"
		}
		b.must(os.MkdirAll(b.host(rel), 0o755))
		for i := range 1000 {
			b.must(unix.Mknod(b.host(fmt.Sprintf("%s/%04d", rel, i)), unix.S_IFREG|0o644, 0))
		}
		b.put("d/precious", "")
		away := b.TempDir() + "/away"
		done := make(chan error)
		go func() { done <- b.t.RemovePath(bg, who, b.path("d"), vfs.RemoveOptions{Recursive: true}) }()
		for {
			// The removal runs at the same time, so it may have removed any number of files when
			// the directory is moved.
			if err := os.Rename(b.host("d"), away); err == nil {
				break
			}
			if _, err := os.Lstat(b.host("d")); err != nil {
				break // the removal was faster
			}
		}
		err := <-done
		left, _ := os.ReadDir(away)
		if err == nil && len(left) > 0 {
			t.Errorf("depth %d: %v is left, and no error", depth, left)
		}
	}
}

// A removal of many names reports its progress.
func TestRemovePathProgress(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.tree("d/a=1", "d/b/c=2", "d/e/")
	var seen []int64
	b.must(b.t.RemovePath(bg, who, b.path("d"), vfs.RemoveOptions{Recursive: true, Progress: func(n int64) { seen = append(seen, n) }}))
	if want := []int64{1, 2, 3, 4, 5}; !slices.Equal(seen, want) {
		t.Errorf("progress %v, want %v", seen, want)
	}
}
