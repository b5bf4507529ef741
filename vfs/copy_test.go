package vfs_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func TestCopyFile(t *testing.T) {
	eachSource(t, func(t *testing.T, remote bool) {
		for _, c := range []struct {
			name, old, to string
			overwrite     bool
			kind          guard.Kind
			errno         unix.Errno
			at            string // where the copy lies
		}{
			{name: "plain", old: "code/f", to: "code/g", at: "g"},
			{name: "links", old: "code/lf", to: "code/l/g", at: "d/g"},
			{name: "exists", old: "code/f", to: "code/other", kind: names.Exist},
			{name: "overwrite", old: "code/f", to: "code/other", overwrite: true, at: "other"},
			{name: "overwrite through a link", old: "code/f", to: "code/lother", overwrite: true, at: "other"},
			{name: "exists as a link", old: "code/f", to: "code/lother", kind: names.Exist},
			{name: "onto itself", old: "code/f", to: "code/lf", overwrite: true, kind: names.Invalid},
			{name: "a directory", old: "code/d", to: "code/g", kind: names.IsDir},
			{name: "onto a directory", old: "code/f", to: "code/d", overwrite: true, kind: names.IsDir},
			{name: "absent", old: "code/none", to: "code/g", kind: names.NotExist},
			{name: "hidden", old: "code/fifo", to: "code/g", kind: names.Hidden},
			{name: "from outside", old: "code/out", to: "code/g", kind: names.Escaped},
			{name: "to outside", old: "code/f", to: "code/outdir/g", kind: names.Escaped},
			{name: "over a file outside", old: "code/f", to: "code/out", overwrite: true, kind: names.Escaped},
			{name: "to another root", old: "code/f", to: "rw/g", at: "rw/g"},
			{name: "from a read-only root", old: "ro/f", to: "code/g", at: "g"},
			{name: "to a read-only root", old: "code/f", to: "ro/g", kind: names.ReadOnly},
			{name: "to a read-only root, through the outer one", old: "code/f", to: "code/ro/g", kind: names.ReadOnly},
			{name: "across roots onto itself", old: "rw/f", to: "code/rw/f", overwrite: true, kind: names.Invalid},
			{name: "to a root nobody approved", old: "code/f", to: "none/g", kind: names.NoConsent},
		} {
			t.Run(c.name, func(t *testing.T) {
				b := newBed(t, remote, guard.Policy{})
				out := b.tree("0640 f=text", "other=other", "d/", "l => d", "lf => f", "lother => other", "out => $OUT/secret",
					"outdir => $OUT", "fifo|", "ro/f=text", "rw/f=text")
				if c.old[:3] != "cod" || c.to[:3] != "cod" || c.name[:2] == "to" {
					b.grant("ro", "ro", guard.Policy{Rights: guard.ReadOnly})
					b.grant("rw", "rw", guard.Policy{})
				}
				old, err := b.reg.Parse("", c.old)
				b.must(err)
				to, err := b.reg.Parse("", c.to)
				if err != nil {
					to, err = guard.NewPath("none", "g")
				}
				b.must(err)
				info, err := b.t.CopyFile(bg, who, old, to, vfs.CopyOptions{Overwrite: c.overwrite})
				b.wantKind(err, c.kind)
				if err == nil {
					b.contents(c.at, "text")
					if info.Size != 4 {
						t.Errorf("%+v", info)
					}
				} else {
					b.contents("other", "other")
				}
				if c.name == "plain" && info.Mode&0o777 != 0o640 {
					t.Errorf("mode %o", info.Mode)
				}
				if got, _ := os.ReadFile(out + "/secret"); string(got) != "secret" {
					t.Errorf("outside: %q", got)
				}
				if left := b.temps(); len(left) != 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		}
	})
}

// A large copy reports its progress, charges what it wrote and leaves one record. A cancelled
// copy stops and leaves no file.
func TestCopyProgress(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	data := make([]byte, 9<<20)
	for i := 0; i < len(data); i += 512 {
		data[i] = byte(rand.IntN(256))
	}
	b.must(os.WriteFile(b.host("big"), data, 0o644))
	var seen []int64
	mark := len(b.rec.All())
	_, err := b.t.CopyFile(bg, who, b.path("big"), b.path("copy"), vfs.CopyOptions{Progress: func(n int64) { seen = append(seen, n) }})
	b.must(err)
	b.oneRecord(mark, "copy", 0, int64(len(data)))
	if got, _ := os.ReadFile(b.host("copy")); !bytes.Equal(got, data) {
		t.Error("the copy differs")
	}
	if len(seen) < 3 || !slices.IsSorted(seen) || seen[len(seen)-1] != int64(len(data)) {
		t.Errorf("progress %v", seen)
	}
	if st, _ := b.reg.Lookup("code"); st.Written != int64(len(data)) {
		t.Errorf("charged %d", st.Written)
	}
	ctx, cancel := context.WithCancel(bg)
	_, err = b.t.CopyFile(ctx, who, b.path("big"), b.path("copy2"), vfs.CopyOptions{Progress: func(int64) { cancel() }})
	b.wantErrno(err, unix.EINTR)
	f := b.open("big", unix.O_RDONLY)
	defer f.Close()
	_, err = b.t.CopyFile(bg, who, b.path("big"), b.path("copy2"), vfs.CopyOptions{Progress: func(int64) {
		go b.reg.Revoke(context.Background(), "code") //nolint:errcheck // the error of the copy shows the outcome
		<-f.Dead()
	}})
	b.wantKind(err, names.Revoked)
	if got := b.hostNames(); got != "big copy" {
		t.Errorf("names %q", got)
	}
}

// R077: a copy that would exceed the quota is refused, and charges nothing.
func TestCopyQuota(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, Limits: guard.Limits{MaxFile: 100, MaxWritten: 150}})
	b.must(os.WriteFile(b.host("f"), make([]byte, 100), 0o644))
	b.must(os.WriteFile(b.host("big"), make([]byte, 101), 0o644))
	_, err := b.t.CopyFile(bg, who, b.path("big"), b.path("g"), vfs.CopyOptions{})
	b.wantErrno(err, unix.EFBIG)
	_, err = b.t.CopyFile(bg, who, b.path("f"), b.path("g"), vfs.CopyOptions{})
	b.must(err)
	_, err = b.t.CopyFile(bg, who, b.path("f"), b.path("h"), vfs.CopyOptions{})
	b.wantErrno(err, unix.EDQUOT)
	if st, _ := b.reg.Lookup("code"); st.Written != 100 || st.Created != 1 {
		t.Errorf("written %d, created %d", st.Written, st.Created)
	}
}

