package vfs_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// Programs write in place while checkpoints are made. A checkpoint has the contents that each
// file had when the checkpoint was made, and no later write changes the checkpoint.
func TestCheckpointBesideWriters(t *testing.T) {
	const writers, points = 3, 25
	s := newStaged(t, "w0=w:000000", "w1=w:000000", "w2=w:000000")
	var begun, done [writers]atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range writers {
		f, _, err := s.tree.Open(t.Context(), s.who, s.at("w"+strconv.Itoa(i)), unix.O_RDWR)
		s.must(err)
		wg.Go(func() {
			defer f.Close()
			for n := int64(1); ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				begun[i].Store(n)
				if _, err := f.WriteAt(s.Context(), s.who, [][]byte{fmt.Appendf(nil, "w:%06d", n)}, 0, vfs.WriteAtOptions{}); err != nil {
					s.Errorf("write %d of w%d: %v", n, i, err)
					return
				}
				done[i].Store(n)
			}
		})
	}
	least, most := map[int][writers]int64{}, map[int][writers]int64{}
	for range points {
		var from, to [writers]int64
		for i := range writers {
			from[i] = done[i].Load()
		}
		c, _, err := s.tree.StageCheckpoint(t.Context(), "r", "", vfs.CheckpointAsked)
		s.must(err)
		for i := range writers {
			to[i] = begun[i].Load()
		}
		if _, known := least[c.Number]; !known {
			least[c.Number], most[c.Number] = from, to
		}
	}
	close(stop)
	wg.Wait()
	for number := range least {
		for range 2 { // the second time after other writes
			_, err := s.tree.StageUndo(t.Context(), "r", strconv.Itoa(number), false)
			s.must(err)
			for i := range writers {
				name := "w" + strconv.Itoa(i)
				n, err := strconv.ParseInt(strings.TrimLeft(strings.TrimPrefix(s.get(name), "w:"), "0"), 10, 64)
				if s.get(name) == "w:000000" {
					n, err = 0, nil
				}
				if err != nil || n < least[number][i] || n > most[number][i] {
					t.Errorf("checkpoint %d has %q of %s, want from %d to %d", number, s.get(name), name, least[number][i], most[number][i])
				}
				s.must(s.write(name, "w:999999", unix.O_WRONLY))
			}
		}
	}
	s.end()
}

// A file that a program has open stays open across an undo, but nobody else sees what the program
// writes to the file afterwards. A directory whose contents an undo restores keeps its identity.
func TestUndoUnderOpenFiles(t *testing.T) {
	s := newStaged(t, "d/f=old", "d/g=g", "later/h=h")
	s.must(s.write("d/f", "one", unix.O_WRONLY|unix.O_TRUNC))
	_, _, err := s.tree.StageCheckpoint(t.Context(), "r", "", vfs.CheckpointAsked)
	s.must(err)
	before, later := s.lstat("d"), s.lstat("later")
	f, _, err := s.tree.Open(t.Context(), s.who, s.at("d/f"), unix.O_RDWR)
	s.must(err)
	defer f.Close()
	g, _, err := s.tree.Open(t.Context(), s.who, s.at("d/g"), unix.O_RDONLY)
	s.must(err)
	defer g.Close()
	write := func(text string) {
		_, err := f.WriteAt(t.Context(), s.who, [][]byte{[]byte(text)}, 0, vfs.WriteAtOptions{})
		s.must(err)
	}
	write("two")
	s.unlink("d/g")
	s.must(s.write("later/h", "two", unix.O_WRONLY))
	_, err = s.tree.StageUndo(t.Context(), "r", "", false)
	s.must(err)
	write("xxx")
	buf := make([]byte, 8)
	n, err := f.ReadAt(t.Context(), s.who, buf, 0)
	if got := s.get("d/f"); err != nil || string(buf[:n]) != "xxx" || got != "one" {
		t.Errorf("the open file has %q (%v), and its name %q", buf[:n], err, got)
	}
	if info, err := f.Stat(t.Context(), s.who); err != nil || info.Nlink != 0 {
		t.Errorf("the open file has %d links (%v)", info.Nlink, err)
	}
	if info, err := g.Stat(t.Context(), s.who); err != nil || info.Nlink != 1 {
		t.Errorf("the restored d/g has %d links (%v)", info.Nlink, err)
	}
	if now := s.lstat("d"); now.ID() != before.ID() {
		t.Errorf("d is another directory: %v, was %v", now.ID(), before.ID())
	}
	if now := s.lstat("later"); now.ID() != later.ID() || s.get("later/h") != "h" {
		t.Errorf("later is another directory: %v, was %v; h has %q", now.ID(), later.ID(), s.get("later/h"))
	}
	_, err = s.tree.StageUndo(t.Context(), "r", "", false)
	s.must(err)
	if got := s.get("d/f"); got != "two" {
		t.Errorf("after a second undo d/f has %q", got)
	}
	s.end()
}

