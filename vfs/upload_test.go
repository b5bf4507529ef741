package vfs_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func (b *bed) begin(rel string, cond vfs.IfMatch) *vfs.Upload {
	b.Helper()
	if cond.Mode == 0 {
		cond.Mode = 0o644
	}
	u, err := b.t.BeginUpload(bg, who, b.path(rel), cond)
	b.must(err)
	return u
}

func piece(u *vfs.Upload, text string, off int64) error {
	return second(u.WriteAt(bg, who, []byte(text), off))
}

// hostNames returns the names in the root's directory on the host.
func (b *bed) hostNames() string {
	b.Helper()
	entries, err := os.ReadDir(b.src)
	b.must(err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}

// R074: an upload has no name until it is complete, and then the whole file appears at once. If
// it is aborted, or its root ends, no file appears.
func TestUpload(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.tree("old=before", "l => old", "d/")
		b.must(os.Chmod(b.host("old"), 0o640))
		for _, c := range []struct{ asked, path string }{{"new", "new"}, {"old", "old"}, {"l", "old"}, {"d/x", "d/x"}} {
			names0 := b.hostNames()
			u := b.begin(c.asked, vfs.IfMatch{Mode: 0o604})
			if u.Path() != b.path(c.path) {
				t.Errorf("%s goes to %v", c.asked, u.Path())
			}
			b.must(piece(u, "world", 6))
			b.must(piece(u, "hello ", 0))
			b.must(piece(u, "W", 6))
			if u.Size() != 11 || b.hostNames() != names0 {
				t.Errorf("size %d, names %q", u.Size(), b.hostNames())
			}
			mark := len(b.rec.All())
			info, err := u.Commit(bg, who)
			b.must(err)
			b.oneRecord(mark, "commit", 0, 11)
			b.contents(c.path, "hello World")
			if info.Size != 11 || vfs.ETag(&info) != b.tag(c.path) {
				t.Errorf("%+v", info)
			}
			u.Abort() // this has no effect any more
			b.wantKind(piece(u, "x", 0), names.Conflict)
			_, err = u.Commit(bg, who)
			b.wantKind(err, names.Conflict)
		}
		if st, _ := os.Stat(b.host("new")); st.Mode().Perm() != 0o604 {
			t.Errorf("mode of the new file %v", st.Mode())
		}
		if st, _ := os.Stat(b.host("old")); st.Mode().Perm() != 0o640 {
			t.Errorf("mode of the old file %v", st.Mode())
		}
		empty := b.begin("empty", vfs.IfMatch{})
		b.must(second(empty.Commit(bg, who)))
		b.contents("empty", "")

		u := b.begin("gone", vfs.IfMatch{})
		b.must(piece(u, "x", 0))
		u.Abort()
		u.Abort()
		dead := b.begin("dead", vfs.IfMatch{})
		b.must(piece(dead, "x", 0))
		b.revoke("code")
		b.wantKind(piece(dead, "x", 0), names.Revoked)
		b.wantKind(second(dead.Commit(bg, who)), names.Revoked)
		b.grant("code", "", guard.Policy{})
		b.wantKind(piece(dead, "x", 0), names.Revoked)
		b.wantKind(second(dead.Commit(bg, who)), names.Revoked)
		if got := b.hostNames(); got != "d empty l new old" {
			t.Errorf("names %q", got)
		}
	})
}

// Pieces may come in any order. The error for a gap has its position.
func TestUploadPieces(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	for _, c := range []struct {
		pieces [][2]int64
		gap    string
	}{
		{nil, ""},
		{[][2]int64{{0, 5}, {5, 9}}, ""},
		{[][2]int64{{5, 9}, {0, 5}}, ""},
		{[][2]int64{{0, 2}, {4, 6}, {8, 10}, {1, 9}}, ""},
		{[][2]int64{{4, 6}, {4, 6}, {0, 4}}, ""},
		{[][2]int64{{1, 3}}, "bytes 0 to 1 "},
		{[][2]int64{{0, 2}, {4, 6}, {3, 4}}, "bytes 2 to 3 "},
	} {
		u := b.begin("f", vfs.IfMatch{})
		for _, p := range c.pieces {
			b.must(piece(u, strings.Repeat("x", int(p[1]-p[0])), p[0]))
		}
		_, err := u.Commit(bg, who)
		if c.gap == "" {
			b.must(err)
			continue
		}
		b.wantKind(err, names.Invalid)
		if err == nil || !strings.Contains(err.Error(), c.gap) {
			t.Errorf("%v: %v, want %q", c.pieces, err, c.gap)
		}
		b.must(piece(u, strings.Repeat("x", 16), 0)) // the upload is still open
		b.must(second(u.Commit(bg, who)))
	}
	u := b.begin("g", vfs.IfMatch{})
	defer u.Abort()
	b.wantKind(piece(u, "x", -1), names.Invalid)
	b.wantKind(piece(u, "xx", 1<<63-2), names.Invalid)
	for i := range int64(4096) {
		b.must(piece(u, "x", 2*i))
	}
	b.wantKind(piece(u, "x", 10_000), names.Invalid)
	b.must(piece(u, "x", 1)) // a piece that closes a gap is accepted
	if u.Size() != 8191 {
		t.Errorf("size %d", u.Size())
	}
}

