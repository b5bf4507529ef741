package vfs_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// liveRuns returns how often a test repeats its run of the owner's commands beside programs.
func liveRuns() uint64 { return uint64(shortOrSoak(40, 150)) }

// The owner applies and drops changes while programs have files open. The view does not change,
// open files stay the same files, and the source gets the view.
func TestStageModelLive(t *testing.T) {
	applied, open := 0, 0
	for seed := range liveRuns() {
		s := newStageScene(t, seed)
		// No hard links: an apply makes a separate file of each name.
		s.ops = slices.DeleteFunc(slices.Clone(stageOps), func(op stageOp) bool { return op.name == "link" })
		for range 50 {
			switch s.rnd.IntN(12) {
			case 0, 1:
				n, m := s.applyLive()
				applied, open = applied+n, open+m
			case 2:
				s.discardLive()
			default:
				s.step(false)
			}
			if have, want := s.seen(), seenIn(t, s.model); !maps.Equal(have, want) {
				s.fail("seen:\n%s", difference(have, want))
			}
			s.useOpen()
		}
		s.end()
	}
	if applied == 0 || open == 0 {
		t.Errorf("%d changes were applied, and there were %d open files with such a change", applied, open)
	}
}

// applyLive applies the changes that can be applied. It returns their number, and the number of
// open files whose changes it applied.
func (s *stageScene) applyLive() (applied, open int) {
	s.Helper()
	s.log = append(s.log, "apply")
	r := s.applyAll(vfs.StageApply{Partial: true})
	writers := false
	for _, o := range s.open {
		writers = writers || o.f.Writable()
		for i := range r.Done {
			if r.Done[i].Path.Raw() == o.path {
				open++
			}
		}
	}
	if !writers {
		if now, want := withoutLinks(seenIn(s.T, s.source)), withoutLinks(seenIn(s.T, s.model)); !maps.Equal(now, want) {
			s.fail("left %+v; the source:\n%s", r.Left, difference(now, want))
		}
	}
	for i := range r.Left {
		if c := &r.Left[i]; c.Class != vfs.StageInUse && c.Class != vfs.StageConflict {
			s.fail("left %+v", c)
		}
	}
	return len(r.Done), open
}

// discardLive drops all changes, and resets the model to the source.
func (s *stageScene) discardLive() {
	s.Helper()
	s.log = append(s.log, "discard")
	for _, o := range s.open {
		o.f.Close()
		_ = o.model.Close()
	}
	s.open = nil
	if r, err := s.tree.StageDiscard(s.Context(), "r", nil); err != nil || len(r.Left) > 0 {
		s.fail("discard: %+v, %v", r.Left, err)
	}
	s.must(os.RemoveAll(s.model))
	s.must(os.CopyFS(s.model, os.DirFS(s.source)))
	s.must(filepath.WalkDir(s.source, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Type() == os.ModeSymlink {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.Chmod(filepath.Join(s.model, path[len(s.source):]), info.Mode().Perm())
	}))
}

// Programs write while the owner makes checkpoints, applies, drops and edits. Each program reads
// at once what it has written, by the file's name and through an open descriptor. In the end the
// source has the last text of each program.
func TestApplyBesideWriters(t *testing.T) {
	const writers, rounds = 4, 120
	s := newStaged(t, "w0=first", "w1=first", "w2=first", "w3=first", "d/w0=x", "mine=0")
	var wg sync.WaitGroup
	last := make([]string, writers)
	for i := range writers {
		wg.Go(func() { last[i] = s.writeRounds(i, rounds) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	applied := 0
	for n := 0; ; n++ {
		select {
		case <-done:
		default:
			s.must(os.WriteFile(filepath.Join(s.source, "mine"), []byte(fmt.Sprint(n)), 0o644))
			_, _, err := s.tree.StageCheckpoint(t.Context(), "r", "", vfs.CheckpointApply)
			s.must(err)
			r, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{Partial: true})
			s.must(err)
			applied += len(r.Done)
			_, err = s.tree.StageDiscard(t.Context(), "r", []string{"dropped"})
			s.must(err)
			continue
		}
		break
	}
	r := s.applyAll(vfs.StageApply{})
	for i := range writers {
		name := fmt.Sprintf("w%d", i)
		if text, err := os.ReadFile(filepath.Join(s.source, name)); err != nil || string(text) != last[i] {
			t.Errorf("the source's %s is %q (%v), want %q; left %+v", name, text, err, last[i], r.Left)
		}
	}
	if applied == 0 {
		t.Error("nothing was applied meanwhile")
	}
	s.end()
}

// writeRounds writes a file again and again. After each write it reads the file by its name and
// through a descriptor that was opened before the write. It returns the last written text.
func (s *stageScene) writeRounds(i, rounds int) (text string) {
	name := fmt.Sprintf("w%d", i)
	for n := range rounds {
		text = fmt.Sprintf("%s:%06d", name, n)
		held, _, err := s.tree.Open(s.Context(), s.who, s.at(name), unix.O_RDONLY)
		if err == nil {
			err = s.writeOnce(name, text, n)
		}
		for _, where := range []string{"by its name", "by an open descriptor"} {
			f := held
			if err == nil && where == "by its name" {
				f, _, err = s.tree.Open(s.Context(), s.who, s.at(name), unix.O_RDONLY)
			}
			if err != nil {
				s.Errorf("%s, round %d: %v", name, n, err)
				return text
			}
			if n%3 != 2 || where == "by its name" { // the descriptor of a replaced file reads the old contents
				buf := make([]byte, 64)
				k, err := f.ReadAt(s.Context(), s.who, buf, 0)
				if string(buf[:k]) != text {
					s.Errorf("%s has %q %s, want %q (%v)", name, buf[:k], where, text, err)
				}
			}
			if f != held {
				f.Close()
			}
		}
		held.Close()
		if i == 0 {
			_ = s.write("dropped", "x", unix.O_WRONLY)
			_, _ = s.tree.Symlink(s.Context(), s.who, "w0", s.at(""), "dropped")
		}
	}
	return text
}

// writeOnce writes in place, after truncating, or by a rename. If the file is moved away at
// this moment, it looks the name up again, as the kernel does for a program.
func (s *stageScene) writeOnce(name, text string, n int) (err error) {
	for range 4 {
		switch n % 3 {
		case 0:
			err = s.write(name, text, unix.O_WRONLY)
		case 1:
			err = s.write(name, text, unix.O_WRONLY|unix.O_TRUNC)
		default:
			if err = s.putTemp(name+".new", text); err == nil {
				err = s.rename(name+".new", name, 0)
			}
		}
		if !errors.Is(err, unix.ESTALE) && !errors.Is(err, names.Conflict) {
			return err
		}
	}
	return err
}

func (s *stageScene) putTemp(name, text string) error {
	f, _, _, err := s.tree.Create(s.Context(), s.who, s.at(""), name, unix.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(s.Context(), s.who, [][]byte{[]byte(text)}, 0, vfs.WriteAtOptions{})
	return err
}
