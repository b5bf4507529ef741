package vfs_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func TestStat(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.tree("d/f=hello", "l => d", "out => $OUT/secret", "fifo|")
		info, p, err := b.t.Stat(bg, who, b.path("l/f"))
		b.must(err)
		if info.Size != 5 || p != b.path("d/f") {
			t.Errorf("%d bytes at %v", info.Size, p)
		}
		for rel, want := range map[string]guard.Kind{"": 0, "l": 0, "out": names.Escaped, "fifo": names.Hidden, "none": names.NotExist, "d/f/x": names.NotDir} {
			_, _, err := b.t.Stat(bg, who, b.path(rel))
			b.wantKind(err, want)
		}
	})
}

// MkdirAll makes the missing directories of a path. It leaves one record if it made any, else none.
func TestMkdirAll(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		out := b.tree("d/", "f=", "l => d", "out => $OUT", "outdir => $OUT/dir", "dangling => no", "fifo|")
		for _, c := range []struct {
			rel, dir string
			made     bool
			kind     guard.Kind
		}{
			{rel: "", dir: ""},
			{rel: "d", dir: "d"},
			{rel: "l", dir: "d"},
			{rel: "new", dir: "new", made: true},
			{rel: "a/b/c", dir: "a/b/c", made: true},
			{rel: "a/b/c", dir: "a/b/c"},
			{rel: "l/x/y", dir: "d/x/y", made: true},
			{rel: "f", kind: names.Exist},
			{rel: "f/x", kind: names.NotDir},
			{rel: "fifo", kind: names.Exist},
			{rel: "dangling", kind: names.NotExist},
			{rel: "dangling/x", kind: names.NotExist},
			{rel: "out/x", kind: names.Escaped},
			{rel: "outdir/x/y", kind: names.Escaped},
			{rel: "e/" + strings.Repeat("n", 255) + "/g", dir: "e/" + strings.Repeat("n", 255) + "/g", made: true},
		} {
			mark := len(b.rec.All())
			info, made, err := b.t.MkdirAll(bg, who, b.path(c.rel), 0o755)
			b.wantKind(err, c.kind)
			if made != c.made {
				t.Errorf("%s: made %v", c.rel, made)
			}
			if c.kind != 0 {
				continue
			}
			if got := len(b.rec.All()) - mark; made && got != 1 || !made && got != 0 {
				t.Errorf("%s: %d records", c.rel, got)
			}
			if st, err := os.Stat(b.host(c.dir)); err != nil || !st.IsDir() || !info.IsDir() {
				t.Errorf("%s: %v", c.rel, err)
			}
		}
		if left, _ := os.ReadDir(out); len(left) != 2 {
			t.Errorf("outside: %v", left)
		}
		if left, _ := os.ReadDir(out + "/dir"); len(left) != 0 {
			t.Errorf("outside: %v", left)
		}
	})
}

func TestMkdirAllQuota(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, Limits: guard.Limits{MaxCreated: 3}})
	created := func(want int64) {
		t.Helper()
		if st, _ := b.reg.Lookup("code"); st.Created != want {
			t.Errorf("created %d, want %d", st.Created, want)
		}
	}
	_, _, err := b.t.MkdirAll(bg, who, b.path("a/b/c/d"), 0o755)
	b.wantErrno(err, unix.EDQUOT)
	if got := b.hostNames(); got != "" {
		t.Errorf("made %q", got)
	}
	created(0)
	_, _, err = b.t.MkdirAll(bg, who, b.path("a/b"), 0o755)
	b.must(err)
	created(2)
	_, _, err = b.t.MkdirAll(bg, who, b.path("a/b"), 0o755)
	b.must(err)
	created(2)
	// Only the new directory counts.
	b.must(os.Chmod(b.host("a/b"), 0o755))
	_, _, err = b.t.MkdirAll(bg, who, b.path("a/"+strings.Repeat("x", 200)), 0o755)
	b.must(err)
	created(3)
}

