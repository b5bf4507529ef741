package vfs_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

func (b *bed) path(rel string) guard.Path {
	b.Helper()
	return b.at(rel).Path
}

// tree makes files as guardtest.Tree describes. It returns the directory that $OUT stands for,
// which has no grant.
func (b *bed) tree(entries ...string) (out string) {
	b.Helper()
	out = b.TempDir()
	b.must(os.WriteFile(out+"/secret", []byte("secret"), 0o644))
	b.must(os.Mkdir(out+"/dir", 0o755))
	guardtest.Tree(b, b.src, out, entries...)
	return out
}

// R064, R066: each link leads to its target or is refused. Without rootsfs, the paths marked
// unguarded can be read.
func TestFollow(t *testing.T) {
	chain := []string{"c0 => a"}
	for i := range 41 {
		chain = append(chain, "c"+strconv.Itoa(i+1)+" => c"+strconv.Itoa(i))
	}
	tree := append(chain, "a=inside", "sub/b=below", "sub/deep/x=", "d => sub", "l => a", "sub/up => ../a", "dd => d/deep",
		"slash => sub/", "badslash => a/", "dotted => ./sub/./b", "back => sub/../a", "viafile => a/../a", "viamissing => no/../a",
		"dangling => new", "deepdangling => no/new", "self => self", "loop1 => loop2", "loop2 => loop1", "here => .",
		"abs => $OUT/secret", "absdir => $OUT", "climb => ../../../../../../../../etc/passwd", "backin => ../001/a",
		"magic => /proc/self/root/etc/passwd", "cwd => /proc/self/cwd", "fd => /proc/self/fd/0", "own => $ROOT/a",
		"hop => abs", "behind => dd/../../../x", "fifo|", "flink => fifo")
	for _, c := range []struct {
		rel       string
		last      bool
		want      string
		kind      guard.Kind
		errno     unix.Errno
		unguarded bool
	}{
		{rel: "", last: true, want: ""},
		{rel: "a", last: true, want: "a"},
		{rel: "new", last: true, want: "new"},
		{rel: "l", last: true, want: "a"},
		{rel: "l", want: "l"},
		{rel: "d/b", want: "sub/b"},
		{rel: "d", want: "d"},
		{rel: "d", last: true, want: "sub"},
		{rel: "dd/x", last: true, want: "sub/deep/x"},
		{rel: "d/up", last: true, want: "a"},
		{rel: "slash", last: true, want: "sub"},
		{rel: "badslash", last: true, kind: names.NotDir},
		{rel: "dotted", last: true, want: "sub/b"},
		{rel: "back", last: true, want: "a"},
		{rel: "viafile", last: true, kind: names.NotDir},
		{rel: "viamissing", last: true, kind: names.NotExist},
		{rel: "dangling", last: true, want: "new"},
		{rel: "deepdangling", last: true, kind: names.NotExist},
		{rel: "here/here/here/a", want: "a"},
		{rel: "c39", last: true, want: "a"},
		{rel: "c40", last: true, kind: names.Invalid, errno: unix.ELOOP},
		{rel: "self", last: true, kind: names.Invalid, errno: unix.ELOOP},
		{rel: "loop1/x", kind: names.Invalid, errno: unix.ELOOP},
		{rel: "a/x", kind: names.NotDir},
		{rel: "no/x", kind: names.NotExist},
		{rel: "fifo/x", kind: names.Hidden},
		{rel: "flink/x", kind: names.Hidden},
		{rel: "abs", last: true, kind: names.Escaped, unguarded: true},
		{rel: "abs", want: "abs"},
		{rel: "absdir/secret", kind: names.Escaped, unguarded: true},
		{rel: "climb", last: true, kind: names.Escaped, unguarded: true},
		{rel: "backin", last: true, kind: names.Escaped, unguarded: true},
		{rel: "magic", last: true, kind: names.Escaped, unguarded: true},
		{rel: "cwd/x", kind: names.Escaped},
		{rel: "fd", last: true, kind: names.Escaped},
		{rel: "own", last: true, kind: names.Escaped, unguarded: true},
		{rel: "hop", last: true, kind: names.Escaped, unguarded: true},
		{rel: "behind", last: true, kind: names.Escaped},
	} {
		t.Run(c.rel+"/"+strconv.FormatBool(c.last), func(t *testing.T) {
			b := newBed(t, false, guard.Policy{})
			b.tree(tree...)
			got, err := b.t.Follow(bg, who, b.path(c.rel), c.last)
			if c.errno != 0 {
				b.wantErrno(err, c.errno)
			}
			b.wantKind(err, c.kind)
			if err == nil && got != b.path(c.want) {
				t.Errorf("leads to %v, want %q", got, c.want)
			}
			if c.unguarded {
				if _, err := os.ReadFile(b.host(c.rel)); err != nil {
					t.Errorf("the bare call fails too: %v", err)
				}
			}
		})
	}
}

