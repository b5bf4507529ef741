package vfs_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func (b *bed) tag(rel string) string {
	b.Helper()
	info, _, err := b.t.Stat(bg, who, b.path(rel))
	b.must(err)
	return vfs.ETag(&info)
}

func (b *bed) writeRange(rel, text string, how vfs.WriteOptions) (int, error) {
	how.Mode = 0o644
	n, _, err := b.t.WriteRange(bg, who, b.path(rel), []byte(text), how)
	return n, err
}

// oneRecord checks that there is one record since the mark, with these numbers of bytes.
func (b *bed) oneRecord(mark int, what string, read, written int64) {
	b.Helper()
	recs := b.rec.All()[mark:]
	if len(recs) != 1 || recs[0].Read != read || recs[0].Written != written || recs[0].Verdict != guard.Allowed {
		b.Errorf("%s: records %+v; want one of %d bytes read and %d written", what, recs, read, written)
	}
}

func TestReadChunk(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.tree("f=0123456789", "l => f", "d/", "dl => d", "out => $OUT/secret", "fifo|", "sock@", "dev%", "flink => fifo")
		tag := b.tag("f")
		for _, c := range []struct {
			rel   string
			off   int64
			size  int
			match string
			want  string
			kind  guard.Kind
		}{
			{rel: "f", size: 4, want: "0123"},
			{rel: "f", off: 8, size: 4, want: "89"},
			{rel: "f", off: 10, size: 4, want: ""},
			{rel: "f", off: 1 << 40, size: 4, want: ""},
			{rel: "f", off: 2, size: 0, want: ""},
			{rel: "l", off: 3, size: 2, match: tag, want: "34"},
			{rel: "f", off: -1, size: 4, kind: names.Invalid},
			{rel: "f", size: 4, match: "other", kind: names.Conflict},
			{rel: "d", size: 4, kind: names.IsDir},
			{rel: "dl", size: 4, kind: names.IsDir},
			{rel: "", size: 4, kind: names.IsDir},
			{rel: "out", size: 4, kind: names.Escaped},
			{rel: "none", size: 4, kind: names.NotExist},
			// An open would block at the FIFO, and have effects at the device.
			{rel: "fifo", size: 4, kind: names.Hidden},
			{rel: "flink", size: 4, kind: names.Hidden},
			{rel: "sock", size: 4, kind: names.Hidden},
			{rel: "dev", size: 4, kind: names.Hidden},
		} {
			buf := make([]byte, c.size)
			n, info, err := b.readRange(b.path(c.rel), c.off, buf, c.match)
			b.wantKind(err, c.kind)
			if err == nil && (string(buf[:n]) != c.want || info.Size != 10) {
				t.Errorf("%s at %d: %q of %d bytes, want %q", c.rel, c.off, buf[:n], info.Size, c.want)
			}
		}
		mark := len(b.rec.All())
		_, _, err := b.readRange(b.path("l"), 0, make([]byte, 4), "")
		b.must(err)
		b.oneRecord(mark, "read", 4, 0)
	})
}

// A special file is refused even if it is shown, so that no operation waits for a FIFO's
// writer.
func TestReadChunkOfSpecialFile(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, PosixFull: true})
	b.tree("fifo|", "dev%")
	for _, rel := range []string{"fifo", "dev"} {
		_, _, err := b.readRange(b.path(rel), 0, make([]byte, 4), "")
		b.wantKind(err, names.Invalid)
	}
}

