package vfs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// bindOver mounts a file from outside the root over a file in it.
func (b *bed) bindOver(outside, rel string) {
	b.Helper()
	b.put(rel, "covered")
	if err := unix.Mount(outside, b.host(rel), "", unix.MS_BIND, ""); err != nil {
		b.Skipf("cannot bind-mount: %v", err)
	}
	b.Cleanup(func() { _ = unix.Unmount(b.host(rel), unix.MNT_DETACH) })
}

// A file that is mounted over a file of the root counts as outside for every operation, unless
// the grant allows other file systems. Bare calls would reach it.
func TestFileMountedOverFileIsOutside(t *testing.T) {
	for name, p := range map[string]guard.Policy{
		"own file system only":   {},
		"other file systems too": {OtherFileSystems: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, false, p)
			outside := filepath.Join(t.TempDir(), "outside.txt")
			b.must(os.WriteFile(outside, []byte("secret"), 0o644))
			b.bindOver(outside, "d/bm")
			b.contents("d/bm", "secret") // without rootsfs, the outside file is reached
			want := names.Escaped
			if p.OtherFileSystems {
				want = 0
			}
			dir, at := b.at("d"), b.at("d/bm")
			for _, flags := range []int{unix.O_RDONLY, unix.O_WRONLY, unix.O_RDWR, unix.O_RDWR | unix.O_TRUNC | unix.O_APPEND} {
				f, _, err := b.t.Open(bg, who, at, flags)
				b.wantKind(err, want)
				if err == nil {
					f.Close()
				}
			}
			if want != 0 {
				b.contents("d/bm", "secret")
			}
			size := int64(1)
			for call, err := range map[string]error{
				"lookup":   second(b.t.Lookup(bg, who, dir, "bm")),
				"lstat":    second(b.t.Lstat(bg, who, at)),
				"truncate": second(b.t.Setattr(bg, who, at, nil, vfs.Attrs{Size: &size})),
				"setxattr": b.t.Setxattr(bg, who, at, nil, "user.x", []byte("1"), 0),
			} {
				if got := names.Reason(err); (want != 0 || err != nil) && got != want {
					t.Errorf("%s: %v, want %v", call, err, want)
				}
			}
			// Even if other file systems are allowed, a mount point cannot be replaced, moved
			// or removed.
			_, rep := b.t.Replace(bg, who, at, strings.NewReader("x"), vfs.IfMatch{})
			for call, err := range map[string]error{
				"replace": rep,
				"unlink":  b.t.Unlink(bg, who, dir, "bm"),
				"rename":  b.t.Rename(bg, who, dir, "bm", dir, "other", 0),
			} {
				if err == nil {
					t.Errorf("%s returned no error", call)
				}
			}
			f, _, made, err := b.t.Create(bg, who, dir, "bm", unix.O_RDWR, 0o644)
			if err == nil {
				f.Close()
			}
			if b.wantKind(err, want); made {
				t.Error("Create reports a new file, although the name was in use")
			}
		})
	}
}

// Lookup in an open directory refuses a file on which another file is mounted, too.
func TestMountedFileInOpenDirectory(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	outside := filepath.Join(t.TempDir(), "outside.txt")
	b.must(os.WriteFile(outside, []byte("secret"), 0o644))
	b.bindOver(outside, "d/bm")
	b.put("d/plain", "")
	d, err := b.t.Opendir(bg, who, b.at("d"))
	b.must(err)
	defer d.Close()
	b.must(second(d.Lookup(bg, who, b.at("d"), "plain")))
	b.wantKind(second(d.Lookup(bg, who, b.at("d"), "bm")), names.Escaped)
}

// If the file of a single-file root becomes a mount point, it is outside as well.
func TestMountedFileRoot(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	outside := filepath.Join(t.TempDir(), "outside.txt")
	b.must(os.WriteFile(outside, []byte("secret"), 0o644))
	b.put("d/one", "mine")
	b.grant("one", "d/one", guard.Policy{})
	p, err := guard.NewPath("one", "")
	b.must(err)
	f, _, err := b.t.Open(bg, who, vfs.At{Path: p}, unix.O_RDONLY)
	b.must(err)
	f.Close()
	b.bindOver(outside, "d/one")
	b.wantKind(second(b.t.Lstat(bg, who, vfs.At{Path: p})), names.Escaped)
	_, _, err = b.t.Open(bg, who, vfs.At{Path: p}, unix.O_RDONLY)
	b.wantKind(err, names.Escaped)
}

// A directory that is a mount point is listed and entered if the grant allows other file systems,
// as by a look-up and through the mount. Otherwise it is left out.
func TestListOfMountPoint(t *testing.T) {
	for name, p := range map[string]guard.Policy{
		"own file system only":   {},
		"other file systems too": {OtherFileSystems: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, false, p)
			b.put("d/m/covered", "x")
			b.put("d/y", "y")
			if err := unix.Mount("none", b.host("d/m"), "tmpfs", 0, ""); err != nil {
				t.Skipf("cannot mount: %v", err)
			}
			t.Cleanup(func() { _ = unix.Unmount(b.host("d/m"), unix.MNT_DETACH) })
			b.put("d/m/in", "x")
			want := "d/y"
			if p.OtherFileSystems {
				want = "d/m d/m/in d/y"
			}
			for _, o := range []vfs.ListOptions{{Recursive: true}, {Recursive: true, NoInfo: true}} {
				page, err := b.t.List(bg, who, b.at("d").Path, o)
				b.must(err)
				var got []string
				for _, e := range page.Entries {
					got = append(got, e.Path.Rel())
				}
				slices.Sort(got)
				if strings.Join(got, " ") != want {
					t.Errorf("without attributes %v: %q, want %s", o.NoInfo, got, want)
				}
			}
		})
	}
}
