package vfs_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// stagePlace is a state of a path of a staged root: files of the source, changes of programs,
// or both.
type stagePlace struct {
	name   string
	source []string                       // files of the source, as newStaged takes them, without the path
	staged func(s *stageScene, at string) // makes the changes, in the staged root and in the model
}

var stagePlaces = []stagePlace{
	{"nothing", nil, nil},
	{"file of the source", []string{"=low"}, nil},
	{"changed file", []string{"=low"}, func(s *stageScene, at string) { s.both("write", at, "") }},
	{"new file", nil, func(s *stageScene, at string) { s.both("create", at, "") }},
	{"removed file", []string{"=low"}, func(s *stageScene, at string) { s.both("unlink", at, "") }},
	{"file in place of a removed one", []string{"=low"}, func(s *stageScene, at string) { s.both("unlink", at, ""); s.both("create", at, "") }},
	{"empty directory of the source", []string{"/"}, nil},
	{"directory of the source", []string{"/x=1", "/y/z=2"}, nil},
	{"merged directory", []string{"/x=1", "/y/z=2"}, func(s *stageScene, at string) { s.both("create", at+"/new", "") }},
	{"emptied directory", []string{"/x=1"}, func(s *stageScene, at string) { s.both("unlink", at+"/x", "") }},
	{"new directory", nil, func(s *stageScene, at string) { s.both("mkdir", at, ""); s.both("create", at+"/new", "") }},
	{"new empty directory", nil, func(s *stageScene, at string) { s.both("mkdir", at, "") }},
	{"removed directory", []string{"/"}, func(s *stageScene, at string) { s.both("rmdir", at, "") }},
	{"file in place of a removed directory", []string{"/"}, func(s *stageScene, at string) { s.both("rmdir", at, ""); s.both("create", at, "") }},
	{"directory in place of a removed one", []string{"/x=1"}, func(s *stageScene, at string) {
		s.both("unlink", at+"/x", "")
		s.both("rmdir", at, "")
		s.both("mkdir", at, "")
		s.both("create", at+"/new", "")
	}},
}

// both does an operation on the staged root and on the model, and compares what they return.
func (s *stageScene) both(name, a, b string) (staged, model error) {
	s.Helper()
	for _, op := range stageOps {
		if op.name != name {
			continue
		}
		text := s.text()
		staged = errnoOf(op.staged(s, a, b, text))
		model = errnoOf(op.model(filepath.Join(s.model, a), filepath.Join(s.model, b), text))
		if staged != model { //nolint:errorlint // errnos
			s.Errorf("%s %s %s: %v, want %v", name, a, b, staged, model)
		}
		return staged, model
	}
	s.Fatalf("no operation is called %s", name)
	return nil, nil
}

// A name is renamed, without and with RENAME_NOREPLACE, and exchanged, between all kinds of
// places. The result and the error are as in a plain directory, also in the next session.
func TestRenameRules(t *testing.T) {
	for _, old := range stagePlaces {
		for _, target := range stagePlaces {
			t.Run(old.name+" to "+target.name, func(t *testing.T) {
				for _, op := range []string{"rename", "renamenew", "exchange"} {
					s := renameScene(t, "", &old, &target)
					before := stateOf(t, s.source)
					s.both(op, "a/old", "b/new")
					want := seenIn(t, s.model)
					if have := s.seen(); !maps.Equal(have, want) {
						t.Errorf("%s:\n%s", op, difference(have, want))
					}
					s.end()
					s.start()
					if have := s.seen(); !maps.Equal(have, want) {
						t.Errorf("%s, in the next session:\n%s", op, difference(have, want))
					}
					if now := stateOf(t, s.source); !maps.Equal(now, before) {
						t.Errorf("the source has changed:\n%s", difference(now, before))
					}
				}
			})
		}
	}
}

// renameScene returns a scene with one place at a/old and another at b/new. Its store lies in the
// directory stages, unless that is "".
func renameScene(t *testing.T, stages string, old, target *stagePlace) *stageScene {
	t.Helper()
	files := []string{"a/", "b/"}
	for _, f := range old.source {
		files = append(files, "a/old"+f)
	}
	for _, f := range target.source {
		files = append(files, "b/new"+f)
	}
	s := newStagedIn(t, stages, files...)
	if old.staged != nil {
		old.staged(s, "a/old")
	}
	if target.staged != nil {
		target.staged(s, "b/new")
	}
	return s
}

// A rename is killed at each of its points: the next session finds it done, or not begun.
func TestRenameIsKilled(t *testing.T) {
	places := stagePlaces
	if testing.Short() {
		places = append(places[:4:4], places[6:8]...) // files, and directories of the source
	}
	for _, name := range []string{"rename", "exchange"} {
		op := stageOps[slices.IndexFunc(stageOps, func(op stageOp) bool { return op.name == name })]
		for _, old := range places[1:] {
			for _, target := range places {
				for n, killed := 0, true; killed; n++ {
					s := renameScene(t, inMemory, &old, &target)
					s.log = []string{name + " of a " + old.name + " to a " + target.name}
					if n > 100 {
						s.fail("it has more than 100 points")
					}
					_, killed = s.killAt(op, "a/old", "b/new", "", n)
					s.end()
				}
			}
		}
	}
}

// A directory of the source that is too large to be copied is not renamed: the error is EXDEV,
// upon which programs copy it. Nothing is changed.
func TestLargeDirectoryIsNotRenamed(t *testing.T) {
	s := newStaged(t, "big/f=x")
	s.must(unix.Truncate(filepath.Join(s.source, "big/f"), 65<<20))
	before := s.lstat("big/f")
	if err := errnoOf(s.rename("big", "moved", 0)); err != unix.EXDEV { //nolint:errorlint // an errno
		t.Errorf("rename: %v, want %v", err, unix.EXDEV)
	}
	if now := s.lstat("big/f"); now.ID() != before.ID() || now.Size != before.Size {
		t.Errorf("big/f is %v, was %v", now, before)
	}
}

// A rename of one name of a file to another of its names leaves both, as rename(2) does.
func TestRenameToAnotherNameOfTheFile(t *testing.T) {
	s := newStaged(t, "a=x")
	dir, name := s.split("b")
	_, err := s.tree.Link(t.Context(), s.who, s.at("a"), nil, dir, name)
	s.must(err)
	before := s.seen()
	s.must(s.rename("a", "b", 0))
	if now := s.seen(); difference(now, before) != "" || len(now) != 2 {
		t.Errorf("seen:\n%s", difference(now, before))
	}
}
