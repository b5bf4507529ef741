package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/programs/lab"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// isolate gives a script's goroutine its own mounts, and its own directory /run unless work lies in
// /run.
func isolate(work string) error {
	if err := lab.OwnMounts(); err != nil {
		return err
	}
	if names.Under(work, "/run") {
		return nil
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount a directory /run for the script: %w", err)
	}
	return nil
}

// doctorSeesNothing is a script that fails if doctor sees a session or a mount of rootsfs.
const doctorSeesNothing = `
exec rootsfs doctor
stdout '^ok    sessions .*: 0 live, nothing left behind$'
stdout '^ok    mounts: 0 of rootsfs, 0 without a daemon$'
stdout ', 0 failures$'
`

// A script sees neither a dead mount of another test nor the files that a killed run of another
// test left in /run.
func TestScriptsSeeTheirOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's scripts have mounts of their own")
	}
	p := scripts(t)
	file := filepath.Join(t.TempDir(), "doctor.txtar")
	if err := os.WriteFile(file, []byte(doctorSeesNothing), 0o600); err != nil {
		t.Fatal(err)
	}
	leaveDeadMount(t)
	leaveDeadRun(t)
	p.Files = []string{file}
	testscript.Run(t, p)
}

// leaveDeadMount makes a mount without a daemon, and returns its path. The mount is removed when
// the test ends.
func leaveDeadMount(t *testing.T) string {
	t.Helper()
	point := t.TempDir()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd())
	if err := unix.Mount("rootsfs", point, mountpoint.FSType, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(point, 0); err != nil {
			t.Error(err)
		}
	})
	if err := fuse.Close(); err != nil {
		t.Fatal(err)
	}
	if !mountpoint.IsStale(point) {
		t.Fatal("the mount without a daemon is alive")
	}
	return point
}

// leaveDeadRun makes the directory of a run that has ended without removing it.
func leaveDeadRun(t *testing.T) {
	t.Helper()
	base := "/run"
	if os.Geteuid() != 0 {
		base = control.RuntimeDir()
	}
	dir, err := os.MkdirTemp(base, ".rootsfs-run-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) }) // another package's doctor may have removed it
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
}

// sweep fails the test for every mount that a script leaves, and detaches the mount.
func sweep(t *testing.T, work string) {
	all, err := lab.Table()
	if err != nil {
		t.Error(err)
	}
	isOwn := os.Geteuid() == 0 // a script of root has its own mount table: each mount of rootsfs in it is the script's
	for _, m := range slices.Backward(all) {
		if !names.Under(m.Point, work) && (!isOwn || m.FSType != mountpoint.FSType) {
			continue
		}
		t.Errorf("the script left a mount of %s at %s", m.FSType, m.Point)
		err := unix.Unmount(m.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EPERM) {
			err = mountpoint.Detach(m.Point, true)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// deadMount matches doctor's report about a mount without a daemon, with its path: in words and
// as JSON.
var deadMount = regexp.MustCompile(`(?m)(?:^fail  mount |"name": "mount",\s+"path": ")(/[^":]*)`)

// ownmounts [code N] COMMAND... runs a command, and fails if its exit code is not N, which is 0 by
// default. An ordinary user has no private mounts and sees the dead mounts of other tests. While the
// command reports such a mount, ownmounts runs the command again, for a minute at most. The minute
// is far beyond the life of such a mount.
func ownMounts(ts *testscript.TestScript, neg bool, args []string) {
	want := "0"
	if len(args) > 2 && args[0] == "code" {
		want, args = args[1], args[2:]
	}
	if neg || len(args) == 0 {
		ts.Fatalf("usage: ownmounts [code N] COMMAND...")
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		got := strconv.Itoa(exitCode(ts, args))
		if os.Geteuid() != 0 && reportsOtherMounts(ts.ReadFile("stdout"), ts.Getenv("WORK")) && time.Now().Before(end) {
			continue
		}
		if got != want {
			ts.Fatalf("exit code %s, want %s", got, want)
		}
		return
	}
}

// reportsOtherMounts reports whether an output of doctor names a dead mount outside of work.
func reportsOtherMounts(out, work string) bool {
	return slices.ContainsFunc(deadMount.FindAllStringSubmatch(out, -1), func(m []string) bool {
		return !strings.HasPrefix(m[1], work+"/")
	})
}

// reportsOtherMounts distinguishes a dead mount of another test from a dead mount of the script.
// For root, the pattern deadMount also matches what doctor prints.
func TestReportsOtherMounts(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dead := "/w/mnt"
	if os.Geteuid() == 0 {
		dead = leaveDeadMount(t)
	}
	for _, tt := range []struct{ args, text string }{
		{"doctor", "fail  mount /w/mnt: nothing serves it any more\n      unmount it\nok    mounts: 1 of rootsfs\n"},
		{"doctor --json", "{\n \"name\": \"mount\",\n \"path\": \"/w/mnt\",\n}"},
	} {
		if text := tt.text; reportsOtherMounts(text, "/w") || !reportsOtherMounts(text, "/x") || !reportsOtherMounts(text, "/w/m") {
			t.Errorf("the mount is not matched, or with the wrong directory:\n%s", text)
		}
		if dead == "/w/mnt" {
			continue // only root can make a dead mount
		}
		var out strings.Builder
		run(strings.Fields(tt.args), cli.Stdio{In: strings.NewReader(""), Out: &out, Err: io.Discard})
		if text := out.String(); !slices.ContainsFunc(deadMount.FindAllStringSubmatch(text, -1), func(m []string) bool { return m[1] == dead }) {
			t.Errorf("%s: %s is not found in:\n%s", tt.args, dead, text)
		}
	}
}
