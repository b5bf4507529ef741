package vfs_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/apply"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

var linkCount = regexp.MustCompile(`^(\d+) \d+ `)

// withoutLinks leaves out the counts of hard links: apply makes a separate file of each name.
func withoutLinks(tree map[string]string) map[string]string {
	out := map[string]string{}
	for path, text := range tree {
		out[path] = linkCount.ReplaceAllString(text, "$1 ")
	}
	return out
}

// applyAll makes an apply, and fails the test if it returns an error.
func (s *stageScene) applyAll(a vfs.StageApply) vfs.StageResult {
	s.Helper()
	r, err := s.tree.StageApply(s.Context(), "r", a)
	if err != nil {
		s.fail("apply: %v", err)
	}
	return r
}

// If the owner edits nothing, apply makes the source equal to what programs saw, and leaves no
// change in the stage. In every third run, some paths were applied or dropped before.
func TestApplyModel(t *testing.T) {
	runs := uint64(shortOrSoak(60, 300))
	for seed := range runs {
		s := newStageScene(t, seed)
		for range 40 {
			s.programStep()
		}
		s.end()
		s.start()
		if seed%3 == 1 {
			s.applyHalf()
		}
		want := withoutLinks(s.seen())
		r := s.applyAll(vfs.StageApply{})
		if len(r.Left) > 0 {
			s.fail("left: %+v", r.Left)
		}
		if now := withoutLinks(seenIn(t, s.source)); !maps.Equal(now, want) {
			s.fail("applied %+v; the source:\n%s", r.Done, difference(now, want))
		}
		if now := withoutLinks(s.seen()); !maps.Equal(now, want) {
			s.fail("seen after apply:\n%s", difference(now, want))
		}
		if left, err := s.tree.StageChanges(t.Context(), "r", nil); err != nil || len(left) > 0 {
			s.fail("changes after apply: %+v, %v", left, err)
		}
		s.end()
		if left, err := os.ReadDir(s.stages); err != nil || len(left) > 0 {
			s.fail("the store is still there: %v, %v", left, err)
		}
	}
}

// An apply or a discard that is killed at random points, and repeated after each kill, ends like
// one that was not killed. After each kill, a regular file of the source is as before the command
// or as after it.
func TestApplyIsKilled(t *testing.T) {
	runs := uint64(shortOrSoak(60, 200))
	kills := 0
	for seed := range runs {
		s := newStageScene(t, seed)
		for range 40 {
			s.programStep()
		}
		s.end()
		s.start()
		want, before := withoutLinks(s.seen()), withoutLinks(seenIn(t, s.source))
		command := func() error { _, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{}); return err }
		if seed%3 == 2 {
			want = before
			command = func() error { _, err := s.tree.StageDiscard(t.Context(), "r", nil); return err }
		}
		for {
			point := s.rnd.IntN(12)
			if !s.isKilledAt(point, command) {
				break
			}
			kills++
			for path, text := range withoutLinks(seenIn(t, s.source)) {
				if text != before[path] && text != want[path] && isFile(text) && !strings.HasPrefix(filepath.Base(path), vfs.TempPrefix) {
					s.fail("killed at point %d, %s is %s; it was %s and becomes %s", point, path, text, before[path], want[path])
				}
			}
			s.end()
			s.start()
		}
		if now := withoutLinks(seenIn(t, s.source)); !maps.Equal(now, want) {
			s.fail("in the end:\n%s", difference(now, want))
		}
		if now := withoutLinks(s.seen()); !maps.Equal(now, want) {
			s.fail("seen in the end:\n%s", difference(now, want))
		}
		s.end()
	}
	if kills == 0 {
		t.Error("nothing was killed")
	}
}

// A file that the owner writes between two kills stays at its path, with the owner's contents.
func TestApplyIsKilledAndEdited(t *testing.T) {
	runs := uint64(shortOrSoak(60, 200))
	for seed := range runs {
		s := newStageScene(t, seed)
		for range 30 {
			s.programStep()
		}
		mine := map[string]string{}
		for isKilled := true; isKilled; {
			s.end()
			s.start()
			for range 2 {
				rel, text := s.ownerStep()
				mine[rel] = text
			}
			isKilled = s.isKilledAt(s.rnd.IntN(12), func() error {
				_, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{Partial: true})
				return err
			})
			s.log = append(s.log, fmt.Sprintf("killed: %v", isKilled))
		}
		after := seenIn(t, s.source)
		for rel, text := range mine {
			if text != "" && linkCount.ReplaceAllString(after[rel], "") != fmt.Sprintf("%q", text) {
				s.fail("your %s (%q) is %s", rel, text, after[rel])
			}
		}
		if temps, err := filepath.Glob(filepath.Join(s.source, "*", vfs.TempPrefix+"*")); err != nil || len(temps) > 0 {
			s.fail("left: %v, %v", temps, err)
		}
		s.end()
	}
}

