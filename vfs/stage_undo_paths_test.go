package vfs_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/draft"
)

// An undo to a checkpoint of some paths restores these paths. The rest of the stage gets the
// state that the next checkpoint has, or stays as it is if there is no next checkpoint.
func TestUndoToCheckpointOfPath(t *testing.T) {
	s := newStaged(t, "a/f=old", "b=old")
	s.put("a/f", "1")
	s.put("b", "1")
	s.must(s.tree.StageCheckpointOf(t.Context(), "r", []string{"a/f"}, vfs.CheckpointApply))
	s.applyAll(vfs.StageApply{Paths: []string{"a/f"}})
	s.put("a/f", "2")
	s.put("b", "2")
	undo := func(want string) {
		t.Helper()
		u, err := s.tree.StageUndo(t.Context(), "r", "1", false)
		s.must(err)
		if got := s.get("a/f") + " " + s.get("b"); got != want {
			t.Errorf("after an undo to %+v programs see %q, want %q", u.To, got, want)
		}
	}
	undo("1 2")
	s.put("b", "3") // the undo has made a checkpoint, in which b is 2
	undo("1 2")
	s.end()
}

// pathScene is an undoScene with a checkpoint of one path.
type pathScene struct {
	*undoScene
	scope    draft.Scope
	number   int               // of the checkpoint; 0: none was made
	seenThen map[string]string // the view when it was made
}

// In random stages an undo to a checkpoint of a path restores what programs saw at the path. The
// undo changes nothing that programs see elsewhere, except for the directories above the path.
func TestUndoOfPathsModel(t *testing.T) {
	runs := uint64(shortOrSoak(20, 1000))
	undone := 0
	for seed := range runs {
		s := pathScene{undoScene: newUndoScene(t, seed)}
		s.ops = slices.DeleteFunc(slices.Clone(stageOps), func(op stageOp) bool { return op.name == "link" })
		for range 4 {
			s.steps(10)
			s.checkpointOf(s.path(), s.rnd.IntN(2) == 0)
			s.steps(10)
			if s.undoAndCompare() {
				undone++
			}
		}
		s.end()
	}
	if undone == 0 {
		t.Error("nothing was undone")
	}
}

// steps does random operations, which may fail.
func (s *pathScene) steps(n int) {
	s.Helper()
	for range n {
		op := s.ops[s.rnd.IntN(len(s.ops))]
		a, b, text := s.path(), s.path(), s.text()
		err := op.staged(s.stageScene, a, b, text)
		s.log = append(s.log, fmt.Sprintf("%s %s %s %q: %v", op.name, a, b, text, err))
	}
}

// checkpointOf makes a checkpoint of a path, and may apply the path.
func (s *pathScene) checkpointOf(rel string, applies bool) {
	s.Helper()
	s.log = append(s.log, fmt.Sprint("checkpoint of ", rel, ", apply: ", applies))
	s.scope = draft.NewScope([]string{rel})
	s.seenThen = s.seen()
	s.must(s.tree.StageCheckpointOf(s.Context(), "r", s.scope, vfs.CheckpointApply))
	list, err := s.tree.StageCheckpoints(s.Context(), "r")
	s.must(err)
	s.number = 0
	if len(list) > 0 && len(list[len(list)-1].Paths) > 0 {
		s.number = list[len(list)-1].Number
	}
	if applies && s.number > 0 {
		s.applyAll(vfs.StageApply{Paths: s.scope, Partial: true})
	}
}

// undoAndCompare goes back to the checkpoint, and compares what programs see in its scope and
// elsewhere. It reports false if there is no checkpoint.
func (s *pathScene) undoAndCompare() bool {
	s.Helper()
	if s.number == 0 {
		return false
	}
	before := s.seen()
	s.log = append(s.log, fmt.Sprint("undo ", s.number))
	if _, err := s.tree.StageUndo(s.Context(), "r", strconv.Itoa(s.number), false); err != nil {
		s.fail("undo %d: %v", s.number, err)
	}
	want := map[string]string{}
	for rel, text := range before {
		if !s.scope.Has(rel) {
			want[rel] = text
		}
	}
	for rel, text := range s.seenThen {
		if s.scope.Has(rel) {
			want[rel] = text
		}
	}
	now := s.seen()
	for _, all := range []map[string]string{want, now} {
		maps.DeleteFunc(all, func(rel, _ string) bool { return s.scope.Touches(rel) && !s.scope.Has(rel) })
	}
	if !maps.Equal(now, want) {
		s.fail("undo to %d, of %q; seen:\n%s", s.number, s.scope, difference(now, want))
	}
	return true
}

// If programs have replaced the directory of a checkpoint's path, or removed it, an undo brings the
// directory back with its mode, and the directory then contains only that path.
func TestUndoOfPathInReplacedDirectory(t *testing.T) {
	for name, replace := range map[string]func(s *stageScene){
		"removed":            func(*stageScene) {},
		"replaced by a file": func(s *stageScene) { s.put("a", "file") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStaged(t, "a/f=old", "a/g=old")
			s.must(os.Chmod(s.source+"/a", 0o750))
			s.put("a/f", "1")
			s.must(s.tree.StageCheckpointOf(t.Context(), "r", []string{"a/f"}, vfs.CheckpointApply))
			mode := s.lstat("a").Mode
			s.unlink("a/f")
			s.unlink("a/g")
			s.rmdir("a")
			replace(s)
			_, err := s.tree.StageUndo(t.Context(), "r", "1", false)
			s.must(err)
			if now := s.lstat("a").Mode; now != mode {
				t.Errorf("a has the mode %o, and had %o", now, mode)
			}
			if got, want := slices.Sorted(maps.Keys(s.seen())), []string{"a", "a/f"}; !slices.Equal(got, want) || s.get("a/f") != "1" {
				t.Errorf("programs see %q, want %q", got, want)
			}
			s.end()
		})
	}
}

// If the process is killed in the middle of an undo of a path, the next session finishes the undo,
// or the stage is as before the undo. The undo places a copy of the checkpoint's file, because
// programs may have this file under another name.
func TestKilledUndoOfPathIsFinished(t *testing.T) {
	finished := 0
	for n := 0; ; n++ {
		s := &undoScene{stageScene: newStaged(t, "a/f=old")}
		s.put("a/f", "1")
		s.must(s.tree.StageCheckpointOf(t.Context(), "r", []string{"a/f"}, vfs.CheckpointApply))
		s.put("a/f", "2")
		killed := s.killCommand(n, func() error {
			_, err := s.tree.StageUndo(t.Context(), "r", "1", false)
			return err
		})
		switch got := s.get("a/f"); {
		case got == "1" && killed:
			finished++
		case got != "1" && (got != "2" || !killed):
			t.Errorf("killed at point %d (%v), programs see %q", n, killed, got)
		}
		s.end()
		if !killed {
			break
		}
	}
	if finished == 0 {
		t.Error("no undo was finished")
	}
}
