package revoke

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
	"github.com/rootsfs/rootsfs/mount"
)

// hangLimit distinguishes a hang from slowness. It is several times guard.EndDeadline, and far
// below guard's default timeout of an operation, which is sixty seconds.
const hangLimit = 30 * time.Second

// bounded runs f, which must not hang.
func bounded(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	begin := time.Now()
	go func() { done <- f() }()
	select {
	case err := <-done:
		t.Logf("%s took %v: %v", what, time.Since(begin).Round(time.Millisecond), err)
		return err
	case <-time.After(hangLimit):
		t.Fatalf("%s hangs", what)
		return nil
	}
}

// hangScene is a root that hangs beside one that does not.
type hangScene struct {
	*lab
	slow  *slow
	top   string // the source of the root "hang"
	below string // the hanging file system's directory below top; "" if it is top
	h     *child // holds a file of "local", and the file ok (newHang) or a crowd (newHiddenHang)
	ok    int    // h's descriptor of the file ok, which h has also mapped
	other int    // h's descriptor of the file of "local"
}

// newHang mounts a hanging source as the root "hang".
func newHang(t *testing.T, level mount.Level) *hangScene {
	t.Helper()
	top, local := t.TempDir(), t.TempDir()
	s := &hangScene{slow: newSlow(t, top), top: top}
	testkit.Must(t, os.WriteFile(filepath.Join(local, "f"), []byte("local"), 0o666))
	s.lab = newLab(t, mount.Options{Level: level}, grantOf("hang", top, guard.ReadWrite), grantOf("local", local, guard.ReadWrite))
	s.h = start(t, "holder", nil)
	s.h.call("open", callArg{Path: s.at("ok"), Flags: unix.O_RDWR}, &s.ok)
	s.h.call("map", callArg{FD: s.ok, Len: fileSize, Flags: unix.PROT_WRITE}, nil)
	s.h.call("open", callArg{Path: s.in("local", "f")}, &s.other)
	s.slow.releaseAtEnd()
	return s
}

// at returns the path of a file of the hanging file system in the mount.
func (s *hangScene) at(name string) string { return s.in("hang", s.below, name) }

// checkDead checks that the root's file ok, which does not hang, can no longer be used, and that
// the other root is alive.
func (s *hangScene) checkDead() {
	s.t.Helper()
	if err := s.h.try("load", callArg{Off: 0}, nil); err == nil {
		s.t.Error("a page of a file that does not hang is still mapped")
	}
	if err := s.h.try("read", callArg{FD: s.ok, Len: 4}, nil); err == nil {
		s.t.Error("a file that does not hang can still be read")
	}
	if err := s.h.try("read", callArg{FD: s.other, Len: 4}, nil); err != nil {
		s.t.Errorf("another root of the mount died: %v", err)
	}
}

// A root on a source that hangs, in whatever operation, is still revoked: its other files
// are dead, and the mount's other roots are alive.
func TestHangingSourceDoesNotHangRevoke(t *testing.T) {
	ops := []struct {
		block string
		cmd   string
		flags int
	}{
		{"read slow%d", "read", unix.O_RDONLY},
		{"read slow%d", "read", unix.O_RDWR},
		{"write slow%d", "write", unix.O_RDWR},
		{"getattr slow%d", "stat", 0},
		{"lookup slow%d", "stat", 0},
		{"open slow%d", "open", unix.O_RDONLY},
	}
	for _, s := range []setting{settings[0], settings[1], settings[3]} {
		for _, op := range ops {
			if s.level == mount.Max && op.cmd == "open" {
				continue // the daemon sees no open
			}
			name := fmt.Sprintf("%s/%s/%x", s.name, op.block[:len(op.block)-7], op.flags)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				sc := newHang(t, s.level)
				sc.hangIn(op.block, op.cmd, op.flags, 6)
				err := bounded(t, "revoke", func() error {
					_, err := sc.reg.Revoke(context.Background(), "hang")
					return err
				})
				// A call that changes the source continues, and the revocation's error reports the call.
				const left = "6 calls that change the source have not returned and may still arrive"
				if op.cmd == "write" && (err == nil || !strings.Contains(err.Error(), left)) {
					t.Errorf("revoke: %v, want: %s", err, left)
				} else if op.cmd != "write" && err != nil {
					t.Errorf("revoke: %v", err)
				}
				sc.checkDead()
			})
		}
	}
}

