package mount

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/childfs"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// newMountWithFile returns a test mount of a read-only root that has a file "a".
func newMountWithFile(t *testing.T) *testMount {
	t.Helper()
	m := newTestMount(t, guard.ReadOnly, nil)
	testkit.Must(t, os.WriteFile(filepath.Join(m.src, "a"), []byte("hello"), 0o644))
	return m
}

// readAt reads a file through a directory's descriptor. It does so in another process, because
// this process serves the mount.
func readAt(dir *os.File, name string) (string, error) {
	cmd := exec.Command("cat", "/proc/self/fd/3/"+name)
	cmd.ExtraFiles = []*os.File{dir}
	b, err := cmd.Output()
	return string(b), err
}

func mounted(t *testing.T, dev string) bool {
	t.Helper()
	all, err := mountpoint.Mounts()
	testkit.Must(t, err)
	return slices.ContainsFunc(all, func(in mountpoint.Info) bool { return in.Dev == dev })
}

// A mount that is closed while a process holds its top directory is not in the table of mounts.
// Its requests still pass the gate. The mount ends when no process holds it any more.
func TestClosedWhileHeld(t *testing.T) {
	m := newMountWithFile(t)
	dir, err := mountpoint.Top(m.Point())
	testkit.Must(t, err)
	testkit.Must(t, m.Close())
	if mounted(t, m.Info().Dev) {
		t.Errorf("the closed mount is in the table of mounts: %+v", m.Info())
	}
	if got, err := readAt(dir, "code/a"); got != "hello" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := m.reg.Revoke(context.Background(), "code"); err != nil {
		t.Fatal(err)
	}
	if got, err := readAt(dir, "code/a"); err == nil {
		t.Errorf("read %q of a revoked root", got)
	}
	select {
	case <-m.Served():
		t.Fatal("the mount has ended while its top directory is held")
	default:
	}
	testkit.Must(t, dir.Close())
	<-m.Served()
}

// Point and Info return where the mount is. Close removes the mount from the table of mounts.
func TestMountInfo(t *testing.T) {
	m := newMountWithFile(t)
	point := filepath.Dir(m.root)
	if in := m.Info(); m.Point() != point || in.Point != point || in.FSType != mountpoint.FSType || !mounted(t, in.Dev) {
		t.Errorf("Point returns %q, Info %+v; want the mount at %q", m.Point(), in, point)
	}
	if err := m.Close(); err != nil || mounted(t, m.Info().Dev) {
		t.Errorf("after Close: %v, or the mount is still in the table of mounts", err)
	}
	<-m.Served()
}

// A mount whose connection was aborted stays in the table of mounts until it is closed.
func TestClosedAfterAbort(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may force an unmount")
	}
	m := newMountWithFile(t)
	dir, err := mountpoint.Top(m.Point())
	testkit.Must(t, err)
	// A forced unmount of a busy mount fails, after it has aborted the connection.
	if err := unix.Unmount(m.Point(), unix.MNT_FORCE); err != unix.EBUSY {
		t.Fatalf("forced unmount: %v, want EBUSY", err)
	}
	testkit.Must(t, dir.Close())
	<-m.Served()
	if attached, err := m.IsAttached(); !attached || err != nil {
		t.Fatalf("attached before Close: %v, %v", attached, err)
	}
	testkit.Must(t, m.Close())
	if attached, err := m.IsAttached(); attached || err != nil {
		t.Fatalf("attached after Close: %v, %v", attached, err)
	}
}

// A mount at a path that does not exist fails.
func TestNoDirectory(t *testing.T) {
	if m, err := New(guard.NewRegistry(guard.Config{}), Options{Point: filepath.Join(t.TempDir(), "none")}); err == nil {
		_ = m.Close()
		t.Error("no error")
	}
}

// A mount has the flags nosuid and nodev, and a read-only mount also has the flag ro.
func TestFlagsOfMount(t *testing.T) {
	m := newTestMount(t, guard.ReadOnly, func(o *Options, _ *guard.Grant) { o.ReadOnly = true })
	var st unix.Statfs_t
	const want = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV
	if err := childfs.SysStatfs(m.Point(), &st); err != nil || st.Flags&want != want {
		t.Errorf("flags %#x, %v", st.Flags, err)
	}
}
