package mount

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/vfs"
)

// onceMount makes a mount with a root that is a single file, granted for one use.
func onceMount(t *testing.T, level Level, rights guard.Rights) (reg *guard.Registry, rec *guardtest.Recorder, name, src string) {
	t.Helper()
	rec = &guardtest.Recorder{}
	reg = guard.NewRegistry(guard.Config{Opener: vfs.Opener(), Auditor: rec})
	front := mountFront(t, Options{Level: level}, reg)
	src = filepath.Join(t.TempDir(), "letter")
	if err := childfs.WriteFile(src, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := reg.Grant(context.Background(), guard.Grant{Root: "letter", Dir: names.Foreign(src), Origin: "test", Policy: guard.Policy{Rights: rights, Once: true}})
	if err != nil {
		t.Fatal(err)
	}
	return reg, rec, front.Host("letter"), src
}

func rootGone(reg *guard.Registry) func() bool {
	return func() bool { _, ok := reg.Lookup("letter"); return !ok }
}

// R005, R139: a root may be granted for one use of one file. Reading attributes does not
// count as a use. An open is the use, which lasts until the last copy of its descriptor and its last
// mapping are gone. Meanwhile another open is refused. After the use the root ends, with one record.
func TestOneUseOfAFile(t *testing.T) {
	for _, level := range []Level{Strict, Audit} {
		t.Run(level.String(), func(t *testing.T) {
			reg, rec, name, _ := onceMount(t, level, guard.ReadOnly)
			for range 3 {
				if info, err := childfs.Stat(name); err != nil || info.Size() != 6 {
					t.Fatal(info, err)
				}
			}
			f, err := childfs.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := childfs.Open(name); !errors.Is(err, unix.EACCES) {
				t.Errorf("a second opening: %v, want EACCES", err)
			}
			if st, _ := reg.Lookup("letter"); st.Once != "in use" {
				t.Errorf("status says %q", st.Once)
			}
			page := mapFile(t, f, 6, unix.PROT_READ)
			again, err := childfs.SysDup(int(f.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			buf := make([]byte, 6)
			if n, err := childfs.SysPread(again, buf, 0); n != 6 || err != nil {
				t.Errorf("through the copy: %d, %v", n, err)
			}
			_ = childfs.SysClose(again)
			if page.load() != nil || rootGone(reg)() {
				t.Error("the mapping does not keep the use")
			}
			if _, err := childfs.Open(name); !errors.Is(err, unix.EACCES) {
				t.Errorf("opened while it is mapped: %v, want EACCES", err)
			}
			page.unmap()
			testkit.Until(t, "the end of the root", rootGone(reg))
			if _, err := childfs.ReadFile(name); err == nil {
				t.Error("read after its use")
			}
			expired := func() (n int) {
				for _, r := range rec.All() {
					if r.Op == names.OpExpire && r.Path.Root == "letter" {
						n++
					}
				}
				return n
			}
			testkit.Until(t, "the record of the end", func() bool { return expired() > 0 }) // it comes when all was taken back
			if n := expired(); n != 1 {
				t.Errorf("%d records of the end", n)
			}
		})
	}
}

// If many programs open the file at the same moment, one succeeds.
func TestOneUseAmongMany(t *testing.T) {
	reg, _, name, _ := onceMount(t, Audit, guard.ReadOnly)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var got []*childfs.File
	for range 32 {
		wg.Go(func() {
			if f, err := childfs.Open(name); err == nil {
				mu.Lock()
				got = append(got, f)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(got) != 1 {
		t.Errorf("%d opened it", len(got))
	}
	for _, f := range got {
		_ = f.Close()
	}
	testkit.Until(t, "the end of the root", rootGone(reg))
}

// A program that rewrites the file (open with O_TRUNC, write, close) makes one use. A refused
// program makes none.
func TestOneUseForWriting(t *testing.T) {
	reg, _, name, src := onceMount(t, Audit, guard.ReadWrite)
	if err := childfs.Remove(name); err == nil {
		t.Fatal("a root was removed")
	}
	if err := childfs.WriteFile(name, []byte("answer"), 0o644); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the end of the root", rootGone(reg))
	if got := contents(src); got != "answer" {
		t.Errorf("the source has %q", got)
	}
	reg, _, name, _ = onceMount(t, Audit, guard.ReadOnly)
	if err := childfs.WriteFile(name, nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Fatalf("%v, want EROFS", err)
	}
	if got := contents(name); got != "secret" {
		t.Errorf("after a refusal: %q", got)
	}
	testkit.Until(t, "the end of the root", rootGone(reg))
}

// A grant for one use is refused for directories, and by mounts that get no request for an open.
func TestOneUseRefused(t *testing.T) {
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	g := guard.Grant{Root: "d", Dir: names.Foreign(t.TempDir()), Origin: "test", Policy: guard.Policy{Rights: guard.ReadOnly, Once: true}}
	if _, err := reg.Grant(context.Background(), g); names.Reason(err) != names.Invalid {
		t.Errorf("a directory: %v", err)
	}
	if checkPolicy(Options{Level: Max, ReadOnly: true}, nil, g.Policy) == nil {
		t.Error("level max takes it")
	}
}