// R073: the reported attributes of a file agree with the data that was read. While the file
// grows, each read of the whole file has as many bytes as the reported size, or is a conflict.
func TestReadChunkOfChangingFile(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("f", "")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		f, err := os.OpenFile(b.host("f"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for range 200_000 {
			select {
			case <-stop:
				return
			default:
				_, _ = f.WriteString("x")
			}
		}
	}()
	buf := make([]byte, 1<<20)
	for range 300 {
		n, info, err := b.readRange(b.path("f"), 0, buf, "")
		if err != nil {
			b.wantKind(err, names.Conflict)
		} else if int64(n) != info.Size {
			t.Fatalf("read %d bytes of a file of %d", n, info.Size)
		}
	}
	close(stop)
	<-done
}

// R073: a file that grows after its size was read is read to its end. If the read returned only
// the beginning, with the etag of the whole file, an edit (edit_file) would delete the rest.
func TestReadChunkOfGrowingFile(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		text := strings.Repeat("x", 5000)
		b.put("f", text)
		grow := sync.OnceFunc(func() {
			text += "more"
			b.put("f", text)
		})
		got, info, err := b.t.ReadChunk(bg, who, b.path("f"), 0, 1<<20, "", func(n int64) ([]byte, error) {
			grow()
			return make([]byte, n), nil
		})
		if err != nil || string(got) != text || info.Size != int64(len(text)) {
			t.Errorf("%d bytes of a file of %d, %v; want %d", len(got), info.Size, err, len(text))
		}
	})
}

func TestWriteRange(t *testing.T) {
	eachSource(t, func(t *testing.T, remote bool) {
		for _, c := range []struct {
			name, rel, data string
			how             vfs.WriteOptions
			kind            guard.Kind
			want            string // of target, "-" for no file
			target          string
		}{
			{name: "middle", rel: "f", data: "XY", how: vfs.WriteOptions{Off: 2}, want: "01XY456789"},
			{name: "through a link", rel: "l", data: "XY", want: "XY23456789", target: "f"},
			{name: "beyond the end", rel: "f", data: "XY", how: vfs.WriteOptions{Off: 12}, want: "0123456789\x00\x00XY"},
			{name: "append", rel: "f", data: "XY", how: vfs.WriteOptions{Append: true, Off: 3}, want: "0123456789XY"},
			{name: "truncate", rel: "f", data: "XY", how: vfs.WriteOptions{Off: 3, Truncate: true}, want: "012XY"},
			{name: "truncate to nothing", rel: "f", how: vfs.WriteOptions{Truncate: true}, want: ""},
			{name: "create", rel: "new", data: "XY", how: vfs.WriteOptions{Create: true}, want: "XY"},
			{name: "create, exists", rel: "f", data: "XY", how: vfs.WriteOptions{Create: true}, want: "XY23456789"},
			{name: "create through a dangling link", rel: "dangling", data: "XY", how: vfs.WriteOptions{Create: true}, want: "XY", target: "made"},
			{name: "create only", rel: "new", data: "XY", how: vfs.WriteOptions{CreateOnly: true}, want: "XY"},
			{name: "create only, exists", rel: "f", data: "XY", how: vfs.WriteOptions{CreateOnly: true}, kind: names.Exist, want: "0123456789"},
			{name: "create only, a link", rel: "dangling", data: "XY", how: vfs.WriteOptions{CreateOnly: true}, kind: names.Exist, want: "-", target: "made"},
			{name: "absent", rel: "new", data: "XY", kind: names.NotExist, want: "-"},
			{name: "absent, with an etag", rel: "new", data: "XY", how: vfs.WriteOptions{Create: true, ETag: "x"}, kind: names.NotExist, want: "-"},
			{name: "wrong etag", rel: "f", data: "XY", how: vfs.WriteOptions{ETag: "x", Truncate: true}, kind: names.Conflict, want: "0123456789"},
			{name: "negative", rel: "f", data: "XY", how: vfs.WriteOptions{Off: -1}, kind: names.Invalid, want: "0123456789"},
			{name: "overflow", rel: "f", data: "XY", how: vfs.WriteOptions{Off: 1<<63 - 1}, kind: names.Invalid, want: "0123456789"},
			{name: "directory", rel: "d", data: "XY", kind: names.IsDir, want: "-"},
			{name: "the root", rel: "", data: "XY", kind: names.Invalid, want: "-"},
			{name: "fifo", rel: "fifo", data: "XY", kind: names.Hidden, want: "-"},
			{name: "outside", rel: "out", data: "XY", how: vfs.WriteOptions{Create: true}, kind: names.Escaped, want: "-"},
		} {
			t.Run(c.name, func(t *testing.T) {
				b := newBed(t, remote, guard.Policy{})
				out := b.tree("f=0123456789", "l => f", "dangling => made", "d/", "out => $OUT/secret", "fifo|")
				c.how.Mode = 0o640
				mark := len(b.rec.All())
				n, err := b.writeRange(c.rel, c.data, c.how)
				b.wantKind(err, c.kind)
				if err == nil {
					b.oneRecord(mark, c.name, 0, int64(len(c.data)))
				}
				if err == nil && n != len(c.data) {
					t.Errorf("wrote %d", n)
				}
				if c.target == "" {
					c.target = c.rel
				}
				if c.want != "-" {
					b.contents(c.target, c.want)
				} else if st, err := os.Lstat(b.host(c.target)); err == nil && st.Mode().IsRegular() {
					t.Errorf("%s was made", c.target)
				}
				if got, _ := os.ReadFile(out + "/secret"); string(got) != "secret" {
					t.Errorf("outside: %q", got)
				}
			})
		}
	})
}

