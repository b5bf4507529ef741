package vfs_test

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// R095: a file that is open for writing is not replaced, under any name and in any way. A file
// that is open for reading is replaced. Writes in place still work.
func TestNotReplacedWhileWritten(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.tree("f=text", "g=other", "link => f", "d/")
		b.must(os.Link(b.host("f"), b.host("hard")))
		attempts := func(want guard.Kind) {
			t.Helper()
			for _, rel := range []string{"f", "link", "hard"} {
				_, err := b.replace(rel, "text", vfs.IfMatch{Follow: true})
				b.wantKind(err, want)
			}
			b.wantKind(second(b.t.CopyFile(bg, who, b.path("g"), b.path("f"), vfs.CopyOptions{Overwrite: true})), want)
			b.must(os.WriteFile(b.host("h"), []byte("text"), 0o644))
			b.wantKind(b.t.RenamePath(bg, who, b.path("h"), b.path("f"), true, ""), want)
		}
		for _, flags := range []int{unix.O_WRONLY, unix.O_RDWR, unix.O_WRONLY | unix.O_APPEND} {
			up, err := b.t.BeginUpload(bg, who, b.path("f"), vfs.IfMatch{})
			b.must(err)
			b.must(second(up.WriteAt(bg, who, []byte("up"), 0)))
			f := b.open("f", flags)
			attempts(names.Locked)
			b.wantKind(second(b.t.BeginUpload(bg, who, b.path("hard"), vfs.IfMatch{})), names.Locked)
			b.wantKind(second(up.Commit(bg, who)), names.Locked)
			up.Abort()
			b.must(second(b.writeRange("f", "t", vfs.WriteOptions{})))
			b.must(b.write(f, "t", 0))
			f.Close()
			b.contents("f", map[bool]string{true: "textt", false: "text"}[f.Appending()])
			b.put("f", "text")
		}
		f, _, _, err := b.t.Create(bg, who, b.at(""), "new", unix.O_WRONLY, 0o644)
		b.must(err)
		_, err = b.replace("new", "x", vfs.IfMatch{})
		b.wantKind(err, names.Locked)
		b.must(b.t.RemovePath(bg, who, b.path("new"), vfs.RemoveOptions{})) // a removal loses no update
		f.Close()
		r := b.open("f", unix.O_RDONLY)
		defer r.Close()
		attempts(0)
	})
}

// R095: if the kernel reports closes late, a replacement of a file that is open for writing waits
// for the close, and so does the beginning of an upload. The wait ends at the latest after the time
// given to AwaitCloses, or when the caller's context or the root ends.
func TestReplacedAfterLateClose(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.tree("f=text")
		b.t.AwaitCloses(time.Minute)
		for _, replace := range []func() error{
			func() error { return second(b.replace("f", "new", vfs.IfMatch{})) },
			func() error { return second(b.t.BeginUpload(bg, who, b.path("f"), vfs.IfMatch{})) },
		} {
			f, g := b.open("f", unix.O_WRONLY), b.open("f", unix.O_RDWR)
			time.AfterFunc(10*time.Millisecond, f.Close)
			time.AfterFunc(20*time.Millisecond, g.Close)
			b.must(replace())
		}
		b.t.AwaitCloses(time.Millisecond)
		f := b.open("f", unix.O_WRONLY)
		defer f.Close()
		b.wantKind(second(b.replace("f", "x", vfs.IfMatch{})), names.Locked)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		b.t.AwaitCloses(time.Hour)
		if _, err := b.t.Replace(ctx, who, b.at("f"), strings.NewReader("x"), vfs.IfMatch{}); err == nil {
			t.Error("replaced although the caller's context was canceled")
		}
		time.AfterFunc(10*time.Millisecond, func() { b.must(second(b.reg.Revoke(bg, "code"))) })
		b.wantKind(second(b.replace("f", "x", vfs.IfMatch{})), names.Revoked)
	})
}