// Pieces may be written concurrently.
func TestUploadConcurrently(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		u := b.begin("f", vfs.IfMatch{NoDurable: true})
		var want strings.Builder
		for i := range 200 {
			fmt.Fprintf(&want, "%05d", i)
		}
		var wg sync.WaitGroup
		next := make(chan int)
		for range 4 {
			wg.Go(func() {
				for i := range next {
					if err := piece(u, want.String()[i*5:i*5+5], int64(i*5)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for _, i := range rand.Perm(200) {
			next <- i
		}
		close(next)
		wg.Wait()
		b.must(second(u.Commit(bg, who)))
		b.contents("f", want.String())
	})
}

// R073: an upload fails if the file was changed meanwhile. A name has at most one upload at a
// time.
func TestUploadConflicts(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.tree("f=old", "sub/", "l => f", "dl => sub")
		commitAfter := func(name, rel string, change func(), cond vfs.IfMatch, want guard.Kind) {
			t.Run(name, func(t *testing.T) {
				u := b.begin(rel, cond)
				b.must(piece(u, "upload", 0))
				change()
				_, err := u.Commit(bg, who)
				b.wantKind(err, want)
				u.Abort()
				v, err := b.t.BeginUpload(bg, who, b.path(rel), vfs.IfMatch{Mode: 0o644})
				b.must(err) // the name is free again
				v.Abort()
			})
		}
		commitAfter("replaced", "f", func() { b.must(second(b.replace("f", "other", vfs.IfMatch{}))) }, vfs.IfMatch{}, names.Conflict)
		b.contents("f", "other")
		commitAfter("written on the host", "f", func() { b.put("f", "host") }, vfs.IfMatch{}, names.Conflict)
		commitAfter("removed", "f", func() { b.must(os.Remove(b.host("f"))) }, vfs.IfMatch{}, names.Conflict)
		commitAfter("created", "f", func() { b.put("f", "made") }, vfs.IfMatch{}, names.Conflict)
		commitAfter("created meanwhile, with MustBeNew", "n", func() { b.put("n", "x") }, vfs.IfMatch{MustBeNew: true}, names.Exist)
		commitAfter("the directory was exchanged", "sub/x", func() {
			b.must(os.Rename(b.host("sub"), b.host("sub2")))
			b.must(os.Mkdir(b.host("sub"), 0o755))
		}, vfs.IfMatch{}, names.Conflict)

		b.wantKind(second(b.t.BeginUpload(bg, who, b.path("f"), vfs.IfMatch{MustBeNew: true})), names.Exist)
		b.wantKind(second(b.t.BeginUpload(bg, who, b.path("f"), vfs.IfMatch{ETag: "x"})), names.Conflict)
		b.wantKind(second(b.t.BeginUpload(bg, who, b.path("none"), vfs.IfMatch{MustExist: true})), names.NotExist)
		b.wantKind(second(b.t.BeginUpload(bg, who, b.path("sub"), vfs.IfMatch{})), names.IsDir)

		u := b.begin("f", vfs.IfMatch{})
		b.wantKind(second(b.t.BeginUpload(bg, who, b.path("f"), vfs.IfMatch{})), names.Conflict)
		b.wantKind(second(b.t.BeginUpload(bg, who, b.path("l"), vfs.IfMatch{})), names.Conflict)
		v := b.begin("sub/f", vfs.IfMatch{})
		b.wantKind(second(b.t.BeginUpload(bg, who, b.path("dl/f"), vfs.IfMatch{})), names.Conflict)
		v.Abort()
		b.must(second(u.Commit(bg, who)))
		b.begin("f", vfs.IfMatch{}).Abort()
	})
}

// R077: pieces are charged as they come, and the name when the file gets it.
func TestUploadQuota(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, Limits: guard.Limits{MaxFile: 10, MaxWritten: 15, MaxCreated: 1}})
	u := b.begin("f", vfs.IfMatch{})
	b.must(piece(u, "1234567890", 0))
	b.wantErrno(piece(u, "x", 10), unix.EFBIG)
	b.wantErrno(piece(u, "123456", 0), unix.EDQUOT)
	b.must(second(u.Commit(bg, who)))
	if st, _ := b.reg.Lookup("code"); st.Written != 10 || st.Created != 1 {
		t.Errorf("written %d, created %d", st.Written, st.Created)
	}
	v := b.begin("g", vfs.IfMatch{})
	b.wantErrno(second(v.Commit(bg, who)), unix.EDQUOT)
	v.Abort()
	if got := b.hostNames(); got != "f" {
		t.Errorf("names %q", got)
	}
}

// R110: if a read-only root is granted during an upload, and the file would lie in this root, the
// next piece is refused. An upload beside the nested root continues.
func TestUploadWhileRightsChange(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.tree("in/", "f=x")
	beside, inside := b.begin("f", vfs.IfMatch{}), b.begin("in/g", vfs.IfMatch{})
	b.grant("in", "in", guard.Policy{Rights: guard.ReadOnly})
	b.must(piece(beside, "beside", 0))
	b.wantKind(piece(inside, "inside", 0), names.ReadOnly)
	b.wantKind(second(inside.Commit(bg, who)), names.ReadOnly)
	inside.Abort()
	b.must(second(beside.Commit(bg, who)))
	b.contents("f", "beside")
	if _, err := os.Stat(b.host("in/g")); err == nil {
		t.Error("a file was created in a read-only root")
	}
}
