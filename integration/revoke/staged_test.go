package revoke

import (
	"bytes"
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
	"github.com/rootsfs/rootsfs/vfs"
)

// A daemon is killed while a program writes to a staged root. The next session shows everything
// that fsync or msync had confirmed to the program. The source is unchanged.
func TestKilledDaemonKeepsTheStage(t *testing.T) {
	points, spread := reps(4, 100), reps(200, maxMapped)
	staged := settings[5:] // the settings with a staged root
	for i := range points {
		for _, how := range []string{"load by write", "load by mapping"} {
			killStaged(t, how, i*(spread/points), staged[i%len(staged)].level)
		}
	}
}

// killStaged kills the daemon when fsync has confirmed more than least records of the stage.
func killStaged(t *testing.T, how string, least int, level mount.Level) {
	t.Helper()
	needFUSE(t)
	src, point, stages := t.TempDir(), t.TempDir(), t.TempDir()
	old := bytes.Repeat([]byte("owner's "), 8<<10)
	testkit.Must(t, os.WriteFile(filepath.Join(src, "log"), old, 0o644))
	before, err := os.Stat(filepath.Join(src, "log"))
	testkit.Must(t, err)
	d := start(t, "daemon", nil)
	defer d.stop()
	defer func() { _ = unix.Unmount(point, unix.MNT_DETACH) }()
	d.call("mount", daemonArg{Source: src, Point: point, Level: level, Stages: stages}, nil)
	w := start(t, "holder", nil)
	defer w.stop()
	testkit.Must(t, w.send(how, callArg{Path: filepath.Join(point, "code", "log")}))
	testkit.Until(t, "some records are in the stage", func() bool {
		data, err := os.ReadFile(upperFile(stages, "log"))
		return err == nil && records(data) > least+1
	})
	testkit.Must(t, d.cmd.Process.Signal(syscall.SIGKILL))
	var confirmed int
	testkit.Must(t, w.receive(how, &confirmed))
	d.stop() // the daemon holds the stage until the daemon has ended

	if now, err := os.Stat(filepath.Join(src, "log")); err != nil || !os.SameFile(now, before) || now.ModTime() != before.ModTime() {
		t.Errorf("the source's file was replaced or changed: %v, %v", now, err)
	}
	if data, err := os.ReadFile(filepath.Join(src, "log")); err != nil || !bytes.Equal(data, old) {
		t.Errorf("the source has other contents: %v", err)
	}
	tree := continueStage(t, src, stages)
	data, err := tree.StageContents(t.Context(), "code", "log", true, 64<<20)
	testkit.Must(t, err)
	if got := records(data); got < confirmed || confirmed <= least {
		t.Errorf("%s, killed after %d: fsync confirmed %d records, the stage has %d", how, least, confirmed, got)
	}
	list, err := tree.StageChanges(t.Context(), "code", nil)
	testkit.Must(t, err)
	if len(list) != 1 || list[0].Path != "log" || list[0].Class != vfs.StageChanged {
		t.Errorf("changes are %+v, want one: log, of class StageChanged", list)
	}
}

// continueStage grants a staged root again, as the next session does.
func continueStage(t *testing.T, src, stages string) *vfs.Tree {
	t.Helper()
	reg := guard.NewRegistry(guard.Config{Opener: vfs.StagingOpener(stages, "next")})
	g := grantOf("code", src, guard.ReadWrite|guard.Stage)
	g.Origin = "test"
	_, err := reg.Grant(t.Context(), g)
	testkit.Must(t, err)
	t.Cleanup(func() { _, _ = reg.RevokeAll(t.Context()) })
	return vfs.New(reg)
}

// upperFile returns the path of the file rel in the only stage of the directory stages. The path is
// empty if the stage has no such file.
func upperFile(stages, rel string) string {
	found, _ := filepath.Glob(filepath.Join(stages, "*", "upper", rel))
	return strings.Join(found, "\n")
}

