package vfs_test

import (
	"fmt"
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
// places. The result and the error are as in a plain directory, also in the next session. The
// renames of one kind of place share a session: each has a directory of its own.
func TestRenameRules(t *testing.T) {
	for _, old := range stagePlaces {
		t.Run(old.name, func(t *testing.T) {
			s := newStagedIn(t, inMemory)
			type rename struct{ op, top string }
			var renames []rename
			for _, target := range stagePlaces {
				for _, op := range []string{"rename", "renamenew", "exchange"} {
					r := rename{op, op + " to " + target.name}
					s.addPlaces(r.top, &old, &target)
					renames = append(renames, r)
				}
			}
			before := stateOf(t, s.source)
			for _, r := range renames {
				s.both(r.op, r.top+"/a/old", r.top+"/b/new")
			}
			want := seenIn(t, s.model)
			if have := s.seen(); !maps.Equal(have, want) {
				t.Error(difference(have, want))
			}
			s.end()
			s.start()
			if have := s.seen(); !maps.Equal(have, want) {
				t.Errorf("in the next session:\n%s", difference(have, want))
			}
			if now := stateOf(t, s.source); !maps.Equal(now, before) {
				t.Errorf("the source has changed:\n%s", difference(now, before))
			}
		})
	}
}

// addPlaces adds one place at a/old and another at b/new, below the new directory top.
func (s *stageScene) addPlaces(top string, old, target *stagePlace) {
	s.Helper()
	from, to := top+"/a/old", top+"/b/new"
	files := []string{top + "/a/", top + "/b/"}
	for _, f := range old.source {
		files = append(files, from+f)
	}
	for _, f := range target.source {
		files = append(files, to+f)
	}
	s.make(s.source, files...)
	s.make(s.model, files...)
	if old.staged != nil {
		old.staged(s, from)
	}
	if target.staged != nil {
		target.staged(s, to)
	}
}

// A rename is killed at each of its points: the next session finds it done, or not begun. The
// renames between the same two places share a store: each has a directory of its own.
func TestRenameIsKilled(t *testing.T) {
	places := stagePlaces
	if testing.Short() {
		places = append(places[:4:4], places[6:8]...) // files, and directories of the source
	}
	kills := 0
	for _, name := range []string{"rename", "exchange"} {
		op := stageOps[slices.IndexFunc(stageOps, func(op stageOp) bool { return op.name == name })]
		for _, old := range places[1:] {
			for _, target := range places {
				s := newStagedIn(t, inMemory)
				s.log = []string{name + " of a " + old.name + " to a " + target.name}
				s.killAtEachPoint(op, &old, &target)
				kills += s.crashes
				s.end()
			}
		}
	}
	t.Logf("%d kills", kills)
}

// killAtEachPoint adds the places again and again, and kills the rename from old to target at its
// first point, its second, and so on, until a rename has fewer points. Then all views are as in the
// model.
func (s *stageScene) killAtEachPoint(op stageOp, old, target *stagePlace) {
	s.Helper()
	for n, killed := 0, true; killed; n++ {
		if n > 100 {
			s.fail("it has more than 100 points")
		}
		top := fmt.Sprint(n)
		s.addPlaces(top, old, target)
		killed = s.stepKilledAt(op, top, "a/old", "b/new", "", n)
	}
	if have, want := s.seen(), seenIn(s.T, s.model); !maps.Equal(have, want) {
		s.fail("seen in the end:\n%s", difference(have, want))
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