// Thousands of levels (10,000 in make soak) are made and removed; paths are
// longer than PATH_MAX.
func TestDeepPaths(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	levels := shortOrSoak(2_200, 10_000) // longer than PATH_MAX
	deep := strings.Repeat("d/", levels-1) + "d"
	before := openFDs(t)
	_, made, err := b.t.MkdirAll(bg, who, b.path(deep), 0o755)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	_, err = b.t.CreateFile(bg, who, b.path(deep+"/f"), 0o644, false)
	b.must(err)
	n, err := b.writeRange(deep+"/f", "deep", vfs.WriteOptions{})
	if n != 4 || err != nil {
		t.Fatal(n, err)
	}
	b.must(os.Symlink("d", b.host("l")))
	buf := make([]byte, 8)
	n, _, err = b.readRange(b.path("l"+strings.TrimPrefix(deep, "d")+"/f"), 0, buf, "")
	if err != nil || string(buf[:n]) != "deep" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	b.wantKind(b.t.RemovePath(bg, who, b.path("d"), vfs.RemoveOptions{}), names.NotEmpty)
	b.must(b.t.RemovePath(bg, who, b.path("d"), vfs.RemoveOptions{Recursive: true}))
	if got := b.hostNames(); got != "l" {
		t.Errorf("left %q", got)
	}
	noLeak(t, before, 1)
}

func TestCreateFile(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		out := b.tree("d/", "f=kept", "l => d", "dangling => no", "outnew => $OUT/new", "out => $OUT", "fifo|")
		for _, c := range []struct {
			rel     string
			parents bool
			kind    guard.Kind
		}{
			{rel: "new"},
			{rel: "l/new"},
			{rel: "x/y/new", kind: names.NotExist},
			{rel: "x/y/new", parents: true},
			{rel: "new2", parents: true},
			{rel: "f", kind: names.Exist},
			{rel: "f/x", parents: true, kind: names.Exist},
			{rel: "d", kind: names.Exist},
			{rel: "", kind: names.Exist},
			{rel: "dangling", kind: names.Exist},
			{rel: "outnew", kind: names.Exist},
			{rel: "fifo", kind: names.Exist},
			{rel: "out/new", kind: names.Escaped},
			{rel: "out/a/b", parents: true, kind: names.Escaped},
		} {
			info, err := b.t.CreateFile(bg, who, b.path(c.rel), 0o640, c.parents)
			b.wantKind(err, c.kind)
			if err == nil && (info.Mode&0o777 != 0o640 || info.Size != 0) {
				t.Errorf("%s: %o", c.rel, info.Mode)
			}
		}
		b.contents("f", "kept")
		if left, _ := os.ReadDir(out); len(left) != 2 {
			t.Errorf("outside: %v", left)
		}
	})
}