// A program maps a file of a staged root, and another program writes to the file for the first time
// (copy-up). The mapping shows the written data, in a page that was loaded before the write and in
// pages that were not. After the root is revoked, the mapping shows nothing.
func TestMappedOverCopyUp(t *testing.T) {
	for _, level := range []mount.Level{mount.Strict, mount.Audit} {
		t.Run(level.String(), func(t *testing.T) {
			src := t.TempDir()
			fill(t, src)
			l := newLab(t, mount.Options{Level: level}, grantOf("code", src, guard.ReadWrite|guard.Stage))
			reader, writer := start(t, "holder", nil), start(t, "holder", nil)
			reader.call("hold", holdArg{Root: l.in("code")}, nil)
			for _, name := range []string{"mapr", "mapcold"} {
				var fd int
				writer.call("open", callArg{Path: l.in("code", name), Flags: unix.O_RDWR}, &fd)
				for _, off := range []int{0, 8192} {
					writer.call("write", callArg{FD: fd, Off: int64(off), Text: "staged"}, nil)
					var got string
					reader.call("peek", dirtyArg{Of: name, Off: off, Len: 7}, &got)
					if want := "staged" + name[:1]; got != want {
						t.Errorf("%s at %d: the mapping shows %q, want %q", name, off, got, want)
					}
				}
				if b, err := os.ReadFile(filepath.Join(src, name)); err != nil || strings.Trim(string(b), "m") != "" {
					t.Errorf("%s of the source was changed: %v", name, err)
				}
			}
			l.revoke("code")
			for _, name := range []string{"mapr", "mapcold"} {
				if err := reader.try("peek", dirtyArg{Of: name, Len: 7}, nil); err == nil {
					t.Errorf("%s: the mapping can be read after the revocation", name)
				}
			}
		})
	}
}

// A revocation does not wait for the copy of a large file that is opened for writing: the copy
// stops where it is, and the program gets an error.
func TestRevokeDuringCopyUp(t *testing.T) {
	size := int64(reps(1, 8)) * 256 << 20
	src := t.TempDir()
	big := filepath.Join(src, "big")
	makeLarge(t, big, size)
	for range 20 {
		l := newLab(t, mount.Options{}, grantOf("code", src, guard.ReadWrite|guard.Stage))
		h := start(t, "holder", nil)
		testkit.Must(t, h.send("open", callArg{Path: l.in("code", "big"), Flags: unix.O_RDWR}))
		copied, isCopying := awaitCopy(t, l.stages, size)
		l.revoke("code")
		now := copySize(l.stages)
		err := h.receive("open", nil)
		if !isCopying || now == size {
			h.stop()
			continue // the copy has ended before it could be seen
		}
		wantErr(t, "open for writing", err, unix.EACCES)
		if left := copySize(l.stages); left > now {
			t.Errorf("%d bytes were copied when revoke had returned, and %d later", now, left)
		}
		t.Logf("revoked when %d of %d KiB were copied", copied>>10, size>>10)
		return
	}
	t.Fatal("no copy was under way in 20 tries")
}

// makeLarge makes a file without holes.
func makeLarge(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	testkit.Must(t, err)
	piece := bytes.Repeat([]byte("large "), 700_000)
	for done := int64(0); done < size && err == nil; done += int64(len(piece)) {
		_, err = f.Write(piece[:min(int64(len(piece)), size-done)])
	}
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
}

// awaitCopy waits until a part of the file big is copied. It returns the number of copied bytes,
// and whether the copy is still in progress.
func awaitCopy(t *testing.T, stages string, size int64) (int64, bool) {
	t.Helper()
	for range 100_000 {
		if n := copySize(stages); n > 0 {
			return n, n < size
		}
		if upperFile(stages, "big") != "" {
			return size, false
		}
		time.Sleep(50 * time.Microsecond)
	}
	t.Fatal("nothing is copied")
	return 0, false
}

// copySize returns the size on disk of the copy in progress.
func copySize(stages string) int64 {
	found, _ := filepath.Glob(filepath.Join(stages, "*", "tmp", "*"))
	n := int64(0)
	for _, path := range found {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			n += st.Blocks * 512
		}
	}
	return n
}
