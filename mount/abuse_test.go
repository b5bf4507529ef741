package mount

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// R093: a subject is suspended if the users of its mount try to leave a root too often. The users
// can then use neither the files that they hold open nor the files that the kernel has cached.
// After a resume they can read both again. Another subject's mount of the same tree is not
// affected.
func TestSuspendedMount(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
		tree, src := vfs.New(reg), t.TempDir()
		testkit.Must(t, childfs.WriteFile(filepath.Join(src, "f"), []byte("text"), 0o644))
		testkit.Must(t, childfs.Symlink("/etc/passwd", filepath.Join(src, "out")))
		hosts := map[guard.Subject]func(string) string{}
		for _, who := range []guard.Subject{"bad", "good"} {
			hosts[who] = mountFront(t, Options{Level: level, Subject: who, Tree: tree}, reg).Host
		}
		_, err := reg.Grant(context.Background(), guard.Grant{Root: "r", Dir: names.Foreign(src), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}})
		testkit.Must(t, err)
		reg.SetAbuse(ledger.Abuse{Escapes: 5, Suspend: true})
		bad, good := hosts["bad"], hosts["good"]
		f, err := childfs.Open(bad("r/f"))
		testkit.Must(t, err)
		defer f.Close()
		testkit.Must(t, mapFile(t, f, 4, unix.PROT_READ).load())
		for range 50 {
			if _, err := childfs.ReadFile(bad("r/out")); err == nil {
				t.Fatal("escaped")
			}
		}
		if !reg.IsSuspended("bad") {
			t.Fatal("not suspended")
		}
		buf := make([]byte, 4)
		testkit.Until(t, "the open file's end", func() bool { _, err := f.ReadAt(buf, 0); return err != nil })
		for what, err := range map[string]error{
			"stat": second(childfs.Stat(bad("r/f"))), "open": second(childfs.Open(bad("r/f"))), "list": second(childfs.ReadDir(bad("r"))),
			"create": childfs.WriteFile(bad("r/new"), nil, 0o644), "remove": childfs.Remove(bad("r/f")),
		} {
			if !errors.Is(err, unix.EACCES) {
				t.Errorf("%s: %v, want EACCES", what, err)
			}
		}
		if got := contents(good("r/f")); got != "text" {
			t.Errorf("the other subject reads %q", got)
		}
		testkit.Must(t, reg.Resume("bad"))
		if got := contents(bad("r/f")); got != "text" {
			t.Errorf("after the resume, the suspended subject reads %q", got)
		}
		if n, err := f.ReadAt(buf, 0); n != 4 || err != nil {
			t.Errorf("after the resume, the open file: %d, %v", n, err)
		}
	})
}