// An ordinary user's unreadable files, and directories that cannot be entered, are in a
// checkpoint like others.
func TestUndoAsUser(t *testing.T) {
	const again = "ROOTSFS_TEST_UNDO_AS_USER"
	if os.Geteuid() == 0 && os.Getenv(again) == "" {
		base, err := os.MkdirTemp("", "rootsfs-undo-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(base) })
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestUndoAsUser$", "-test.v")
		cmd.Env = append(os.Environ(), again+"=1", "TMPDIR="+base)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{}}}
		if err := os.Chmod(base, 0o777); err != nil {
			t.Fatal(err)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("as a user: %v\n%s", err, out)
		}
		return
	}
	s := newStaged(t, "f=old")
	s.mkdir("d")
	s.put("d/g", "g")
	s.put("w", "one")
	s.mkdir("closed")
	s.mkdir("closed/in")
	s.put("closed/in/f", "one")
	for rel, mode := range map[string]uint32{"d": 0o500, "w": 0o200} {
		_, err := s.tree.Setattr(t.Context(), s.who, s.at(rel), nil, vfs.Attrs{Mode: &mode})
		s.must(err)
	}
	_, _, err := s.tree.StageCheckpoint(t.Context(), "r", "", vfs.CheckpointAsked)
	s.must(err)
	s.must(s.write("w", "two", unix.O_WRONLY))
	mode := uint32(0o700)
	_, err = s.tree.Setattr(t.Context(), s.who, s.at("d"), nil, vfs.Attrs{Mode: &mode})
	s.must(err)
	s.unlink("d/g")
	s.rmdir("d")
	s.must(s.write("closed/in/f", "two", unix.O_WRONLY))
	shut := uint32(0)
	_, err = s.tree.Setattr(t.Context(), s.who, s.at("closed"), nil, vfs.Attrs{Mode: &shut})
	s.must(err)
	_, err = s.tree.StageUndo(t.Context(), "r", "", false)
	s.must(err)
	if got := s.get("d/g"); got != "g" {
		t.Errorf("d/g has %q", got)
	}
	if got := s.get("closed/in/f"); got != "one" {
		t.Errorf("closed/in/f has %q", got)
	}
	if info := s.lstat("d"); info.Mode&0o777 != 0o500 {
		t.Errorf("d has the mode %o", info.Mode)
	}
	_, err = s.tree.Setattr(t.Context(), s.who, s.at("d"), nil, vfs.Attrs{Mode: &mode}) // for the cleanup
	s.must(err)
	if text, err := os.ReadFile(filepath.Join(s.store, "upper", "w")); err == nil || s.lstat("w").Mode&0o777 != 0o200 {
		t.Errorf("w may be read: %q, %v, %o", text, err, s.lstat("w").Mode)
	}
	s.end()
}

// An undo that fails, such as by an error of the disk, reverts itself: programs keep their
// view, and their later writes are there in the next session.
func TestUndoThatFails(t *testing.T) {
	for n := 0; ; n++ {
		s := newStaged(t, "a=old", "d/f=old", "gone=x")
		s.must(s.write("a", "one", unix.O_WRONLY|unix.O_TRUNC))
		_, _, err := s.tree.StageCheckpoint(t.Context(), "r", "", vfs.CheckpointAsked)
		s.must(err)
		s.must(s.write("a", "two", unix.O_WRONLY|unix.O_TRUNC))
		s.must(s.write("d/f", "two", unix.O_WRONLY|unix.O_TRUNC))
		s.unlink("gone")
		s.mkdir("e")
		s.put("e/f", "two")
		before, left := s.seen(), n
		beneath.AtStep = func(point string) error {
			if left--; left == -1 && point == "undoing" {
				return unix.EIO
			}
			return nil
		}
		_, err = s.tree.StageUndo(t.Context(), "r", "", false)
		beneath.AtStep = nil
		if left >= 0 {
			break // the undo has fewer points
		}
		if now := s.seen(); err != nil && !maps.Equal(now, before) {
			t.Errorf("after a failure at point %d (%v); seen:\n%s", n, err, difference(now, before))
		}
		s.put("later", "x")
		seen := s.seen()
		s.end()
		s.start()
		if now := s.seen(); !maps.Equal(now, seen) {
			t.Errorf("after a failure at point %d, in the next session; seen:\n%s", n, difference(now, seen))
		}
		s.end()
	}
}
