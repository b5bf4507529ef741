package vfs_test

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Every operation on a file of an ended root is refused, also after the same
// directory was granted again. R070.
func TestFileOfEndedRoot(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("a", "hello")
		f, g := b.open("a", unix.O_RDWR), b.open("a", unix.O_RDWR)
		defer f.Close()
		defer g.Close()
		tmp, _, err := b.t.Tmpfile(bg, who, b.at(""), unix.O_RDWR, 0o644)
		b.must(err)
		defer tmp.Close()
		b.revoke("code")
		for range 2 {
			mode := uint32(0o600)
			for name, err := range map[string]error{
				"read":     second(f.ReadAt(bg, who, make([]byte, 5), 0)),
				"write":    b.write(f, "x", 0),
				"stat":     second(f.Stat(bg, who)),
				"fsync":    f.Fsync(bg, who, false),
				"flush":    f.Flush(bg, who),
				"allocate": f.Allocate(bg, who, 0, 0, 10),
				"lseek":    second(f.Lseek(bg, who, 0, unix.SEEK_DATA)),
				"copy":     second(f.CopyTo(bg, who, 0, g, 0, 1)),
				"reopen":   second(f.Reopen(bg, who, unix.O_RDONLY, vfs.ReopenOptions{})),
				"setattr":  second(b.t.Setattr(bg, who, vfs.At{Path: f.Path(), ID: f.ID()}, f, vfs.Attrs{Mode: &mode})),
				"getxattr": second(b.t.Getxattr(bg, who, vfs.At{Path: f.Path(), ID: f.ID()}, f, "user.x", nil)),
				"setxattr": b.t.Setxattr(bg, who, vfs.At{Path: f.Path(), ID: f.ID()}, f, "user.x", nil, 0),
				"link":     second(b.t.Link(bg, who, b.at(""), tmp, b.at(""), "woken")),
			} {
				if names.Reason(err) != names.Revoked {
					t.Errorf("%s: %v, want Revoked", name, err)
				}
			}
			select {
			case <-f.Dead():
			default:
				t.Error("Dead is not closed")
			}
			if _, ok := b.reg.Lookup("code"); !ok {
				b.grant("code", "", guard.Policy{})
			}
		}
		b.contents("a", "hello")
	})
}

// Files opened through an outer root are also judged by the nested one, whether it was granted
// before or after the open.
func TestFileInNestedRoot(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("a", "outer")
		b.put("in/f", "inner")
		out, in := b.open("a", unix.O_RDWR), b.open("in/f", unix.O_RDWR)
		defer out.Close()
		defer in.Close()
		b.grant("in", "in", guard.Policy{Rights: guard.ReadOnly})
		b.must(second(in.ReadAt(bg, who, make([]byte, 5), 0)))
		b.wantKind(b.write(in, "x", 0), names.ReadOnly)
		b.must(b.write(out, "O", 0))
		if n, err := out.CopyTo(bg, who, 0, in, 0, 5); err == nil {
			t.Errorf("copied %d bytes into a read-only root", n)
		}
		again, err := in.Reopen(bg, who, unix.O_RDONLY, vfs.ReopenOptions{Quiet: true})
		b.must(err)
		defer again.Close()
		b.revoke("in")
		b.wantKind(second(in.ReadAt(bg, who, make([]byte, 5), 0)), names.Revoked)
		b.wantKind(second(again.ReadAt(bg, who, make([]byte, 5), 0)), names.Revoked)
		if _, err := out.CopyTo(bg, who, 0, in, 0, 5); err == nil {
			t.Error("copied into a revoked root")
		}
		b.must(second(out.ReadAt(bg, who, make([]byte, 5), 0)))
		b.contents("in/f", "inner")
	})
}

// The right to append does not permit changes of the existing contents, neither by a write nor
// by writing back a page of a mapping.
func TestAppendRightOnly(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.Read | guard.Append | guard.Create})
	b.put("log", "first\n")
	f := b.open("log", unix.O_RDWR|unix.O_APPEND)
	defer f.Close()
	b.must(b.write(f, "second\n", 0))
	b.contents("log", "first\nsecond\n")
	_, err := f.WriteAt(bg, who, [][]byte{[]byte("FORGED")}, 0, vfs.WriteAtOptions{Cached: true})
	b.wantKind(err, names.Permission)
	b.contents("log", "first\nsecond\n")
	_, _, err = b.t.Open(bg, who, b.at("log"), unix.O_RDWR)
	b.wantKind(err, names.Permission)
}

// R077: no file grows over the limit, even by appends.
func TestMaxFile(t *testing.T) {
	b := newBed(t, false, guard.Policy{Limits: guard.Limits{MaxFile: 10}})
	b.put("a", "123456789")
	f, a := b.open("a", unix.O_RDWR), b.open("a", unix.O_WRONLY|unix.O_APPEND)
	defer f.Close()
	defer a.Close()
	b.must(b.write(f, "x", 9))
	b.wantErrno(b.write(f, "x", 10), unix.EFBIG)
	b.wantErrno(b.write(a, "x", 0), unix.EFBIG)
	b.wantErrno(f.Allocate(bg, who, 0, 5, 6), unix.EFBIG)
	size := int64(11)
	b.wantErrno(second(b.t.Setattr(bg, who, b.at("a"), nil, vfs.Attrs{Size: &size})), unix.EFBIG)
	b.contents("a", "12345678"+"9x")
}

// Operations run while their root is revoked and granted again. No operation outlives its root.
// When all files are closed, no descriptor stays open.
func TestStormLeaksNothing(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		b.put("d/f", "text")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		defer func() { close(stop); wg.Wait() }()
		for range 4 {
			wg.Go(func() {
				buf := make([]byte, 4)
				for {
					select {
					case <-stop:
						return
					default:
					}
					if f, _, err := b.t.Open(bg, who, b.at("d/f"), unix.O_RDWR); err == nil {
						_, _ = f.ReadAt(bg, who, buf, 0)
						_ = b.write(f, "text", 0)
						f.Close()
					}
					if d, err := b.t.Opendir(bg, who, b.at("d")); err == nil {
						_, _ = d.ReadDir(bg, who, b.at("d"))
						d.Close()
					}
				}
			})
		}
		for range shortOrSoak(40, 100) {
			b.revoke("code")
			if err := second(b.t.Lstat(bg, who, b.at("d/f"))); names.Reason(err) != names.Revoked {
				t.Errorf("after the revocation: %v", err)
			}
			b.grant("code", "", guard.Policy{})
		}
	})
}