// R095: an open for writing of a file that is being replaced waits for the replacement, and the
// replacement does not wait for the open. Many replacements do not make the open fail.
func TestOpenDuringReplacement(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.tree("f=text")
		b.t.AwaitCloses(time.Minute)
		const replacers, times = 8, 50
		var wg sync.WaitGroup
		wg.Go(func() {
			for range times {
				f, _, err := b.t.Open(bg, who, b.at("f"), unix.O_WRONLY)
				if err != nil {
					t.Error(err)
					return
				}
				f.Close()
			}
		})
		for range replacers {
			wg.Go(func() {
				for range times {
					if _, err := b.replace("f", "new", vfs.IfMatch{NoDurable: true}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// R095: a file that is opened through a front end which does not learn of closes (mount level Max)
// can be replaced. After the replacement, the open file takes no write. After a removal of its
// name, the open file still takes writes.
func TestCountOnlyWhileUsed(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.tree("f=text", "gone=")
	f := b.open("f", unix.O_RDWR)
	defer f.Close()
	f.CountOnlyWhileUsed()
	b.must(b.write(f, "T", 0))
	_, err := b.replace("f", "new", vfs.IfMatch{})
	b.must(err)
	size := int64(0)
	b.wantErrno(b.write(f, "lost", 0), unix.ESTALE)
	b.wantErrno(f.Allocate(bg, who, 0, 0, 10), unix.ESTALE)
	b.wantErrno(second(b.t.Setattr(bg, who, vfs.At{Path: f.Path()}, f, vfs.Attrs{Size: &size})), unix.ESTALE)
	b.wantErrno(second(f.Reopen(bg, who, unix.O_WRONLY, vfs.ReopenOptions{})), unix.ESTALE)
	again, err := f.Reopen(bg, who, unix.O_RDONLY, vfs.ReopenOptions{})
	b.must(err)
	again.Close()
	b.contents("f", "new")

	g := b.open("gone", unix.O_RDWR)
	defer g.Close()
	g.CountOnlyWhileUsed()
	b.must(b.t.RemovePath(bg, who, b.path("gone"), vfs.RemoveOptions{}))
	b.must(b.write(g, "as POSIX has it", 0))
}

// R095: four programs count in one file. Two open the file and write in place, and two replace the
// file on condition of its etag. No step of any program is lost.
func TestNoUpdateLost(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("n", "0")
		steps := shortOrSoak(200, 5000)
		var opening sync.Mutex // openers exclude each other as programs do
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for range steps {
					opening.Lock()
					f, _, err := b.t.Open(bg, who, b.at("n"), unix.O_RDWR)
					if err == nil {
						buf := make([]byte, 20)
						n, rerr := f.ReadAt(bg, who, buf, 0)
						i, aerr := strconv.Atoi(string(buf[:n]))
						if err = b.write(f, strconv.Itoa(i+1), 0); rerr != nil || aerr != nil {
							t.Errorf("read %q: %v", buf[:n], rerr)
						}
						f.Close()
					}
					opening.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
			wg.Go(func() {
				for range steps {
					for !b.count(t) {
					}
				}
			})
		}
		wg.Wait()
		b.contents("n", strconv.Itoa(4*steps))
		if left := b.temps(); len(left) > 0 {
			t.Error(left)
		}
	})
}

// count tries once to add 1 by replacing the file.
func (b *bed) count(t *testing.T) bool {
	buf := make([]byte, 20)
	n, info, err := b.readRange(b.path("n"), 0, buf, "")
	if err == nil {
		i, aerr := strconv.Atoi(string(buf[:n]))
		if aerr != nil {
			t.Errorf("read %q", buf[:n])
			return true
		}
		text := bytes.NewReader([]byte(strconv.Itoa(i + 1)))
		_, err = b.t.Replace(bg, who, b.at("n"), text, vfs.IfMatch{ETag: vfs.ETag(&info), NoDurable: true})
	}
	switch names.Reason(err) {
	case names.Conflict, names.Locked:
		return false
	}
	if err != nil {
		t.Error(err)
	}
	return true
}

// The etag of a read, while somebody has the file open for writing, is valid for further reads
// but not for a replacement: the file's times may belong to a write whose bytes were still to
// come. The etag of a write in place that is done meanwhile is not valid for a replacement, either.
func TestETagOfAFileBeingWritten(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("n", "old")
		f := b.open("n", unix.O_RDWR)
		buf := make([]byte, 3)
		_, during, err := b.readRange(b.path("n"), 0, buf, "")
		b.must(err)
		_, _, err = b.readRange(b.path("n"), 1, buf, vfs.ETag(&during))
		b.must(err)
		_, beside, err := b.t.WriteRange(bg, who, b.path("n"), []byte("N"), vfs.WriteOptions{})
		b.must(err)
		f.Close()
		for what, info := range map[string]vfs.Info{"read": during, "written": beside} {
			_, err := b.t.Replace(bg, who, b.at("n"), bytes.NewReader(nil), vfs.IfMatch{ETag: vfs.ETag(&info)})
			if names.Reason(err) != names.Conflict {
				t.Errorf("replaced on the etag of what was %s while it was open for writing: %v", what, err)
			}
		}
		_, alone, err := b.t.WriteRange(bg, who, b.path("n"), []byte("n"), vfs.WriteOptions{})
		b.must(err)
		b.must(second(b.t.Replace(bg, who, b.at("n"), bytes.NewReader([]byte("new")), vfs.IfMatch{ETag: vfs.ETag(&alone)})))
		b.contents("n", "new")
	})
}

// lateWriter is a journal that opens the file f for writing, and writes to it, when a replacement
// has brought its new file to the path, but has not returned yet.
type lateWriter struct {
	b    *bed
	done chan error
}

func (w lateWriter) Begin(guard.Path) func() {
	return func() {
		written := make(chan struct{})
		go func() {
			defer close(written)
			f, _, err := w.b.t.Open(bg, who, w.b.at("f"), unix.O_WRONLY)
			if err == nil {
				_, err = f.WriteAt(bg, who, [][]byte{[]byte("late, and longer")}, 0, vfs.WriteAtOptions{})
				f.Close()
			}
			w.done <- err
		}()
		select { // the open has to wait for the end of the replacement; if it does not, it writes now
		case <-written:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// The etag that a replacement returns is that of its own contents: an opening of the new file
// for writing waits until the etag has been taken.
func TestETagOfAReplacementIsTakenBeforeWriters(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("f", "old")
		w := lateWriter{b, make(chan error, 1)}
		b.t.SetJournal(w)
		info, err := b.replace("f", "new", vfs.IfMatch{})
		b.must(err)
		b.must(<-w.done)
		b.contents("f", "late, and longer")
		b.t.SetJournal(nil)
		_, err = b.replace("f", "newer", vfs.IfMatch{ETag: vfs.ETag(&info)})
		b.wantKind(err, names.Conflict)
	})
}
