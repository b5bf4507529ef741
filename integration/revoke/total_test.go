package revoke

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/mount"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// setting is a way of granting a root and mounting it.
type setting struct {
	name   string
	level  mount.Level
	rights guard.Rights
	ro     bool // the mount itself is read-only
}

var settings = []setting{
	{"strict", mount.Strict, guard.ReadWrite, false},
	{"audit", mount.Audit, guard.ReadWrite, false},
	{"audit-ro", mount.Audit, guard.ReadOnly, false},
	{"max-rw", mount.Max, guard.ReadWrite, false},
	{"max-ro", mount.Max, guard.ReadOnly, true},
	{"strict-staged", mount.Strict, guard.ReadWrite | guard.Stage, false},
	{"audit-staged", mount.Audit, guard.ReadWrite | guard.Stage, false},
}

// scene is a lab with two holders. The first uses the mount itself; the second uses a bind copy of
// the root in its own mount namespace.
type scene struct {
	*lab
	src     string
	s       setting
	holders []*child
}

// newScene grants the root for the duration life, or without an expiry if life is 0.
func newScene(t testing.TB, s setting, life time.Duration) *scene {
	t.Helper()
	sc := &scene{src: t.TempDir(), s: s}
	fill(t, sc.src)
	g := grantOf("code", sc.src, s.rights)
	if life > 0 {
		g.Expires = time.Now().Add(life) // after fill, which takes time
	}
	sc.lab = newLab(t, mount.Options{Level: s.level, ReadOnly: s.ro}, g)
	sc.watchUnmount()
	sc.holders = []*child{
		start(t, "holder", nil),
		start(t, "holder", &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}),
	}
	return sc
}