// Holes stay holes, within a root and between two. The copy has the size and the data of the
// source. Its holes take no space, and are not charged.
func TestCopyKeepsHoles(t *testing.T) {
	eachSource(t, func(t *testing.T, remote bool) {
		b := newBed(t, remote, guard.Policy{})
		b.tree("other/")
		b.grant("two", "other", guard.Policy{})
		b.revoke("code") // so that nothing is nested
		b.src = t.TempDir()
		b.grant("code", "", guard.Policy{})
		const size, piece = 1 << 40, 1 << 20
		f, err := os.Create(b.host("sparse"))
		b.must(err)
		defer f.Close()
		for _, off := range []int64{64 << 20, size / 2} {
			_, err = f.WriteAt(bytes.Repeat([]byte("x"), piece), off)
			b.must(err)
		}
		b.must(f.Truncate(size))
		if !sparse(t, f) {
			t.Skip("the file system knows no holes")
		}
		two, err := guard.NewPath("two", "copy")
		b.must(err)
		for _, to := range []guard.Path{b.path("copy"), two} {
			info, err := b.t.CopyFile(bg, who, b.path("sparse"), to, vfs.CopyOptions{})
			b.must(err)
			if info.Size != size || info.Blocks*512 > 8*piece {
				t.Errorf("%v: %d bytes long, %d on the disk", to, info.Size, info.Blocks*512)
			}
			buf := make([]byte, piece+2)
			n, _, err := b.readRange(to, size/2-1, buf, "")
			if want := "\x00" + string(bytes.Repeat([]byte("x"), piece)) + "\x00"; err != nil || string(buf[:n]) != want {
				t.Errorf("%v: wrong contents, %v", to, err)
			}
			if st, _ := b.reg.Lookup(to.Root); st.Written < 2*piece || st.Written > 8*piece {
				t.Errorf("%v: charged %d", to, st.Written)
			}
			b.must(b.t.RemovePath(bg, who, to, vfs.RemoveOptions{}))
		}
	})
}

// sparse reports whether a file has a hole.
func sparse(t *testing.T, f *os.File) bool {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks*512 < st.Size
}

// A file that changes while it is copied is no longer in the state of the etag:
// the copy does not appear.
func TestCopyETag(t *testing.T) {
	eachSource(t, func(t *testing.T, remote bool) {
		for _, to := range []string{"code/copy", "two/copy"} {
			b := newBed(t, remote, guard.Policy{})
			b.tree("f=text", "sub/")
			b.grant("two", "sub", guard.Policy{})
			p, err := b.reg.Parse("", to)
			b.must(err)
			etag := b.tag("f")
			_, err = b.t.CopyFile(bg, who, b.path("f"), p, vfs.CopyOptions{ETag: etag, Progress: func(int64) { b.put("f", "other") }})
			b.wantKind(err, names.Conflict)
			_, err = b.t.CopyFile(bg, who, b.path("f"), p, vfs.CopyOptions{ETag: etag})
			b.wantKind(err, names.Conflict)
			var e *guard.Error
			if !errors.As(err, &e) || e.Path != b.path("f") {
				t.Errorf("%v is not about the file that changed", err)
			}
			_, err = b.t.CopyFile(bg, who, b.path("f"), p, vfs.CopyOptions{ETag: b.tag("f")})
			b.must(err)
		}
	})
}
