package revoke

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/vfs"
)

// soak says whether loops run in full.
func soak() bool { return os.Getenv("ROOTSFS_SOAK") != "" }

// reps returns full with ROOTSFS_SOAK, and short without it.
func reps(short, full int) int {
	if soak() {
		return full
	}
	return short
}

// lab is a registry and its mount, served by this process.
type lab struct {
	stages string // where the changes of staged roots lie
	t      testing.TB
	reg    *guard.Registry
	m      *mount.Mount
	point  string
	events chan guard.Event
}

// needFUSE skips the test where there is no FUSE and for users other than root. In CI it fails the
// test instead.
func needFUSE(t testing.TB) {
	t.Helper()
	err := mountpoint.CheckFUSE()
	if err == nil && os.Geteuid() != 0 {
		err = fmt.Errorf("needs root: mount namespaces and bind mounts")
	}
	if err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("CI must be able to mount: %v", err)
	}
	t.Skip(err)
}

func newLab(t testing.TB, opt mount.Options, grants ...guard.Grant) *lab {
	t.Helper()
	needFUSE(t)
	l := &lab{t: t, point: t.TempDir(), stages: t.TempDir(), events: make(chan guard.Event, 64)}
	l.reg = guard.NewRegistry(guard.Config{Opener: vfs.StagingOpener(l.stages, "revoke"), Observe: func(e guard.Event) {
		if e.Kind == guard.EventRefusal {
			return
		}
		select {
		case l.events <- e:
		default:
		}
	}})
	for _, g := range grants {
		l.grant(g)
	}
	opt.Point = l.point
	m, err := mount.New(l.reg, opt)
	if err != nil {
		t.Fatal(err)
	}
	l.m = m
	dev := ""
	if in, err := mountpoint.Find(l.point); err == nil {
		dev = in.Dev
	}
	t.Cleanup(func() {
		_, _ = l.reg.RevokeAll(context.Background())
		if err := m.Close(); err != nil {
			t.Error("unmount:", err)
		}
		select {
		case <-m.Served():
		case <-time.After(time.Minute):
			t.Error("the connection did not end; aborting it")
			_ = mountpoint.Abort(dev)
		}
		// A mount whose connection was aborted stays mounted, dead.
		_ = unix.Unmount(l.point, unix.MNT_DETACH)
	})
	return l
}

func (l *lab) grant(g guard.Grant) {
	l.t.Helper()
	g.Origin = "test"
	if _, err := l.reg.Grant(context.Background(), g); err != nil {
		l.t.Fatalf("grant %s: %v", g.Root, err)
	}
}

func (l *lab) revoke(name guard.RootName) {
	l.t.Helper()
	if _, err := l.reg.Revoke(context.Background(), name); err != nil {
		l.t.Fatalf("revoke %s: %v", name, err)
	}
}

func (l *lab) in(elem ...string) string {
	return filepath.Join(append([]string{l.point}, elem...)...)
}

// grantOf returns a grant of a directory.
func grantOf(name, dir string, rights guard.Rights) guard.Grant {
	return guard.Grant{Root: guard.RootName(name), Dir: names.Foreign(dir), Policy: guard.Policy{Rights: rights}}
}

const (
	fileSize = 64 << 10
	bigNames = 150 // fewer than fit into a buffer of the daemon, more than fit into the kernel's
)

// fill makes the source tree whose files holders open and map.
func fill(t testing.TB, dir string) {
	t.Helper()
	for _, n := range []string{"read", "write", "mapr", "mapw", "doomed", "acl", "append", "mapcold"} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, n), []byte(strings.Repeat(n[:1], fileSize)), 0o666))
	}
	testkit.Must(t, os.Chmod(filepath.Join(dir, "acl"), 0o640))
	testkit.Must(t, unix.Setxattr(filepath.Join(dir, "acl"), "system.posix_acl_access", someACL(), 0))
	testkit.Must(t, unix.Setxattr(filepath.Join(dir, "read"), "user.note", []byte("secret"), 0))
	testkit.Must(t, os.Symlink("read", filepath.Join(dir, "link")))
	bin, err := os.ReadFile("/bin/true")
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "exec"), bin, 0o755))
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "dir", "sub"), 0o777))
	for _, n := range []string{"a", "b", "c"} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "dir", n), []byte(n), 0o666))
	}
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "big"), 0o777))
	for i := range bigNames {
		testkit.Must(t, makeEmpty(filepath.Join(dir, "big", fmt.Sprintf("a-name-of-some-length-%06d", i))))
	}
}

// makeEmpty makes an empty file with one system call.
func makeEmpty(path string) error { return unix.Mknod(path, unix.S_IFREG|0o666, 0) }

// someACL is user::rw-, user:65432:rw-, group::r--, mask::rw-, other::---.
func someACL() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 6, 0xffffffff}, {2, 6, 65432}, {4, 4, 0xffffffff}, {0x10, 6, 0xffffffff}, {0x20, 0, 0xffffffff}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}
