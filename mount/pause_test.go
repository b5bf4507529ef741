package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// A pause blocks open files and mappings, and drops cached data. Before that, it writes the
// changes in mappings to the source. After the pause the same descriptors and mappings work, and a
// descriptor shows what the host has changed meanwhile.
func TestPauseTakesBackWhatIsMapped(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
		src := t.TempDir()
		file := filepath.Join(src, "f")
		testkit.Must(t, os.WriteFile(file, []byte("text"), 0o644))
		testkit.Must(t, os.WriteFile(filepath.Join(src, "other"), []byte("text"), 0o644))
		host := mountFront(t, Options{Level: level, Tree: vfs.New(reg)}, reg).Host
		_, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(src), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}})
		testkit.Must(t, err)
		f, err := childfs.OpenFile(host("r/f"), unix.O_RDWR, 0)
		testkit.Must(t, err)
		defer f.Close()
		other, err := childfs.Open(host("r/other")) // a flush does not touch what is only read
		testkit.Must(t, err)
		defer other.Close()
		onlyRead := mapFile(t, other, 4, unix.PROT_READ)
		testkit.Must(t, onlyRead.load())
		m := mapFile(t, f, 4, unix.PROT_READ|unix.PROT_WRITE)
		testkit.Must(t, m.store("TEXT"))
		testkit.Must(t, reg.Pause(context.Background(), guard.PausedByOwner, ""))
		if got, err := os.ReadFile(file); err != nil || string(got) != "TEXT" {
			t.Errorf("the source has %q, %v", got, err)
		}
		buf := make([]byte, 4)
		for _, m := range []*mapping{m, onlyRead} {
			if err := m.load(); err == nil {
				t.Error("the mapping can be read during the pause")
			}
		}
		for what, err := range map[string]error{
			"read": second(f.ReadAt(buf, 0)), "read another": second(other.ReadAt(buf, 0)), "write": second(f.WriteAt([]byte("no"), 0)), "stat": second(childfs.Stat(host("r/f"))),
			"open": second(childfs.Open(host("r/f"))), "list": second(childfs.ReadDir(host("r"))), "create": childfs.WriteFile(host("r/new"), nil, 0o644),
		} {
			if !errors.Is(err, unix.EACCES) {
				t.Errorf("%s: %v, want EACCES", what, err)
			}
		}
		testkit.Must(t, os.WriteFile(file, []byte("host"), 0o644))
		testkit.Must(t, reg.EndPause(guard.PausedByOwner))
		if n, err := f.ReadAt(buf, 0); n != 4 || err != nil || string(buf) != "host" {
			t.Errorf("after the pause the open file has %q, %v", buf[:n], err)
		}
		testkit.Must(t, errors.Join(m.load(), onlyRead.load()))
		testkit.Must(t, m.store("LAST"))
		testkit.Must(t, f.Sync())
		if got, err := os.ReadFile(file); err != nil || string(got) != "LAST" {
			t.Errorf("a store after the pause: the source has %q, %v", got, err)
		}
	})
}