// watchUnmount revokes all roots when another program unmounts the mount. A session of rootsfs does
// the same.
func (sc *scene) watchUnmount() {
	in, err := mountpoint.Find(sc.point)
	if err != nil {
		sc.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	sc.t.Cleanup(cancel)
	gone, err := mountpoint.WatchGone(ctx, in.ID)
	if err != nil {
		sc.t.Fatal(err)
	}
	go func() {
		select {
		case <-gone:
			_, _ = sc.reg.RevokeAll(context.Background())
		case <-ctx.Done():
		}
	}()
}

// hold makes both holders open and map everything, and checks that all probes work.
func (sc *scene) hold() error {
	rw := sc.s.rights.Mutating()
	for i, h := range sc.holders {
		a := holdArg{Root: sc.in("code"), RW: rw}
		if i == 1 {
			a.Bind, a.Mount = sc.t.(interface{ TempDir() string }).TempDir(), sc.point
		}
		if err := h.try("hold", a, nil); err != nil {
			return err
		}
	}
	// The doomed file loses its name, through the mount where that is allowed.
	if rw {
		if err := sc.holders[0].try("unlink", nil, nil); err != nil {
			return fmt.Errorf("unlink: %w", err)
		}
	} else if err := os.Remove(filepath.Join(sc.src, "doomed")); err != nil {
		return err
	}
	for i, h := range sc.holders {
		res, err := probeAll(h)
		if err != nil {
			return err
		}
		for _, r := range res {
			if r.Err != "" {
				return fmt.Errorf("holder %d, before: %s: %s", i, r.Name, r.Err)
			}
		}
		if rw {
			if err := h.try("dirty", dirtyArg{Off: 4096 * (i + 1), Text: marker(i)}, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func marker(i int) string { return fmt.Sprintf("dirty page of holder %d", i) }

func probeAll(h *child) ([]result, error) {
	var res []result
	err := h.try("probe", nil, &res)
	return res, err
}

// countAlive adds one to into[NAME] for each probe NAME that still works. Probes by path count only
// if byPath is set, and probes of kind kernelOnly never count.
func (sc *scene) countAlive(byPath bool, into map[string]int) {
	sc.t.Helper()
	for i, h := range sc.holders {
		res, err := probeAll(h)
		if err != nil {
			sc.t.Fatalf("holder %d, after: %v", i, err)
		}
		for _, r := range res {
			if r.Err != "" || r.Kind == kernelOnly || !byPath && (r.Kind == path || r.Kind == pathW) {
				continue
			}
			into[r.Name]++
		}
	}
}

// ending is a way a root ends.
type ending struct {
	name string
	end  func(sc *scene) error
	// regrantable reports whether the root can be granted again in the same mount.
	regrantable bool
}

var endings = []ending{
	{"revoke", func(sc *scene) error {
		_, err := sc.reg.Revoke(context.Background(), "code")
		return err
	}, true},
	{"expiry", func(sc *scene) error { return sc.waitFor(guard.EventExpired) }, true},
	{"replaced", func(sc *scene) error {
		if err := os.Rename(sc.src, sc.src+".old"); err != nil {
			return err
		}
		if err := os.Mkdir(sc.src, 0o777); err != nil {
			return err
		}
		return sc.reg.Recheck(context.Background(), "code")
	}, false},
	{"umount -l", func(sc *scene) error {
		if err := unix.Unmount(sc.point, unix.MNT_DETACH); err != nil {
			return err
		}
		return sc.waitFor(guard.EventRevoked)
	}, false},
}

func (sc *scene) waitFor(k guard.EventKind) error {
	limit := time.After(callTimeout)
	for {
		select {
		case e := <-sc.events:
			if e.Kind == k {
				return nil
			}
		case <-limit:
			return fmt.Errorf("no event %q", k)
		}
	}
}

func (sc *scene) ended() bool {
	_, live := sc.reg.Lookup("code")
	return !live
}

// When the ending of a root has returned, everything that a process can hold of the root is
// dead, at every level, except what the kernel alone answers (kernelOnly). Dirty pages are in the
// source, or in the stage of a staged root. Granting the root again revives nothing.
func TestEndingIsTotal(t *testing.T) {
	for _, s := range settings {
		for _, e := range endings {
			t.Run(s.name+"/"+e.name, func(t *testing.T) {
				n := reps(1, 25)
				tally := &tally{survived: map[string]int{}, revived: map[string]int{}}
				for range n {
					if !t.Run("rep", func(t *testing.T) { endOnce(t, s, e, tally) }) {
						break
					}
				}
				tally.report(t, n)
			})
		}
	}
}

// tally counts the probes that worked after the ending, and after granting again, over all
// repetitions.
type tally struct{ survived, revived map[string]int }

func (c *tally) report(t *testing.T, n int) {
	for _, m := range []struct {
		when string
		what map[string]int
	}{{"after the ending", c.survived}, {"after granting again", c.revived}} {
		for _, name := range slices.Sorted(maps.Keys(m.what)) {
			t.Errorf("%s still works: %s (%d of %d)", m.when, name, m.what[name], 2*n)
		}
	}
}

func endOnce(t *testing.T, s setting, e ending, c *tally) {
	sc := (*scene)(nil)
	for wait := 2 * time.Second; ; wait *= 2 {
		life := time.Duration(0)
		if e.name == "expiry" {
			life = wait
		}
		sc = newScene(t, s, life)
		err := sc.hold()
		if err == nil {
			break
		}
		if e.name != "expiry" || !sc.ended() || wait > time.Minute {
			t.Fatal(err)
		}
		// The root expired before everything was held: try again with more time.
		for _, h := range sc.holders {
			h.stop()
		}
	}
	if err := e.end(sc); err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	sc.countAlive(true, c.survived)
	sc.checkSaved(e)
	if e.regrantable {
		sc.grant(grantOf("code", sc.src, s.rights))
		sc.countAlive(false, c.revived)
		sc.checkFresh()
	}
}

// writtenDir returns the directory that holds the files that programs wrote.
func (sc *scene) writtenDir() string {
	sc.t.Helper()
	if !sc.s.rights.Staged() {
		return sc.src
	}
	found, err := filepath.Glob(filepath.Join(sc.stages, "*", "upper"))
	if err != nil || len(found) != 1 {
		sc.t.Fatalf("want one stage, found %v, %v", found, err)
	}
	return found[0]
}

// checkSaved checks that the holders' dirty pages have been written to the file mapw.
func (sc *scene) checkSaved(e ending) {
	sc.t.Helper()
	if !sc.s.rights.Mutating() {
		return
	}
	src := sc.writtenDir()
	if e.name == "replaced" && !sc.s.rights.Staged() {
		src += ".old"
	}
	data, err := os.ReadFile(filepath.Join(src, "mapw"))
	if err != nil {
		sc.t.Fatal(err)
	}
	for i := range sc.holders {
		if !bytes.Contains(data, []byte(marker(i))) {
			sc.t.Errorf("%s: the page that holder %d had written is lost", e.name, i)
		}
	}
}

// checkFresh checks that a new process can read a file of the root that was granted again.
func (sc *scene) checkFresh() {
	sc.t.Helper()
	fresh := start(sc.t, "holder", nil)
	var fd int
	fresh.call("open", callArg{Path: sc.in("code", "read"), Flags: unix.O_RDONLY}, &fd)
	var got string
	fresh.call("read", callArg{FD: fd, Len: 4}, &got)
	if got != "rrrr" && got[1:] != "rrr" {
		sc.t.Errorf("granted again: read %q", got)
	}
}
