package mount

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount/childfs"
	"github.com/rootsfs/rootsfs/vfs"
)

// R004, R008, R127: of two mounts of one registry one is shut: what its users hold
// open, mapped, or know of the root that is everybody's is dead when that is done;
// the other's users do not notice.
func TestShutOneOfTwo(t *testing.T) {
	for _, level := range []Level{Strict, Audit} {
		t.Run(level.String(), func(t *testing.T) {
			reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
			tree, src := vfs.New(reg), t.TempDir()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(childfs.WriteFile(filepath.Join(src, "f"), []byte("text"), 0o644))
			stays := mountFront(t, Options{Level: level, Subject: "stays", Tree: tree}, reg).Host
			m, err := New(reg, Options{Level: level, Subject: "goes", Tree: tree, Point: t.TempDir()})
			must(err)
			_, err = reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: src, Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}})
			must(err)
			goes := func(rel string) string { return filepath.Join(m.Point(), rel) }
			f, err := childfs.OpenFile(goes("r/f"), os.O_RDWR, 0)
			must(err)
			defer f.Close()
			page := mapped(t, f, 4, unix.PROT_READ)
			dir, err := childfs.Open(goes("r"))
			must(err)
			defer dir.Close()
			other, err := childfs.Open(stays("r/f"))
			must(err)
			defer other.Close()
			must(page.load())
			must(m.Shut(context.Background()))
			buf := make([]byte, 4)
			for what, err := range map[string]error{
				"read": second(f.ReadAt(buf, 0)), "write": second(f.WriteAt(buf, 0)), "stat": second(childfs.Stat(goes("r/f"))),
				"open": second(childfs.Open(goes("r/f"))), "list": second(dir.Readdirnames(-1)), "create": childfs.WriteFile(goes("r/new"), nil, 0o644),
			} {
				if err == nil {
					t.Errorf("%s succeeds through the mount that was shut", what)
				}
			}
			if page.load() == nil {
				t.Error("the mapping can be read")
			}
			if n, err := other.ReadAt(buf, 0); n != 4 || err != nil {
				t.Errorf("the other mount's open file: %d, %v", n, err)
			}
			if got := contents(stays("r/f")); got != "text" {
				t.Errorf("the other mount reads %q", got)
			}
			must(m.Close())
			_ = f.Close()
			_ = dir.Close()
			page.unmap()
			<-m.Served()
		})
	}
}
