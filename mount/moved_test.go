package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// If the owner moves a file out of the root, programs that have the file open cannot open it again
// through the descriptor, not even for reading, and cannot change its mode or extended attributes.
// The same holds if the patterns hide the file's new name. If the file was removed instead,
// programs that have it open can do all of this.
func TestMovedFileIsNotReopened(t *testing.T) {
	for _, level := range []Level{Strict, Audit} { // at level Max the kernel sends no OPEN
		for _, c := range []struct {
			name, to string
			reopens  bool
		}{
			{"moved out", "../outside/f", false},
			{"renamed to a hidden name", ".env", false},
			{"removed", "", true},
		} {
			t.Run(level.String()+"/"+c.name, func(t *testing.T) {
				base := t.TempDir()
				src := filepath.Join(base, "src")
				for _, dir := range []string{src, filepath.Join(base, "outside")} {
					if err := childfs.Mkdir(dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				m := newTestMount(t, guard.ReadWrite, func(o *Options, g *guard.Grant) { o.Level, g.Dir = level, names.Foreign(src) })
				at := filepath.Join(src, "f")
				if err := childfs.WriteFile(at, []byte("secret"), 0o666); err != nil {
					t.Fatal(err)
				}
				f, err := childfs.Open(filepath.Join(m.root, "f"))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if c.to == "" {
					err = childfs.Remove(filepath.Join(m.root, "f"))
				} else {
					to := filepath.Join(src, c.to)
					err = childfs.Rename(at, to)
					at = to
				}
				if err != nil {
					t.Fatal(err)
				}
				proc := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
				for _, flags := range []int{unix.O_RDWR, unix.O_WRONLY | unix.O_TRUNC, unix.O_RDONLY} {
					again, err := childfs.SysOpen(proc, flags|unix.O_CLOEXEC, 0)
					if err == nil {
						childfs.SysClose(again)
					}
					if (err == nil) != c.reopens {
						t.Errorf("reopening with %#o: %v, want success: %v", flags, err, c.reopens)
					}
				}
				if err := childfs.SysSetxattr(proc, "user.x", []byte("y"), 0); (err == nil) != c.reopens && !errors.Is(err, unix.ENOTSUP) {
					t.Errorf("setxattr: %v, want success: %v", err, c.reopens)
				}
				if err := f.Chmod(0o600); (err == nil) != c.reopens {
					t.Errorf("chmod: %v, want success: %v", err, c.reopens)
				}
				if c.reopens {
					return // the removed file was reopened, and truncated
				}
				if got, err := childfs.ReadFile(at); err != nil || string(got) != "secret" {
					t.Errorf("the moved file holds %q, %v", got, err)
				}
				if info, err := childfs.Stat(at); err != nil || info.Mode().Perm() == 0o600 {
					t.Errorf("the moved file is %v, %v", info, err)
				}
			})
		}
	}
}

// A program that has a file open still gets the file's attributes after the host moved or
// removed it, whether or not the kernel names the descriptor. Once no program has the file open, the
// mount refuses its attributes.
func TestFstatOfAMovedFile(t *testing.T) {
	for name, move := range map[string]func(src, at string) error{
		"renamed":   func(src, at string) error { return os.Rename(at, filepath.Join(src, "new")) },
		"moved out": func(src, at string) error { return os.Rename(at, filepath.Join(filepath.Dir(src), "out")) },
		"removed":   func(_, at string) error { return os.Remove(at) },
		"replaced": func(_, at string) error {
			return errors.Join(os.WriteFile(at+"2", []byte("longer"), 0o644), os.Rename(at+"2", at))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsker(t, Audit)
			at := filepath.Join(a.m.src, "f")
			testkit.Must(t, os.WriteFile(at, []byte("text"), 0o644))
			unopened := a.node("f")
			size := func(in fuse.GetAttrIn) (uint64, fuse.Status) {
				var out fuse.AttrOut
				status := a.m.raw.GetAttr(a.cancel, &in, &out)
				return out.Size, status
			}
			in, fh := a.open("f", unix.O_RDONLY)
			testkit.Must(t, move(a.m.src, at))
			for what, ask := range map[string]fuse.GetAttrIn{
				"by descriptor": {InHeader: *in, Flags_: fuse.FUSE_GETATTR_FH, Fh_: fh},
				"by node":       {InHeader: *in},
			} {
				if n, status := size(ask); !status.Ok() || n != 4 {
					t.Errorf("%s: %d bytes, %v", what, n, status)
				}
			}
			a.m.raw.Release(a.cancel, &fuse.ReleaseIn{InHeader: *in, Fh: fh})
			if n, status := size(fuse.GetAttrIn{InHeader: *unopened}); status.Ok() {
				t.Errorf("after it was closed: %d bytes", n)
			}
		})
	}
}