// hangIn makes n processes hang in an operation, each on a file of its own. block is the format
// of slowfs's key for the operation; cmd is the holder's command.
func (s *hangScene) hangIn(block, cmd string, flags, n int) []*child {
	s.t.Helper()
	var all []*child
	for i := range n {
		key := fmt.Sprintf(block, i)
		name := s.at(fmt.Sprintf("slow%d", i))
		c := start(s.t, "holder", nil)
		a := callArg{Path: name, Len: 10, Text: "0123456789", Flags: flags}
		if cmd == "read" || cmd == "write" {
			c.call("open", callArg{Path: name, Flags: flags}, &a.FD)
		}
		s.slow.call("block", key, nil)
		testkit.Must(s.t, c.send(cmd, a))
		s.slow.await(key, 1)
		all = append(all, c)
	}
	s.slow.releaseAtEnd()
	return all
}

// crowdSize is the number of files in a crowd: mapped files that do not hang, beside files that
// hang. There are so many that some stay mapped if the revocation gets stuck before it is complete.
const crowdSize = 300

// newHiddenHang makes a local root with a crowd of local files in in/, all mapped. In below/ a
// mount hangs, which the daemon does not expect.
func newHiddenHang(t *testing.T, level mount.Level) *hangScene {
	t.Helper()
	top, local := t.TempDir(), t.TempDir()
	for _, d := range []string{"below", "in"} {
		testkit.Must(t, os.Mkdir(filepath.Join(top, d), 0o777))
	}
	for i := range crowdSize {
		testkit.Must(t, os.WriteFile(filepath.Join(top, "in", crowdName(i)), make([]byte, 4096), 0o666))
	}
	testkit.Must(t, os.WriteFile(filepath.Join(local, "f"), []byte("local"), 0o666))
	s := &hangScene{slow: newSlow(t, filepath.Join(top, "below")), top: top, below: "below"}
	g := grantOf("hang", top, guard.ReadWrite)
	g.Policy.OtherFileSystems = true
	s.lab = newLab(t, mount.Options{Level: level}, g, grantOf("local", local, guard.ReadWrite))
	s.h = start(t, "holder", nil)
	s.h.call("open", callArg{Path: s.in("local", "f")}, &s.other)
	s.h.call("crowd", callArg{Path: s.in("hang", "in"), Len: crowdSize}, nil)
	return s
}

// crowdAlive counts the files of the crowd whose pages are still mapped.
func (s *hangScene) crowdAlive() (alive int) {
	s.t.Helper()
	s.h.call("crowd left", nil, &alive)
	return alive
}

// The daemon may not know that a source can hang (a mount below a local root). Revoking still
// returns in time, and no file that does not hang stays mapped.
func TestUnexpectedHangDoesNotHangRevoke(t *testing.T) {
	for _, s := range settings[:2] {
		for _, n := range []int{1, 6} {
			t.Run(fmt.Sprintf("%s/%d", s.name, n), func(t *testing.T) {
				t.Parallel()
				sc := newHiddenHang(t, s.level)
				sc.hangIn("read slow%d", "read", unix.O_RDONLY, n)
				err := bounded(t, "revoke", func() error {
					_, err := sc.reg.Revoke(context.Background(), "hang")
					return err
				})
				if err == nil {
					t.Log("revoke returned no error")
				}
				if left := sc.crowdAlive(); left > 0 {
					t.Errorf("%d of %d files that do not hang are still mapped", left, crowdSize)
				}
			})
		}
	}
}

