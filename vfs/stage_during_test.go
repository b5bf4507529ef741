package vfs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/apply"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// duringApply lists changes that a program makes to the file "a" just after the owner's apply
// has put it into the source, while the stage still has it.
var duringApply = []struct {
	name string
	do   func(s *stageScene, held *vfs.File) (end func())
	want string // the contents that are seen afterwards; "" if the file is removed
}{
	{"writes", func(s *stageScene, _ *vfs.File) func() {
		s.must(s.write("a", "later", unix.O_WRONLY|unix.O_TRUNC))
		return nil
	}, "later"},
	{"opens, and writes afterwards", func(s *stageScene, _ *vfs.File) func() {
		f, _, err := s.tree.Open(s.Context(), s.who, s.at("a"), unix.O_WRONLY)
		s.must(err)
		return func() {
			_, err := f.WriteAt(s.Context(), s.who, [][]byte{[]byte("later")}, 0, vfs.WriteAtOptions{})
			s.must(err)
			f.Close()
		}
	}, "laterd"},
	{"replaces", func(s *stageScene, _ *vfs.File) func() {
		s.must(s.putTemp("a.new", "later"))
		s.must(s.rename("a.new", "a", 0))
		return nil
	}, "later"},
	{"changes the mode", func(s *stageScene, _ *vfs.File) func() {
		mode := uint32(0o700)
		_, err := s.tree.Setattr(s.Context(), s.who, s.at("a"), nil, vfs.Attrs{Mode: &mode})
		s.must(err)
		return nil
	}, "staged"},
	{"removes", func(s *stageScene, _ *vfs.File) func() { s.unlink("a"); return nil }, ""},
	{"has it open, and changes the mode afterwards", func(s *stageScene, held *vfs.File) func() {
		return func() {
			mode := uint32(0o700)
			_, err := s.tree.Setattr(s.Context(), s.who, s.at("a"), held, vfs.Attrs{Mode: &mode})
			s.must(err)
			var st unix.Stat_t
			s.must(unix.Lstat(filepath.Join(s.source, "a"), &st))
			if st.Mode&0o777 == 0o700 {
				s.Error("the mode of the source's file has changed")
			}
		}
	}, "staged"},
}

// No change that a program makes to a file while the owner applies the file is lost: it is seen,
// and the next apply brings it into the source.
func TestProgramsDuringApply(t *testing.T) {
	for _, c := range duringApply {
		t.Run(c.name, func(t *testing.T) {
			s := newStaged(t, "a=old")
			s.put("a", "staged")
			held, _, err := s.tree.Open(t.Context(), s.who, s.at("a"), unix.O_RDONLY)
			s.must(err)
			defer held.Close()
			var end func()
			apply.AtStep = func(point, path string) error {
				if point == "retired" {
					end = c.do(s, held)
				}
				return nil
			}
			s.applyAll(vfs.StageApply{})
			apply.AtStep = nil
			if end != nil {
				end()
			}
			if text, err := os.ReadFile(filepath.Join(s.source, "a")); err != nil || string(text) != "staged" {
				t.Errorf("the source has %q before the next apply (%v)", text, err)
			}
			seen := s.seen()
			for _, when := range []string{"seen", "in the source after the next apply"} {
				if when != "seen" {
					s.applyAll(vfs.StageApply{})
				}
				text, err := os.ReadFile(filepath.Join(s.source, "a"))
				var st unix.Stat_t
				_ = unix.Lstat(filepath.Join(s.source, "a"), &st)
				got := string(text)
				if when == "seen" {
					got = s.textOf("a")
				} else if os.IsNotExist(err) {
					got = ""
				}
				if got != c.want {
					t.Errorf("%s: %q, want %q; seen was %v", when, got, c.want, seen)
				}
				if when != "seen" && c.want == "staged" && st.Mode&0o777 != 0o700 {
					t.Errorf("the mode is %o", st.Mode)
				}
			}
		})
	}
}