// eachSource runs a test for a local source and for one that counts as remote.
func eachSource(t *testing.T, f func(t *testing.T, remote bool)) {
	t.Run("local", func(t *testing.T) { f(t, false) })
	t.Run("remote", func(t *testing.T) { f(t, true) })
}

// R073: of several writes and replacements with the same etag exactly one succeeds. The file then
// has only the bytes of the successful operation.
func TestWriteRangeRace(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("f", "0000")
		for range 20 {
			tag := b.tag("f")
			var wg sync.WaitGroup
			var mu sync.Mutex
			var won []string
			for i := range 6 {
				wg.Go(func() {
					text := strings.Repeat(fmt.Sprint(i), 4)
					var err error
					if i%2 == 0 {
						_, err = b.writeRange("f", text, vfs.WriteOptions{ETag: tag})
					} else {
						_, err = b.replace("f", text, vfs.IfMatch{ETag: tag, NoDurable: true})
					}
					if err == nil {
						mu.Lock()
						won = append(won, text)
						mu.Unlock()
					} else {
						b.wantKind(err, names.Conflict)
					}
				})
			}
			wg.Wait()
			if len(won) != 1 {
				t.Fatalf("%q succeeded, want one", won)
			}
			b.contents("f", won[0])
		}
	})
}

// R075: with RespectLocks, a file that a process of the host has locked is not written or
// replaced, and no upload of it begins.
func TestRespectLocks(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("f", "text")
		attempts := func(want guard.Kind) {
			t.Helper()
			_, err := b.writeRange("f", "T", vfs.WriteOptions{RespectLocks: true})
			b.wantKind(err, want)
			_, err = b.replace("f", "Text", vfs.IfMatch{RespectLocks: true})
			b.wantKind(err, want)
			u, err := b.t.BeginUpload(bg, who, b.path("f"), vfs.IfMatch{RespectLocks: true})
			b.wantKind(err, want)
			if err == nil {
				u.Abort()
			}
		}
		for name, lock := range map[string]func(fd int) error{
			"flock":        func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) },
			"flock shared": func(fd int) error { return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) },
			"fcntl": func(fd int) error {
				return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: 1, Len: 1})
			},
		} {
			t.Run(name, func(t *testing.T) {
				f, err := os.OpenFile(b.host("f"), os.O_RDWR, 0)
				b.must(err)
				b.must(lock(int(f.Fd())))
				attempts(names.Locked)
				b.contents("f", "text")
				_, err = b.writeRange("f", "t", vfs.WriteOptions{})
				b.must(err)
				f.Close()
			})
		}
		attempts(0)
		attempts(0) // the tree's own locks are released
		b.contents("f", "Text")
	})
}

// R077: bytes are charged once, unused charges of failures are refunded, and no file grows over
// the limit.
func TestWriteRangeQuota(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, Limits: guard.Limits{MaxFile: 10, MaxWritten: 20, MaxCreated: 2}})
	try := func(rel, text string, how vfs.WriteOptions, want unix.Errno) {
		t.Helper()
		_, err := b.writeRange(rel, text, how)
		b.wantErrno(err, want)
	}
	try("f", "12345", vfs.WriteOptions{Create: true}, 0)
	try("f", "12345", vfs.WriteOptions{Off: 6}, unix.EFBIG)
	try("f", "123456", vfs.WriteOptions{Append: true}, unix.EFBIG)
	try("f", "12345", vfs.WriteOptions{Append: true}, 0)
	try("g", "", vfs.WriteOptions{ETag: "x", Create: true}, unix.ENOENT)
	try("g", "1234567890", vfs.WriteOptions{CreateOnly: true}, 0)
	try("h", "1", vfs.WriteOptions{CreateOnly: true}, unix.EDQUOT)
	try("f", "1", vfs.WriteOptions{}, unix.EDQUOT)
	if st, _ := b.reg.Lookup("code"); st.Written != 20 || st.Created != 2 {
		t.Errorf("written %d, created %d", st.Written, st.Created)
	}
}