// A root lies inside a root that hangs unexpectedly. When the inner root has been revoked, none of
// its files is still mapped through the outer root.
func TestUnexpectedHangOfTheOuterRoot(t *testing.T) {
	sc := newHiddenHang(t, mount.Audit)
	sc.grant(grantOf("inner", filepath.Join(sc.top, "in"), guard.ReadWrite))
	sc.h.call("crowd", callArg{Path: sc.in("hang", "in"), Len: crowdSize}, nil)
	sc.hangIn("read slow%d", "read", unix.O_RDONLY, 6)
	err := bounded(t, "revoke of the inner root", func() error {
		_, err := sc.reg.Revoke(context.Background(), "inner")
		return err
	})
	left := sc.crowdAlive()
	if left > 0 {
		t.Errorf("%d of %d files of the revoked inner root are still mapped through the outer one", left, crowdSize)
	}
	if left > 0 && err == nil {
		t.Error("and revoke returned no error")
	}
}

// A hung operation does not block a change of the root's mode, nor the grant or the revocation of a
// root inside that root.
func TestHangingSourceDoesNotHangOtherChanges(t *testing.T) {
	t.Run("set ro", func(t *testing.T) {
		t.Parallel()
		sc := newHang(t, mount.Audit)
		sc.hangIn("read slow%d", "read", unix.O_RDONLY, 1)
		err := bounded(t, "set ro", func() error { return sc.reg.Set(context.Background(), "hang", guard.ReadOnly) })
		t.Log(err)
		if err := sc.h.try("write", callArg{FD: sc.ok, Text: "no"}, nil); !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.ENOTCONN) {
			t.Errorf("write after set ro: %v, want EROFS, or ENOTCONN where the connection could be aborted", err)
		}
	})
	t.Run("grant of a root inside", func(t *testing.T) {
		t.Parallel()
		sc := newHang(t, mount.Audit)
		sc.hangIn("read slow%d", "read", unix.O_RDONLY, 1)
		_ = bounded(t, "grant", func() error {
			g := grantOf("inner", filepath.Join(sc.slow.dir, "in"), guard.ReadOnly)
			g.Origin = "test"
			_, err := sc.reg.Grant(context.Background(), g)
			return err
		})
	})
	t.Run("revoke of a root inside", func(t *testing.T) {
		t.Parallel()
		sc := newHang(t, mount.Audit)
		sc.grant(grantOf("inner", filepath.Join(sc.slow.dir, "in"), guard.ReadOnly))
		sc.hangIn("read slow%d", "read", unix.O_RDONLY, 1)
		_ = bounded(t, "revoke of the inner root", func() error {
			_, err := sc.reg.Revoke(context.Background(), "inner")
			return err
		})
	})
}

// If a read-only root around a file is granted while the file is being opened, the open is refused,
// or its descriptor cannot be written to.
func TestOpenDuringAGrantInside(t *testing.T) {
	sc := newHang(t, mount.Audit)
	c := start(t, "holder", nil)
	sc.slow.releaseAtEnd()
	sc.slow.call("block", "open ok", nil)
	testkit.Must(t, c.send("open", callArg{Path: sc.in("hang", "in", "ok"), Flags: unix.O_RDWR}))
	sc.slow.await("open ok", 1)
	granted := make(chan error, 1)
	go func() {
		g := grantOf("inner", filepath.Join(sc.slow.dir, "in"), guard.ReadOnly)
		g.Origin = "test"
		_, err := sc.reg.Grant(context.Background(), g)
		granted <- err
	}()
	testkit.Until(t, "the inner root is being granted", func() bool { _, ok := sc.reg.Lookup("inner"); return ok })
	sc.slow.call("release", "open ok", nil)
	var fd int
	err := c.receive("open", &fd)
	testkit.Must(t, <-granted)
	if err != nil {
		return // the open was refused, which is right, too
	}
	if err := c.try("write", callArg{FD: fd, Text: "no"}, nil); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a descriptor opened while the inner read-only root was being granted: write: %v, want EROFS", err)
	}
}
