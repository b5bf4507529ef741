package beneath

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/oldkernel"
)

// leaseOn returns a lease of an operation in a root on dir.
func leaseOn(t *testing.T, dir string) *guard.Lease {
	t.Helper()
	reg := guard.NewRegistry(guard.Config{Opener: Opener{}})
	if _, err := reg.Grant(t.Context(), guard.Grant{Root: "r", Dir: names.Foreign(dir), Origin: "test", Policy: guard.Policy{Rights: guard.ReadWrite}}); err != nil {
		t.Fatal(err)
	}
	p, err := guard.NewPath("r", "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := reg.Admit(t.Context(), guard.Request{Caller: guard.Caller{Via: guard.ViaFUSE}, Op: names.OpWrite, Path: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Done(0, nil) })
	return l
}

// Before Linux 5.8, utimensat(2) does not accept AT_EMPTY_PATH. Utimes sets the modification times
// of files, directories and links nevertheless, also through an O_PATH descriptor. A link's target
// keeps its time.
func TestUtimesBeforeLinux58(t *testing.T) {
	if !oldkernel.Enter(t, oldkernel.UtimesOfDescriptor) {
		return
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	l := leaseOn(t, dir)
	for _, err := range []error{os.WriteFile(at("file"), nil, 0o600), os.WriteFile(at("target"), nil, 0o600), os.Mkdir(at("sub"), 0o700), os.Symlink("target", at("link"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	then := time.Date(2020, 1, 1, 0, 0, 0, 42, time.UTC)
	for name, flags := range map[string]int{"file": unix.O_RDWR, "sub": unix.O_RDONLY, "link": unix.O_PATH | unix.O_NOFOLLOW, "": unix.O_PATH} {
		fd, err := unix.Open(at(name), flags|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = Utimes(l, changeable(fd), Omit, At(then))
		info, statErr := os.Lstat(at(name))
		if err != nil || statErr != nil || !info.ModTime().Equal(then) {
			t.Errorf("%q: %v; its time is %v (%v), want %v", name, err, info.ModTime(), statErr, then)
		}
		_ = unix.Close(fd)
	}
	if info, err := os.Stat(at("target")); err != nil || info.ModTime().Equal(then) {
		t.Errorf("the link's target: its time was set, too (%v)", err)
	}
}