// Following a link needs the right to read, as in a mount.
func TestFollowNeedsRead(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.Write | guard.Create})
	b.tree("a=x", "l => a", "d/b=", "e => d")
	for _, rel := range []string{"l", "e/b"} {
		_, err := b.t.Follow(bg, who, b.path(rel), true)
		b.wantKind(err, names.Permission)
		_, _, err = b.t.WriteRange(bg, who, b.path(rel), []byte("y"), vfs.WriteOptions{})
		b.wantKind(err, names.Permission)
	}
	b.contents("a", "x")
}

// In a deep tree, a link whose target climbs and descends again and again is refused.
func TestFollowIsBounded(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	deep := strings.Repeat("d/", 200)
	b.must(os.MkdirAll(b.host(deep), 0o755))
	b.must(os.Symlink(strings.Repeat("../d/", 800)+"l2", b.host(deep+"l")))
	b.must(os.Symlink(strings.Repeat("../d/", 800)+"l", b.host(deep+"l2")))
	_, err := b.t.Follow(bg, who, b.path(deep+"l"), true)
	b.wantErrno(err, unix.ELOOP)
	ctx, cancel := context.WithCancel(bg)
	cancel()
	_, err = b.t.Follow(ctx, who, b.path(deep+"l"), true)
	b.wantErrno(err, unix.EINTR)
}

// R063, R189: a directory of the path is exchanged, again and again, with a link that leads out.
// The operations read, write and remove nothing outside. The test logs how often a bare call
// reads the file outside.
func TestPathSwapRace(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	out := b.tree("d/f=inside", "swap/", "keep/f=inside")
	b.must(os.WriteFile(out+"/f", []byte("outside"), 0o644))
	b.must(os.MkdirAll(out+"/sub/precious", 0o755))
	b.must(os.Symlink(out, b.host("swap/d")))
	stop, swapped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { swapped <- n }()
		for {
			select {
			case <-stop:
				return
			default:
				if unix.Renameat2(unix.AT_FDCWD, b.host("d"), unix.AT_FDCWD, b.host("swap/d"), unix.RENAME_EXCHANGE) == nil {
					n++
				}
			}
		}
	}()
	buf := make([]byte, 16)
	leaked := 0
	for i := range 400 {
		if n, _, err := b.readRange(b.path("d/f"), 0, buf, ""); err == nil && string(buf[:n]) == "outside" {
			t.Fatal("read a file outside")
		}
		_, _, _ = b.t.WriteRange(bg, who, b.path("d/f"), []byte("inside"), vfs.WriteOptions{Create: true, Mode: 0o644})
		_, _ = b.t.Replace(bg, who, b.at("d/f"), strings.NewReader("inside"), vfs.IfMatch{Follow: true, NoDurable: true, Mode: 0o644})
		_, _ = b.t.CreateFile(bg, who, b.path("d/x/y"), 0o644, true)
		_, _ = b.t.CopyFile(bg, who, b.path("d/f"), b.path("copy"), vfs.CopyOptions{Overwrite: true})
		_ = b.t.RenamePath(bg, who, b.path("d/x"), b.path("x"+strconv.Itoa(i)), false, "")
		_, _ = b.t.CreateFile(bg, who, b.path("d/sub/deep/y"), 0o644, true)
		_ = b.t.RemovePath(bg, who, b.path("d/sub"), vfs.RemoveOptions{Recursive: true})
		if got, err := os.ReadFile(b.host("d/f")); err == nil && string(got) == "outside" {
			leaked++ // the bare call was led out
		}
	}
	close(stop)
	if n := <-swapped; n == 0 {
		t.Fatal("nothing was exchanged")
	}
	entries, err := os.ReadDir(out)
	b.must(err)
	if len(entries) != 4 {
		t.Errorf("outside: %v", entries)
	}
	if _, err := os.Stat(out + "/sub/precious"); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(out + "/f"); string(got) != "outside" {
		t.Errorf("the file outside holds %q", got)
	}
	if got, err := os.ReadFile(b.host("copy")); err == nil && string(got) == "outside" {
		t.Error("a file outside was copied in")
	}
	t.Logf("the bare call was led out %d times", leaked)
}
