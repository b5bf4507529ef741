package vfs_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
)

// After an undo to a checkpoint before an apply, programs see the view of that checkpoint again.
// The undo stages the difference from the source. When this difference is applied, the source has
// its old state.
func TestUndoOverApply(t *testing.T) {
	runs := uint64(shortOrSoak(40, 80))
	applied, undone := 0, 0
	for seed := range runs {
		s := newUndoScene(t, seed)
		s.ops = slices.DeleteFunc(slices.Clone(stageOps), func(op stageOp) bool { return op.name == "link" }) // apply breaks hard links
		first := seenIn(t, s.source)
		s.checkpoint(false)
		for range 40 {
			switch s.rnd.IntN(9) {
			case 0:
				s.checkpoint(false)
			case 1:
				s.undo(false)
			case 2:
				s.checkpoint(false)
				s.log = append(s.log, "apply")
				r := s.applyAll(vfs.StageApply{})
				applied += len(r.Done)
			default:
				s.step(false)
			}
			if have, want := s.seen(), seenIn(t, s.model); !maps.Equal(have, want) {
				s.fail("seen:\n%s", difference(have, want))
			}
		}
		s.end()
		s.start()
		s.undoToEach()
		if _, err := s.tree.StageUndo(t.Context(), "r", "1", false); err != nil {
			s.fail("undo 1: %v", err)
		}
		r := s.applyAll(vfs.StageApply{})
		if now := seenIn(t, s.source); len(r.Left) > 0 || !maps.Equal(now, first) {
			s.fail("left %+v; the source:\n%s", r.Left, difference(now, first))
		}
		s.end()
		undone += s.undone
	}
	if applied == 0 || undone == 0 {
		t.Error("nothing was applied, or nothing undone")
	}
}

// If the owner has written to a file since the apply, the change that takes the apply back is a
// conflict, and the owner's text stays.
func TestUndoOverApplyKeepsEdits(t *testing.T) {
	s := &undoScene{stageScene: newStaged(t, "a=old", "b=old", "gone=x")}
	_, _, err := s.tree.StageCheckpoint(t.Context(), "r", "start", vfs.CheckpointAsked)
	s.must(err)
	s.must(s.write("a", "new", unix.O_WRONLY|unix.O_TRUNC))
	s.must(s.write("b", "new", unix.O_WRONLY|unix.O_TRUNC))
	s.unlink("gone")
	s.applyAll(vfs.StageApply{})
	s.must(os.WriteFile(s.source+"/a", []byte("mine"), 0o644))
	u, err := s.tree.StageUndo(t.Context(), "r", "", false)
	s.must(err)
	if u.To.Name != "start" || u.Applied != 3 {
		t.Errorf("undone: %+v", u)
	}
	want := map[string]string{"a": "old", "b": "old", "gone": "x"}
	for rel, text := range want {
		if got := s.get(rel); got != text {
			t.Errorf("%s is %q, want %q", rel, got, text)
		}
	}
	r := s.applyAll(vfs.StageApply{Partial: true})
	if len(r.Left) != 1 || r.Left[0].Path != "a" || r.Left[0].Class != vfs.StageConflict {
		t.Errorf("left %+v", r.Left)
	}
	for rel, text := range map[string]string{"a": "mine", "b": "old", "gone": "x"} {
		if got, err := os.ReadFile(s.source + "/" + rel); err != nil || string(got) != text {
			t.Errorf("in the source %s is %q (%v), want %q", rel, got, err, text)
		}
	}
	s.end()
}

// An undo also takes back an apply that was killed, maybe several times, and then finished. If a
// kill comes just when the apply has created a file or changed a mode, the stage does not know of
// that change. So the undo may leave one such change for each kill.
func TestUndoOverKilledApply(t *testing.T) {
	runs := uint64(shortOrSoak(40, 80))
	kills := 0
	for seed := range runs {
		s := newUndoScene(t, seed)
		s.ops = slices.DeleteFunc(slices.Clone(stageOps), func(op stageOp) bool { return op.name == "link" })
		first := seenIn(t, s.source)
		s.checkpoint(false)
		for range 25 {
			s.step(false)
		}
		s.checkpoint(false)
		killed := 0
		for s.isKilledAt(s.rnd.IntN(14), func() error {
			_, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{})
			return err
		}) {
			killed++
			s.end()
			s.start()
		}
		for _, number := range []string{"1", strconv.Itoa(len(s.saved) - 1), "1"} {
			u, err := s.tree.StageUndo(t.Context(), "r", number, false)
			if err != nil {
				s.fail("undo %s: %v", number, err)
			}
			now, want := s.seen(), s.saved[u.To.Number].seen
			if lines := strings.Count(difference(now, want), "\n"); lines > killed || killed == 0 && !maps.Equal(now, want) {
				s.fail("undo %s after %d kills; seen:\n%s", number, killed, difference(now, want))
			}
			for path, text := range want {
				if have, ok := now[path]; !ok {
					s.fail("undo %s after %d kills: %s is missing, and was %s", number, killed, path, text)
				} else if contentsOf(have) != contentsOf(text) {
					s.fail("undo %s after %d kills: %s is %s, and was %s", number, killed, path, have, text)
				}
			}
		}
		r := s.applyAll(vfs.StageApply{Partial: true})
		for path, text := range first {
			if have := seenIn(t, s.source)[path]; contentsOf(have) != contentsOf(text) {
				s.fail("left %s; after %d kills %s in the source is %s, and was %s", whys(r.Left), killed, path, have, text)
			}
		}
		kills += killed
		s.end()
	}
	if kills == 0 {
		t.Error("nothing was killed")
	}
}

