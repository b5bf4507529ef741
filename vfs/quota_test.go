package vfs_test

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// R077, R193: appends fill a file as far as MaxFile allows and never beyond, even if many appends
// run at once, through WriteAt and WriteRange.
func TestConcurrentAppendsStayWithinMaxFile(t *testing.T) {
	for _, remote := range []bool{false, true} {
		b := newBed(t, remote, guard.Policy{Rights: guard.ReadWrite, Limits: guard.Limits{MaxFile: 1003}})
		b.put("log", "")
		var wg sync.WaitGroup
		var sum atomic.Int64
		for w := range 6 {
			wg.Go(func() {
				f := b.open("log", unix.O_WRONLY|unix.O_APPEND)
				defer f.Close()
				for i := range 100 {
					n, err := 0, error(nil)
					if (w+i)%2 == 0 {
						n, err = f.WriteAt(bg, who, [][]byte{[]byte("seven..")}, 0, vfs.WriteAtOptions{})
					} else {
						n, _, err = b.t.WriteRange(bg, who, b.at("log").Path, []byte("seven.."), vfs.WriteOptions{Append: true})
					}
					sum.Add(int64(n))
					var ge *guard.Error
					if err != nil && (!errors.As(err, &ge) || ge.Kind != names.Quota || ge.Limit != 1003) {
						t.Errorf("%v", err)
					}
				}
			})
		}
		wg.Wait()
		info, err := b.t.Lstat(bg, who, b.at("log"))
		b.must(err)
		if info.Size != 1001 || sum.Load() != 1001 {
			t.Errorf("remote %v: %d bytes in the file, %d written, want 1001", remote, info.Size, sum.Load())
		}
	}
}

// R193: every way to write is charged to the root and to the subject. An operation that fails,
// or finds the name taken, is refunded. After each operation, the root and the subject have the
// same sums: the bytes that were written or allocated, and the names that were created.
func TestEveryWayToWriteIsCharged(t *testing.T) {
	for _, remote := range []bool{false, true} {
		b := newBed(t, remote, guard.Policy{Rights: guard.ReadWrite})
		b.reg.SetQuotas(map[guard.Subject]ledger.Quota{"s": {MaxWritten: 1 << 20, MaxCreated: 1000, MaxFile: 1 << 16}})
		c := who
		c.Subject = "s"
		var bytesWant, namesWant int64
		step := func(what string, wrote, made int64, want guard.Kind, err error) {
			t.Helper()
			if want == 0 && err != nil || want != 0 && !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
			bytesWant, namesWant = bytesWant+wrote, namesWant+made
			u := b.reg.Usage()[0]
			if st, _ := b.reg.Lookup("code"); u.Written != bytesWant || u.Created != namesWant || st.Written != bytesWant || st.Created != namesWant {
				t.Errorf("%s: the subject has %d bytes and %d names, the root %d and %d; want %d and %d",
					what, u.Written, u.Created, st.Written, st.Created, bytesWant, namesWant)
			}
		}
		text := bytes.Repeat([]byte("x"), 100)
		p := func(rel string) guard.Path { return b.at(rel).Path }
		replace := func(rel string, text []byte, cond vfs.IfMatch) error {
			cond.Mode = 0o644
			return second(b.t.Replace(bg, c, b.at(rel), bytes.NewReader(text), cond))
		}
		step("replace, new", 100, 1, 0, replace("a", text, vfs.IfMatch{}))
		step("replace, old", 100, 0, 0, replace("a", text, vfs.IfMatch{}))
		step("replace, conflict", 0, 0, names.Conflict, replace("a", text, vfs.IfMatch{ETag: "no"}))
		step("replace, too large", 0, 0, names.Quota, replace("a", make([]byte, 1<<17), vfs.IfMatch{}))
		_, _, err := b.t.WriteRange(bg, c, p("a"), text, vfs.WriteOptions{Off: 50})
		step("range", 100, 0, 0, err)
		_, _, err = b.t.WriteRange(bg, c, p("b"), text, vfs.WriteOptions{Create: true, Mode: 0o644})
		step("range, new", 100, 1, 0, err)
		step("copy", 100, 1, 0, second(b.t.CopyFile(bg, c, p("b"), p("c"), vfs.CopyOptions{})))
		step("copy, exists", 0, 0, names.Exist, second(b.t.CopyFile(bg, c, p("b"), p("c"), vfs.CopyOptions{})))
		step("mkdir", 0, 1, 0, second(b.t.Mkdir(bg, c, b.at(""), "d", 0o755)))
		step("mkdir, exists", 0, 0, names.Exist, second(b.t.Mkdir(bg, c, b.at(""), "d", 0o755)))
		_, _, err = b.t.MkdirAll(bg, c, p("d/e/f"), 0o755)
		step("mkdir -p", 0, 2, 0, err)
		step("symlink", 0, 1, 0, second(b.t.Symlink(bg, c, "a", b.at(""), "l")))
		step("link", 0, 1, 0, second(b.t.Link(bg, c, b.at("a"), nil, b.at(""), "h")))
		f, _, _, err := b.t.Create(bg, c, b.at(""), "f", unix.O_RDWR|unix.O_EXCL, 0o644)
		step("create", 0, 1, 0, err)
		step("write", 100, 0, 0, second(f.WriteAt(bg, c, [][]byte{text}, 0, vfs.WriteAtOptions{})))
		step("allocate", 100, 0, 0, f.Allocate(bg, c, 0, 100, 100))
		step("write, too far", 0, 0, names.Quota, second(f.WriteAt(bg, c, [][]byte{text}, 1<<16, vfs.WriteAtOptions{})))
		f.Close()
		step("truncate, too long", 0, 0, names.Quota, func() error {
			size := int64(1<<16 + 1)
			return second(b.t.Setattr(bg, c, b.at("a"), nil, vfs.Attrs{Size: &size}))
		}())
		u, err := b.t.BeginUpload(bg, c, p("up"), vfs.IfMatch{})
		step("upload", 0, 0, 0, err)
		step("upload, a piece", 100, 0, 0, second(u.WriteAt(bg, c, text, 0)))
		step("upload, done", 0, 1, 0, second(u.Commit(bg, c)))
		if t.Failed() {
			t.Fatalf("remote %v", remote)
		}
	}
}