// textOf returns the contents of a file, "" if there is none.
func (s *stageScene) textOf(rel string) string {
	f, _, err := s.tree.Open(s.Context(), s.who, s.at(rel), unix.O_RDONLY)
	if err != nil {
		return ""
	}
	defer f.Close()
	buf := make([]byte, 64)
	n, err := f.ReadAt(s.Context(), s.who, buf, 0)
	s.must(err)
	return string(buf[:n])
}

// The owner's apply drops the stage's file at a moment at which a program has opened that file for
// writing and does not count as a writer yet. The program's open then returns the file that has the
// name after the apply.
func TestOpenedWhileApplied(t *testing.T) {
	s := newStaged(t, "a=old")
	s.put("a", "staged")
	beneath.AtStep = func(point string) error {
		if point == "opened" {
			beneath.AtStep = nil
			s.applyAll(vfs.StageApply{})
		}
		return nil
	}
	f, _, err := s.tree.Open(t.Context(), s.who, s.at("a"), unix.O_WRONLY)
	beneath.AtStep = nil
	s.must(err)
	_, err = f.WriteAt(t.Context(), s.who, [][]byte{[]byte("later!")}, 0, vfs.WriteAtOptions{})
	s.must(err)
	f.Close()
	if got := s.textOf("a"); got != "later!" {
		t.Errorf("%q is seen", got)
	}
	if text, err := os.ReadFile(filepath.Join(s.source, "a")); err != nil || string(text) != "staged" {
		t.Errorf("the source has %q, %v", text, err)
	}
}

// A program opens a file during an apply. It writes to the file when the apply has compared the
// stage's file and is about to drop it. The write is not lost.
func TestWriteWhileDropped(t *testing.T) {
	s := newStaged(t, "a=old")
	s.put("a", "staged")
	var f *vfs.File
	t.Cleanup(func() { apply.AtStep, beneath.AtStep = nil, nil })
	apply.AtStep = func(point, _ string) (err error) {
		if point == "retired" {
			f, _, err = s.tree.Open(t.Context(), s.who, s.at("a"), unix.O_WRONLY)
		}
		return err
	}
	beneath.AtStep = func(point string) (err error) {
		if point == "cleared" {
			beneath.AtStep = nil
			_, err = f.WriteAt(t.Context(), s.who, [][]byte{[]byte("later!")}, 0, vfs.WriteAtOptions{})
		}
		return err
	}
	s.applyAll(vfs.StageApply{})
	apply.AtStep = nil
	f.Close()
	for _, want := range []string{"staged", "later!"} {
		if text, err := os.ReadFile(filepath.Join(s.source, "a")); err != nil || string(text) != want || s.textOf("a") != "later!" {
			t.Errorf("the source has %q, %v, want %q; seen is %q", text, err, want, s.textOf("a"))
		}
		s.applyAll(vfs.StageApply{})
	}
}

// A file that a program or the owner changes after the comparison is not applied, even if its size
// and its time of modification stay the same.
func TestChangedAfterComparison(t *testing.T) {
	for who, want := range map[string]vfs.StageClass{"program": vfs.StageInUse, "owner": vfs.StageConflict} {
		s := newStaged(t, "a=old!")
		s.put("a", "new!")
		path := filepath.Join(s.source, "a")
		if who == "program" {
			path = filepath.Join(s.store, "upper", "a")
		}
		info, err := os.Stat(path)
		s.must(err)
		time.Sleep(10 * time.Millisecond) // longer than a tick of the clock that stamps files
		apply.AtStep = func(point, _ string) error {
			if point != "begin" {
				return nil
			}
			apply.AtStep = nil
			if who == "program" {
				s.must(s.write("a", "late", unix.O_WRONLY))
			} else {
				s.must(os.WriteFile(path, []byte("mine"), 0o644))
			}
			return os.Chtimes(path, info.ModTime(), info.ModTime())
		}
		r := s.applyAll(vfs.StageApply{})
		apply.AtStep = nil
		if len(r.Left) != 1 || r.Left[0].Class != want {
			t.Errorf("the %s has changed it: applied %v, left %v", who, r.Done, r.Left)
		}
	}
}