func whys(list []vfs.StageChange) (out []string) {
	for i := range list {
		out = append(out, fmt.Sprintf("%s: %s", list[i].Path, list[i].Why))
	}
	return out
}

// contentsOf returns the part of a description by seen or seenIn that is after the mode and the
// count of links: the contents or the target.
func contentsOf(text string) string { return text[strings.IndexByte(text, '"')+1:] }

// A call of a tool leaves no checkpoint of a stage in which nothing was ever changed. An undo also
// takes back a change of only the mode of a directory.
func TestUndoOfDirectoryMode(t *testing.T) {
	s := newStaged(t, "d/f=x")
	s.must(s.tree.StageBeforeCall(t.Context(), "", "write_file"))
	if list, err := s.tree.StageCheckpoints(t.Context(), "r"); err != nil || len(list) != 0 {
		t.Errorf("checkpoints: %+v, %v", list, err)
	}
	s.must(s.write("d/f", "y", unix.O_WRONLY))
	s.must(s.tree.StageBeforeCall(t.Context(), "", "write_file"))
	mode := uint32(0o700)
	_, err := s.tree.Setattr(t.Context(), s.who, s.at("d"), nil, vfs.Attrs{Mode: &mode})
	s.must(err)
	u, err := s.tree.StageUndo(t.Context(), "r", "", false)
	s.must(err)
	if u.To.Number != 1 || s.lstat("d").Mode&0o777 != 0o755 || s.get("d/f") != "y" {
		t.Errorf("undone %+v; d has the mode %o and f %q", u, s.lstat("d").Mode, s.get("d/f"))
	}
	_, err = s.tree.StageUndo(t.Context(), "r", "0", false)
	s.must(err)
	if list, err := s.tree.StageChanges(t.Context(), "r", nil); err != nil || len(list) != 0 || s.get("d/f") != "x" {
		t.Errorf("staged after an undo to the start: %+v, %v", list, err)
	}
	s.end()
}

// A directory that took the place of a symbolic link in the source is applied with its contents.
// The file in the directory to which the link led does not change.
func TestApplyDirectoryOverLink(t *testing.T) {
	s := newStaged(t, "d/f=old")
	s.must(os.Symlink("d", s.source+"/l"))
	s.unlink("l")
	s.mkdir("l")
	s.put("l/f", "new")
	if r := s.applyAll(vfs.StageApply{}); len(r.Left) > 0 {
		t.Fatalf("left: %v", whys(r.Left))
	}
	want := map[string]string{"d/f": "old", "l/f": "new"}
	for rel, text := range want {
		if got, err := os.ReadFile(s.source + "/" + rel); err != nil || string(got) != text {
			t.Errorf("%s is %q (%v), want %q", rel, got, err, text)
		}
	}
	s.end()
}

// A stage has at most MaxCheckpoints checkpoints. The oldest checkpoints of tool calls are removed
// first, and a checkpoint that the owner asked for stays. An undo to the owner's checkpoint also
// takes back an apply whose own checkpoint was removed.
func TestCheckpointsAreBounded(t *testing.T) {
	s := newStaged(t, "f=x")
	keep, _, err := s.tree.StageCheckpoint(t.Context(), "r", "keep", vfs.CheckpointAsked)
	s.must(err)
	for n := range vfs.MaxCheckpoints + 5 {
		s.must(s.write("f", strconv.Itoa(n), unix.O_WRONLY|unix.O_TRUNC))
		s.must(s.tree.StageBeforeCall(t.Context(), "", "write_file"))
		s.must(s.tree.StageBeforeCall(t.Context(), "", "write_file")) // nothing has changed
		if n == 3 {
			s.applyAll(vfs.StageApply{}) // the checkpoint that records the apply will be removed
		}
	}
	list, err := s.tree.StageCheckpoints(t.Context(), "r")
	s.must(err)
	if len(list) != vfs.MaxCheckpoints || list[0].Number != keep.Number || list[1].Number != 8 || list[1].Cause != "tool call write_file" {
		t.Errorf("%d checkpoints, the first are %+v", len(list), list[:2])
	}
	if objects, err := os.ReadDir(s.store + "/objects"); err != nil || len(objects) != vfs.MaxCheckpoints { // one of them is the file that the apply replaced
		t.Errorf("%d objects (%v)", len(objects), err)
	}
	_, err = s.tree.StageUndo(t.Context(), "r", "keep", false)
	s.must(err)
	if got := s.get("f"); got != "x" {
		t.Errorf("f is %q after the undo", got)
	}
	s.end()
}

// A program that writes never fails because of a checkpoint: if the store has no room for the
// contents of a checkpoint, the checkpoint is removed.
func TestFullStoreDropsCheckpoints(t *testing.T) {
	s := emptyScene(t)
	s.limits.MaxStage = 1 << 20
	s.start()
	text := string(make([]byte, 600<<10))
	s.put("f", text)
	_, _, err := s.tree.StageCheckpoint(t.Context(), "r", "full", vfs.CheckpointAsked)
	s.must(err)
	s.must(s.write("f", "x", unix.O_WRONLY))
	list, err := s.tree.StageCheckpoints(t.Context(), "r")
	if err != nil || len(list) != 0 {
		t.Errorf("checkpoints: %+v, %v", list, err)
	}
	if got := s.get("f"); got[:2] != "x\x00" {
		t.Errorf("f begins with %q", got[:2])
	}
	s.end()
}

// get returns what programs read at a path.
func (s *stageScene) get(rel string) string {
	s.Helper()
	f, _, err := s.tree.Open(s.Context(), s.who, s.at(rel), unix.O_RDONLY)
	s.must(err)
	defer f.Close()
	buf := make([]byte, 4096)
	n, err := f.ReadAt(s.Context(), s.who, buf, 0)
	s.must(err)
	return string(buf[:n])
}
