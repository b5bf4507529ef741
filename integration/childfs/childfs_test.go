package childfs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// TestMain does not call childfs.Main, which would fail because TestOwnUseIsFound uses its own
// process's mount.
func TestMain(m *testing.M) {
	childfs.Serve()
	os.Exit(m.Run())
}

// OwnUses reports a test that uses its own process's mount, with the test's file. It does not
// report a use of the mount in the child.
func TestOwnUseIsFound(t *testing.T) {
	if err := mountpoint.CheckFUSE(); err != nil {
		t.Skip(err)
	}
	src, point := t.TempDir(), t.TempDir()
	reg := guard.NewRegistry(guard.Config{Opener: vfs.Opener()})
	if err := os.WriteFile(filepath.Join(src, "f"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := reg.Grant(context.Background(), guard.Grant{Root: "code", Dir: names.Foreign(src), Policy: guard.Policy{Rights: guard.ReadOnly}, Origin: "test"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mount.New(reg, mount.Options{Point: point, Level: mount.Strict})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-m.Served()
	})
	dir := filepath.Join(point, "code")
	if b, err := childfs.ReadFile(dir + "/f"); err != nil || string(b) != "text" {
		t.Errorf("in the child: %q, %v", b, err)
	}
	if list, err := childfs.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("in the child: %v, %v", list, err)
	}
	if uses := childfs.OwnUses(); len(uses) > 0 {
		t.Fatalf("uses by the child are reported: %v", uses)
	}
	f, err := os.Open(dir + "/f") // the use that OwnUses has to report
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	uses := strings.Join(childfs.OwnUses(), "\n")
	for _, want := range []string{"LOOKUP by childfs/childfs_test.go:", "OPEN by childfs/childfs_test.go:"} {
		if !strings.Contains(uses, want) {
			t.Errorf("no %q among:\n%s", want, uses)
		}
	}
}

// Errors come from the child as os and unix return them.
func TestErrors(t *testing.T) {
	name := filepath.Join(t.TempDir(), "none")
	_, err := childfs.Open(name)
	var p *os.PathError
	if !errors.As(err, &p) || p.Path != name || !errors.Is(err, os.ErrNotExist) || !os.IsNotExist(err) {
		t.Errorf("open: %#v", err)
	}
	var l *os.LinkError
	if err := childfs.Rename(name, name+"2"); !errors.As(err, &l) || l.New != name+"2" || !errors.Is(err, unix.ENOENT) {
		t.Errorf("rename: %#v", err)
	}
	if err := childfs.SysRmdir(name); err != unix.ENOENT { //nolint:errorlint // the number itself
		t.Errorf("rmdir: %#v", err)
	}
	f, err := childfs.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close()); err != nil {
		t.Error(err)
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
}

// Values that a function writes into slices and through pointers reach the caller.
func TestResults(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := childfs.WriteFile(name, []byte("text"), 0o640); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := childfs.SysStat(name, &st); err != nil || st.Size != 4 || st.Mode&0o777 != 0o640 {
		t.Errorf("stat: %+v, %v", st, err)
	}
	f, err := childfs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 3)
	if n, err := f.ReadAt(b, 1); n != 3 || err != nil || string(b) != "ext" {
		t.Errorf("read: %d, %v, %q", n, err, b)
	}
}

// Calls that pass the same memory do not race if the child leaves it unchanged.
func TestCallsShareArguments(t *testing.T) {
	dir, text := t.TempDir(), []byte("text")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 5 {
				if err := childfs.WriteFile(fmt.Sprintf("%s/%d-%d", dir, i, n), text, 0o644); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