func TestRenamePath(t *testing.T) {
	eachSource(t, func(t *testing.T, remote bool) {
		for _, c := range []struct {
			name, old, to string
			overwrite     bool
			etag          string
			kind          guard.Kind
			errno         unix.Errno
			at            string // where the file lies afterwards
		}{
			{name: "plain", old: "f", to: "g", at: "g"},
			{name: "into a linked directory", old: "f", to: "l/f", at: "d/f"},
			{name: "out of a linked directory", old: "l/inner", to: "inner", at: "inner"},
			{name: "a link moves itself", old: "flink", to: "moved", at: "moved"},
			{name: "a link that leads out moves itself", old: "out", to: "moved", at: "moved"},
			{name: "a directory", old: "d", to: "e", at: "e/inner"},
			{name: "exists", old: "f", to: "other", kind: names.Exist, at: "f"},
			{name: "overwrite", old: "f", to: "other", overwrite: true, at: "other"},
			{name: "over a link", old: "f", to: "flink", overwrite: true, at: "flink"},
			{name: "over a directory", old: "f", to: "d", overwrite: true, kind: names.IsDir, at: "f"},
			{name: "into itself", old: "d", to: "d/x", kind: names.Invalid, at: "d/inner"},
			{name: "matching etag", old: "f", to: "g", etag: "f", at: "g"},
			{name: "other etag", old: "f", to: "g", etag: "other", kind: names.Conflict, at: "f"},
			{name: "absent", old: "none", to: "g", kind: names.NotExist, at: "f"},
			{name: "the root", old: "", to: "g", kind: names.Permission, at: "f"},
			{name: "onto the root", old: "f", to: "", overwrite: true, kind: names.Permission, at: "f"},
			{name: "outwards", old: "f", to: "outdir/stolen", kind: names.Escaped, at: "f"},
			{name: "inwards", old: "outdir/secret", to: "taken", kind: names.Escaped, at: "f"},
			{name: "hidden", old: "fifo", to: "g", kind: names.Hidden, at: "f"},
			{name: "over a hidden name", old: "f", to: "fifo", overwrite: true, kind: names.Hidden, at: "f"},
			{name: "a nested root", old: "in", to: "g", kind: names.IO, errno: unix.EBUSY, at: "in/x"},
			{name: "into a nested root", old: "f", to: "in/f", kind: names.Invalid, errno: unix.EXDEV, at: "f"},
		} {
			t.Run(c.name, func(t *testing.T) {
				b := newBed(t, remote, guard.Policy{})
				b.tree("f=f", "other=other", "d/inner=", "l => d", "flink => f", "out => $OUT/secret", "outdir => $OUT", "fifo|", "in/x=")
				b.grant("in", "in", guard.Policy{})
				if c.etag != "" {
					c.etag = b.tag(c.etag)
				}
				err := b.t.RenamePath(bg, who, b.path(c.old), b.path(c.to), c.overwrite, c.etag)
				b.wantKind(err, c.kind)
				if c.errno != 0 {
					b.wantErrno(err, c.errno)
				}
				if _, err := os.Lstat(b.host(c.at)); err != nil {
					t.Error(err)
				}
				if err == nil {
					if _, err := os.Lstat(b.host(c.old)); err == nil {
						t.Errorf("%s is still there", c.old)
					}
				}
				if c.overwrite && c.kind == 0 {
					b.contents(c.to, "f")
				}
			})
		}
		b := newBed(t, remote, guard.Policy{})
		b.tree("f=", "sub/")
		b.grant("two", "sub", guard.Policy{})
		two, err := guard.NewPath("two", "f")
		b.must(err)
		b.wantErrno(b.t.RenamePath(bg, who, b.path("f"), two, false, ""), unix.EXDEV)
	})
}

// Operations through the outer root cannot do what a nested root refuses. The same holds for
// operations that need other rights for an existing file than for a new file.
func TestPathsInNestedRoot(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.tree("in/f=kept", "in/g=g", "a=a")
	b.grant("in", "in", guard.Policy{Rights: guard.Read | guard.List | guard.Create | guard.Rename})
	_, err := b.replace("in/f", "x", vfs.IfMatch{})
	b.wantKind(err, names.Permission)
	b.wantKind(second(b.t.BeginUpload(bg, who, b.path("in/f"), vfs.IfMatch{})), names.Permission)
	_, err = b.writeRange("in/f", "", vfs.WriteOptions{Create: true, Truncate: true})
	b.wantKind(err, names.Permission)
	b.wantKind(b.t.RenamePath(bg, who, b.path("in/g"), b.path("in/f"), true, ""), names.Exist)
	b.wantKind(second(b.t.CopyFile(bg, who, b.path("a"), b.path("in/f"), vfs.CopyOptions{Overwrite: true})), names.Permission)
	b.wantKind(b.t.RemovePath(bg, who, b.path("in/f"), vfs.RemoveOptions{}), names.Permission)
	b.contents("in/f", "kept")
	_, err = b.replace("in/new", "x", vfs.IfMatch{})
	b.must(err)
}