// isKilledAt runs a command and kills it after n steps, which are calls of beneath.AtStep and
// apply.AtStep, except for the comparisons. It reports whether the command got that far.
func (s *stageScene) isKilledAt(n int, command func() error) (isKilled bool) {
	s.Helper()
	kill := func() error {
		if n--; n >= 0 && !isKilled {
			return nil
		}
		isKilled = true
		return errKilled
	}
	beneath.AtStep = func(string) error { return kill() }
	apply.AtStep = func(point, _ string) error {
		if point == "compare" { // nothing is changed
			return nil
		}
		return kill()
	}
	err := command()
	beneath.AtStep, apply.AtStep = nil, nil
	if isKilled != errors.Is(err, errKilled) {
		s.fail("killed %v, and the error is %v", isKilled, err)
	}
	return isKilled
}

// applyHalf applies the changes in the directory a that can be applied, and drops those in b.
func (s *stageScene) applyHalf() {
	s.Helper()
	s.applyAll(vfs.StageApply{Paths: []string{"a"}, Partial: true})
	if _, err := s.tree.StageDiscard(s.Context(), "r", []string{"b"}); err != nil {
		s.fail("discard: %v", err)
	}
	for path, text := range seenIn(s.T, s.source) {
		if now := s.seen()[path]; (path == "b" || strings.HasPrefix(path, "b/")) && withoutLinks(map[string]string{"": now})[""] != withoutLinks(map[string]string{"": text})[""] {
			s.fail("%s is %s after discard, want %s", path, now, text)
		}
	}
}

// Whatever the owner has edited, apply writes nothing if any change is in conflict. It never
// overwrites contents that the owner has written after the programs.
func TestApplyKeepsTheOwnersEdits(t *testing.T) {
	runs := uint64(shortOrSoak(60, 300))
	conflicts := 0
	for seed := range runs {
		s := newStageScene(t, seed)
		for range 40 {
			if s.rnd.IntN(5) == 0 {
				s.ownerStep()
				continue
			}
			s.programStep()
		}
		s.end()
		s.start()
		mine := map[string]string{}
		for range 4 {
			rel, text := s.ownerStep()
			mine[rel] = text
		}
		before, seen := seenIn(t, s.source), s.seen()
		first := s.applyAll(vfs.StageApply{})
		if now := seenIn(t, s.source); len(first.Left) > 0 && !maps.Equal(now, before) {
			s.fail("left %+v, and the source changed:\n%s", first.Left, difference(now, before))
		}
		r := s.applyAll(vfs.StageApply{Partial: true})
		conflicts += len(first.Left)
		after := seenIn(t, s.source)
		for rel, text := range mine {
			if text != "" && linkCount.ReplaceAllString(after[rel], "") != fmt.Sprintf("%q", text) {
				s.fail("your %s (%q) is %s; applied %+v and left %+v; seen was %s", rel, text, after[rel], r.Done, r.Left, seen[rel])
			}
		}
		s.end()
	}
	if conflicts == 0 {
		t.Error("there was no conflict")
	}
}

// programStep does a random operation in the staged root, as a program does. The operation may
// fail.
func (s *stageScene) programStep() {
	op := stageOps[s.rnd.IntN(len(stageOps))]
	a, b, text := s.path(), s.path(), s.text()
	s.log = append(s.log, fmt.Sprintf("%s %s %s %q", op.name, a, b, text))
	_ = op.staged(s, a, b, text)
}

// ownerStep changes the source at a random path, as its owner does. It returns the path and the
// contents that it wrote there, "" if it wrote none.
func (s *stageScene) ownerStep() (rel, text string) {
	s.Helper()
	rel, text = s.path(), s.text()
	path := filepath.Join(s.source, rel)
	s.log = append(s.log, "owner "+rel+" "+text)
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case err != nil:
		err = os.WriteFile(path, []byte(text), 0o644)
	case st.Mode&unix.S_IFMT == unix.S_IFREG && s.rnd.IntN(3) > 0:
		err = writeModel(path, text, os.O_WRONLY|os.O_TRUNC)
	default:
		_ = os.Remove(path)
		return rel, ""
	}
	if err != nil {
		return rel, ""
	}
	return rel, text
}