// R055: if the disk is full in the middle of a write, the number of written bytes is returned.
func TestWriteRangeFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("no tmpfs can be mounted: ", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	b := newBed(t, false, guard.Policy{})
	if _, err := b.reg.Grant(bg, guard.Grant{Root: "small", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}); err != nil {
		t.Fatal(err)
	}
	p, err := guard.NewPath("small", "f")
	b.must(err)
	big := make([]byte, 128<<10)
	n, _, err := b.t.WriteRange(bg, who, p, big, vfs.WriteOptions{Create: true})
	b.wantErrno(err, unix.ENOSPC)
	if n <= 0 || n >= len(big) {
		t.Errorf("wrote %d", n)
	}
	b.must(os.WriteFile(dir+"/f", []byte("old"), 0o644))
	_, err = b.t.Replace(bg, who, vfs.At{Path: p}, strings.NewReader(string(big)), vfs.IfMatch{})
	b.wantErrno(err, unix.ENOSPC)
	if got, _ := os.ReadFile(dir + "/f"); string(got) != "old" {
		t.Errorf("%q", got)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	b.revoke("small")
}

// R070: a wait for a name that another operation is changing ends when the context is canceled.
func TestWaitForName(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	b.put("f", "x")
	unblock, started := make(chan struct{}), make(chan struct{})
	blocker := blockingJournal{started, unblock}
	b.t.SetJournal(blocker)
	first := make(chan error)
	go func() { first <- second(b.replace("f", "first", vfs.IfMatch{NoDurable: true})) }()
	<-started
	ctx, cancel := context.WithCancel(bg)
	waiting := make(chan error)
	go func() {
		_, _, err := b.t.WriteRange(ctx, who, b.path("f"), []byte("y"), vfs.WriteOptions{})
		waiting <- err
	}()
	cancel()
	b.wantErrno(<-waiting, unix.EINTR)
	close(unblock)
	b.must(<-first)
	b.contents("f", "first")
}

// blockingJournal stops an operation that is about to create a temporary name.
type blockingJournal struct{ started, unblock chan struct{} }

func (j blockingJournal) Begin(guard.Path) func() {
	close(j.started)
	<-j.unblock
	return func() {}
}

// If a write is refused after it created its file, the file is removed again. It is not removed
// if somebody else has written to it meanwhile. If another file has the name by then, that file
// is not removed.
func TestWriteRangeRemovesOnlyItsOwnFile(t *testing.T) {
	refuse := &guard.Error{Kind: names.Quota}
	for name, c := range map[string]struct {
		meanwhile func(b *bed)
		want      string // "" for no file
	}{
		"nothing happened":     {func(*bed) {}, ""},
		"replaced by the host": {func(b *bed) { b.put("tmp", "theirs"); b.must(os.Rename(b.host("tmp"), b.host("f"))) }, "theirs"},
		"written by the host":  {func(b *bed) { b.put("f", "theirs") }, "theirs"},
		"gone":                 {func(b *bed) { b.must(os.Remove(b.host("f"))) }, ""},
	} {
		for _, appending := range []bool{false, true} {
			b := newBed(t, false, guard.Policy{})
			_, _, err := b.t.WriteRange(bg, who, b.path("f"), []byte("ours"), vfs.WriteOptions{
				Create: true, Append: appending, Mode: 0o644, Room: func(int64) error { c.meanwhile(b); return refuse },
			})
			b.wantKind(err, names.Quota)
			got, err := os.ReadFile(b.host("f"))
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%s, appending %v: %q, %v", name, appending, got, err)
			}
		}
	}
}
