package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount/childfs"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// newDetachedMount is newTestMount of a mount that is nowhere, with a file "a".
func newDetachedMount(t *testing.T) *testMount {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root has detached mounts")
	}
	m := newTestMount(t, guard.ReadOnly, func(o *Options, _ *guard.Grant) { o.Detached, o.Point = true, "" })
	if err := os.WriteFile(filepath.Join(m.src, "a"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	return m
}

// readAt reads a file by a directory's descriptor, in another process: this one serves
// the mount.
func readAt(dir *os.File, name string) (string, error) {
	cmd := exec.Command("cat", "/proc/self/fd/3/"+name)
	cmd.ExtraFiles = []*os.File{dir}
	b, err := cmd.Output()
	return string(b), err
}

func mounted(t *testing.T, dev string) bool {
	t.Helper()
	all, err := mountpoint.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(in mountpoint.Info) bool { return in.Dev == dev })
}

// A detached mount is in no table of mounts, is read by whoever has a copy, obeys the
// gate, and ends with the last copy.
func TestDetachedMount(t *testing.T) {
	m := newDetachedMount(t)
	if m.Point() != "" || m.Info().Dev == "" || mounted(t, m.Info().Dev) {
		t.Errorf("it is somewhere: %+v", m.Info())
	}
	dir, err := m.Copy()
	if err != nil {
		t.Fatal(err)
	}
	m.LetGo()
	if _, err := m.Copy(); !errors.Is(err, mountpoint.ErrNotDetached) {
		t.Errorf("a copy of what was let go of: %v", err)
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
		t.Fatal("it has ended before the last copy")
	default:
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	<-m.Served()
}

// One that is attached is like one that was made there.
func TestAttachedMount(t *testing.T) {
	m := newDetachedMount(t)
	point := t.TempDir()
	if err := m.Attach(filepath.Join(point, "none")); err == nil {
		t.Error("attached to what is not there")
	}
	if err := m.Attach(point); err != nil {
		t.Fatal(err)
	}
	if in := m.Info(); m.Point() != point || in.Point != point || in.FSType != mountpoint.FSType || !mounted(t, in.Dev) {
		t.Errorf("it is at %q: %+v", m.Point(), in)
	}
	if got, err := exec.Command("cat", filepath.Join(point, "code/a")).Output(); string(got) != "hello" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if err := m.Attach(t.TempDir()); !errors.Is(err, mountpoint.ErrNotDetached) {
		t.Errorf("attached twice: %v", err)
	}
	if err := m.Close(); err != nil || mounted(t, m.Info().Dev) {
		t.Errorf("closed: %v", err)
	}
}

// One that nobody wants ends when it is closed; one that is read-only says so.
func TestDetachedReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has detached mounts")
	}
	m := newTestMount(t, guard.ReadOnly, func(o *Options, _ *guard.Grant) { o.Detached, o.ReadOnly, o.Point = true, true, "" })
	dir, err := m.Copy()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := childfs.SysStatfs(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), dir.Fd()), &st); err != nil || st.Flags&unix.ST_RDONLY == 0 || st.Flags&(unix.ST_NOSUID|unix.ST_NODEV) != unix.ST_NOSUID|unix.ST_NODEV {
		t.Errorf("flags %#x, %v", st.Flags, err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	<-m.Served()
}
