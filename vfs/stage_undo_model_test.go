package vfs_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// snapshot has the view at the time of a checkpoint, and the path of a copy of the model at that
// time.
type snapshot struct {
	seen map[string]string
	copy string
}

// undoScene is a stageScene that remembers the view at each checkpoint.
type undoScene struct {
	*stageScene
	saved  map[int]snapshot // by the number of the checkpoint
	copies int
	undone int
}

func newUndoScene(t *testing.T, seed uint64) *undoScene {
	t.Helper()
	s := &undoScene{stageScene: newStageScene(t, seed), saved: map[int]snapshot{}}
	start := filepath.Join(filepath.Dir(s.model), "start")
	copyTree(t, s.model, start)
	s.saved[0] = snapshot{s.seen(), start}
	return s
}

// copyTree copies a tree. It keeps symbolic links and hard links.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	made := map[uint64]string{}
	err := filepath.WalkDir(from, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		out := to + path[len(from):]
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if first, ok := made[st.Ino]; ok {
			return os.Link(first, out)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			err = os.Mkdir(out, 0o700)
		case unix.S_IFLNK:
			var target string
			if target, err = os.Readlink(path); err == nil {
				err = os.Symlink(target, out)
			}
			made[st.Ino] = out
			return err
		default:
			var text []byte
			if text, err = os.ReadFile(path); err == nil {
				err = os.WriteFile(out, text, 0o600)
			}
			made[st.Ino] = out
		}
		return errors.Join(err, unix.Chmod(out, st.Mode&0o7777))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// remember saves the view seen, and a copy of the present model, for each checkpoint that is not
// yet in s.saved.
func (s *undoScene) remember(seen map[string]string) {
	s.Helper()
	list, err := s.tree.StageCheckpoints(s.Context(), "r")
	if err != nil {
		s.fail("checkpoints: %v", err)
	}
	for _, c := range list {
		if _, known := s.saved[c.Number]; known {
			continue
		}
		s.copies++
		dir := filepath.Join(filepath.Dir(s.model), "copy"+strconv.Itoa(s.copies))
		copyTree(s.T, s.model, dir)
		s.saved[c.Number] = snapshot{seen, dir}
	}
}

// checkpoint makes a checkpoint. With crash, the process may be killed in the middle.
func (s *undoScene) checkpoint(crash bool) {
	s.Helper()
	s.log = append(s.log, "checkpoint")
	before := s.seen()
	point := -1
	if crash {
		point = s.rnd.IntN(8)
	}
	killed := s.killCommand(point, func() error {
		_, _, err := s.tree.StageCheckpoint(s.Context(), "r", "", vfs.CheckpointAsked)
		return err
	})
	if now := s.seen(); !maps.Equal(now, before) {
		s.fail("seen after a checkpoint (killed: %v):\n%s", killed, difference(now, before))
	}
	s.remember(before)
}

// killCommand runs a command and kills it after n steps, which are calls of beneath.AtStep, if
// there are so many; a new session then begins. With n < 0 it does not kill the command.
func (s *undoScene) killCommand(n int, command func() error) (killed bool) {
	s.Helper()
	beneath.AtStep = func(string) error {
		if n < 0 {
			return nil
		}
		if n--; n < 0 || killed {
			n, killed = 0, true
			return errKilled
		}
		return nil
	}
	err := command()
	beneath.AtStep = nil
	if killed != errors.Is(err, errKilled) || !killed && err != nil {
		s.fail("killed %v, and the error is %v", killed, err)
	}
	if killed {
		s.crashes++
		s.log = append(s.log, "killed")
		s.end()
		s.start()
	}
	return killed
}

// undo goes back to a random checkpoint, to the start, or to the latest checkpoint that differs
// from the present stage. With crash, the process may be killed in the middle.
func (s *undoScene) undo(crash bool) {
	s.Helper()
	to, number := "", 0
	list, err := s.tree.StageCheckpoints(s.Context(), "r")
	s.must(err)
	if at := s.rnd.IntN(len(list) + 1); s.rnd.IntN(3) > 0 {
		if at < len(list) {
			number = list[at].Number
		}
		to = strconv.Itoa(number)
	}
	for _, o := range s.open {
		o.f.Close()
		_ = o.model.Close()
	}
	s.open = nil
	before := s.seen()
	would, err := s.tree.StageUndo(s.Context(), "r", to, true)
	if errors.Is(err, names.NotExist) {
		return
	}
	if err != nil {
		s.fail("undo --dry-run %s: %v", to, err)
	}
	if now := s.seen(); !maps.Equal(now, before) {
		s.fail("seen after a dry run:\n%s", difference(now, before))
	}
	number = would.To.Number
	s.log = append(s.log, fmt.Sprintf("undo %q: %d", to, number))
	point := -1
	if crash {
		point = s.rnd.IntN(12)
	}
	killed := s.killCommand(point, func() error {
		u, err := s.tree.StageUndo(s.Context(), "r", to, false)
		if err == nil && (u.To.Number != number || len(u.Changes) != len(would.Changes)) {
			s.fail("undone %+v, and the dry run was %+v", u, would)
		}
		return err
	})
	now, want := s.seen(), s.saved[number].seen
	if killed && maps.Equal(now, before) {
		s.remember(before)
		return
	}
	if !maps.Equal(now, want) {
		s.fail("undo (killed: %v) to %d; seen:\n%s", killed, number, difference(now, want))
	}
	s.undone++
	s.remember(before)
	s.must(os.RemoveAll(s.model))
	copyTree(s.T, s.saved[number].copy, s.model)
}

// TestUndoModel makes checkpoints and goes back to them among the steps of programs. In half of the
// runs programs keep files open between steps. In the other half the process may be killed in the
// middle of a step, a checkpoint or an undo. After an undo programs see the view of the checkpoint
// again, whatever was written since, and the source stays as it was.
func TestUndoModel(t *testing.T) {
	runs, steps := uint64(shortOrSoak(60, 2000)), 50
	crashes, undone := 0, 0
	for seed := range runs {
		s := newUndoScene(t, seed)
		before, crash := stateOf(t, s.source), seed%2 == 1
		for range steps {
			switch s.rnd.IntN(8) {
			case 0:
				s.checkpoint(crash && s.rnd.IntN(2) == 0)
			case 1:
				s.undo(crash && s.rnd.IntN(2) == 0)
			default:
				s.step(crash)
			}
			if have, want := s.seen(), seenIn(t, s.model); !maps.Equal(have, want) {
				s.fail("seen:\n%s", difference(have, want))
			}
			if !crash {
				s.useOpen()
			}
		}
		if now := stateOf(t, s.source); !maps.Equal(now, before) {
			s.fail("the source has changed:\n%s", difference(now, before))
		}
		s.end()
		s.start()
		s.undoToEach()
		s.end()
		crashes, undone = crashes+s.crashes, undone+s.undone
	}
	t.Logf("%d runs of %d steps, %d undone, %d crashes", runs, steps, undone, crashes)
	if crashes == 0 || undone == 0 {
		t.Error("nothing was killed, or nothing undone")
	}
}

// undoToEach goes back to each checkpoint once.
func (s *undoScene) undoToEach() {
	s.Helper()
	list, err := s.tree.StageCheckpoints(s.Context(), "r")
	s.must(err)
	for _, i := range s.rnd.Perm(len(list)) {
		number := list[i].Number
		if _, err := s.tree.StageUndo(s.Context(), "r", strconv.Itoa(number), false); err != nil {
			s.fail("undo %d: %v", number, err)
		}
		if now, want := s.seen(), s.saved[number].seen; !maps.Equal(now, want) {
			s.fail("undo to %d at the end; seen:\n%s", number, difference(now, want))
		}
	}
}
