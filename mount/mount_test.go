package mount

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// testMount is a registry with one root called "code" and its mount.
type testMount struct {
	*Mount
	reg  *guard.Registry
	src  string
	root string // MOUNTPOINT/code
}

func newTestMount(t testing.TB, rights guard.Rights, change func(*Options, *guard.Grant)) *testMount {
	t.Helper()
	if err := mountpoint.CheckFUSE(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must be able to mount: %v", err)
		}
		t.Skip(err)
	}
	src, point := t.TempDir(), t.TempDir()
	reg := guard.NewRegistry(guard.Config{Opener: vfs.StagingOpener(t.TempDir(), "test")})
	opt := Options{Point: point}
	grant := guard.Grant{Root: "code", Dir: names.Foreign(src), Policy: guard.Policy{Rights: rights}, Origin: "test"}
	if change != nil {
		change(&opt, &grant)
	}
	if _, err := reg.Grant(context.Background(), grant); err != nil {
		t.Fatal(err)
	}
	m, err := New(reg, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = reg.RevokeAll(context.Background())
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		<-m.Served()
	})
	return &testMount{Mount: m, reg: reg, src: src, root: filepath.Join(point, "code")}
}

// levels runs a test at every cache level.
func levels(t *testing.T, f func(t *testing.T, level Level)) {
	for _, l := range []Level{Strict, Audit, Max} {
		t.Run(l.String(), func(t *testing.T) { f(t, l) })
	}
}

// This is the shortest test of a whole mount: a read, a refused write and a revocation. R063, R070.
func TestReadOnlyRootReadAndRevoked(t *testing.T) {
	levels(t, func(t *testing.T, level Level) {
		m := newTestMount(t, guard.ReadOnly, func(o *Options, _ *guard.Grant) { o.Level, o.ReadOnly = level, level == Max })
		if err := childfs.WriteFile(filepath.Join(m.src, "a"), []byte("hello"), 0o644); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(m.root, "a")
		got, err := childfs.ReadFile(name)
		if err != nil || string(got) != "hello" {
			t.Fatalf("read %q, %v", got, err)
		}
		if err := childfs.WriteFile(filepath.Join(m.root, "b"), nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("create in a read-only root: %v, want EROFS", err)
		}
		f, err := childfs.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := m.reg.Revoke(context.Background(), "code"); err != nil {
			t.Fatal(err)
		}
		if n, err := f.ReadAt(make([]byte, 5), 0); err == nil {
			t.Errorf("read %d bytes of a revoked file", n)
		}
		if _, err := childfs.Stat(name); err == nil {
			t.Error("stat of a revoked path succeeded")
		}
	})
}

// Package mount does not change the umask of the process, because the umask governs files and
// programs of the process itself. Files that a program makes through the mount follow the umask
// of that program.
func TestUmaskOfTheProcess(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	m := newTestMount(t, guard.ReadWrite, nil)
	if now := unix.Umask(0o027); now != 0o027 {
		t.Errorf("New has set the umask to %#o", now)
	}
	a := &asker{T: t, m: m, cancel: make(chan struct{})}
	var out fuse.EntryOut
	a.ok(m.raw.Lookup(a.cancel, a.in(fuse.FUSE_ROOT_ID), "code", &out))
	root := *a.in(out.NodeId)
	a.ok(m.raw.Mkdir(a.cancel, &fuse.MkdirIn{InHeader: root, Mode: 0o777, Umask: 0o002}, "d", &out))
	a.ok(m.raw.Create(a.cancel, &fuse.CreateIn{InHeader: root, Flags: unix.O_RDWR, Mode: 0o666, Umask: 0}, "f", &fuse.CreateOut{}))
	for name, want := range map[string]os.FileMode{"d": 0o775, "f": 0o666} {
		st, err := childfs.Stat(filepath.Join(m.src, name))
		testkit.Must(t, err)
		if st.Mode().Perm() != want {
			t.Errorf("%s has the mode %#o, want %#o", name, st.Mode().Perm(), want)
		}
	}
}

// A process with the descriptor of the connection could answer for the mount. So no child of
// this process gets it.
func TestChildrenDoNotGetTheConnection(t *testing.T) {
	newTestMount(t, guard.ReadOnly, nil)
	open := false
	list, err := os.ReadDir("/proc/self/fd")
	for _, e := range list {
		to, _ := os.Readlink("/proc/self/fd/" + e.Name()) // fails for the descriptor of the list, which is closed
		open = open || to == mountpoint.Device
	}
	if !open {
		t.Fatalf("this process has no descriptor of the connection: %v, %v", list, err)
	}
	out, err := exec.Command("ls", "-l", "/proc/self/fd").Output()
	if err != nil || strings.Contains(string(out), mountpoint.Device) {
		t.Errorf("a child has %s, %v", out, err)
	}
}
