package apply_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/apply"
	"github.com/rootsfs/rootsfs/vfs/internal/beneath"
)

// After a kill before or after the exchange or the removal, the owner's next command on the stage
// finishes or reverts the step. The path has the owner's file or the complete file of the stage, or
// no file if the removal is finished. No temporary file is left. Changes that the owner has made
// since the kill are not overwritten.
func TestRecoverStep(t *testing.T) {
	for _, c := range []struct {
		name, point   string
		owner         func(s *scene)
		change        string // the changes after the recovery
		source, after string // after the recovery, and after another apply
	}{
		{"before the exchange", "exchange", nil, "M f", "f", "f=staged"},
		{"after the exchange", "look", nil, "", "f=staged", "f=staged"},
		{"before, and the owner replaces it", "exchange", func(s *scene) { s.replace("f", "mine") }, "C f", "f=mine", "f=mine"},
		{"after, and the owner writes to the old one", "look", func(s *scene) {
			s.must(os.WriteFile(s.temp(), []byte("mine"), 0o644))
		}, "C f", "f=mine", "f=mine"},
		{"after, and the owner replaces the new one", "look", func(s *scene) { s.replace("f", "mine") }, "C f", "f=mine", "f=mine"},
		{"before the removal", "move", nil, "D f", "f", ""},
		{"after the removal", "look", nil, "", "", ""},
		{"after the removal, and the owner writes to it", "look", func(s *scene) {
			s.must(os.WriteFile(s.temp(), []byte("mine"), 0o644))
		}, "C f", "f=mine", "f=mine"},
		{"after the removal, and the owner makes it anew", "look", func(s *scene) { s.write("f", "mine") }, "C f", "f=mine", "f=mine"},
		{"before the exchange for a link", "exchange", nil, "T f", "f", "f->x"},
		{"after the exchange for a link", "look", nil, "", "f->x", "f->x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, "f")
			switch {
			case strings.Contains(c.name, "removal"):
				s.rm("f")
			case strings.Contains(c.name, "link"):
				s.rm("f")
				s.link("f", "x")
			default:
				s.put("f", "staged")
			}
			s.runAt(c.point, func(string) error { return errKilled })
			if _, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{}); err == nil {
				t.Fatal("it was not killed")
			}
			s.end()
			if c.owner != nil {
				c.owner(s)
			}
			s.start()
			s.wantChanges(c.change)
			s.wantSource(strings.Fields(c.source)...)
			_, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{})
			s.must(err)
			s.wantSource(strings.Fields(c.after)...)
		})
	}
}

// A directory gets its mode also if the process was killed after it was made and before it was
// finished. A directory that the owner made keeps the owner's mode.
func TestKilledBeforeTheModeOfADirectory(t *testing.T) {
	s := newScene(t)
	for _, dir := range []string{"d", "own"} {
		s.mkdir(dir)
		s.put(dir+"/f", "staged")
		s.chmod(dir, 0o555)
	}
	s.end()
	s.must(os.Mkdir(s.at("d"), 0o700), os.Chmod(s.at("d"), os.ModeSticky|0o700), os.Mkdir(s.at("own"), 0o755)) // the kill leaves d in this state
	s.start()
	s.wantChanges("m d, A d/f, A own/f")
	s.apply(vfs.StageApply{}, "m d, A d/f, A own/f", "")
	s.wantMode("d", 0o555)
	s.wantMode("own", 0o755)
	s.must(os.Chmod(s.at("d"), 0o755)) // so that it can be removed
}

func (s *scene) wantMode(rel string, want os.FileMode) {
	s.Helper()
	info, err := os.Stat(s.at(rel))
	s.must(err)
	if info.Mode().Perm() != want {
		s.Errorf("%s has the mode %o, want %o", rel, info.Mode().Perm(), want)
	}
}

// temp returns the path of the only temporary file at the top of the source.
func (s *scene) temp() string {
	s.Helper()
	list, err := filepath.Glob(s.at(vfs.TempPrefix + "*"))
	s.must(err)
	if len(list) != 1 {
		s.Fatalf("temporary files are %v, want one", list)
	}
	return list[0]
}

// killAt ends an apply of everything at a point, as if the process were killed, and revokes the
// root. Before that, killAt calls owner at the point ownerAt.
func (s *scene) killAt(point string, ownerAt string, owner func()) {
	s.Helper()
	apply.AtStep = func(at, _ string) error {
		switch at {
		case ownerAt:
			owner()
		case point:
			return errKilled
		}
		return nil
	}
	_, err := s.tree.StageApply(s.Context(), "r", vfs.StageApply{})
	apply.AtStep = nil
	if err == nil {
		s.Fatal("it was not killed")
	}
	s.end()
}

// A killed apply may leave the new file at the path of a file of the owner. If the owner writes
// to the new file then, those writes are not removed when the old file comes back.
func TestRecoveryKeepsWhatTheOwnerWrote(t *testing.T) {
	s := newScene(t, "f")
	s.put("f", "staged")
	s.killAt("look", "exchange", func() { s.replace("f", "replaced") })
	f, err := os.OpenFile(s.at("f"), os.O_WRONLY|os.O_APPEND, 0)
	s.must(err)
	_, err = f.WriteString(" and mine")
	s.must(err, f.Close())
	s.start()
	s.wantChanges("C f")
	if b, err := os.ReadFile(s.at("f")); err != nil || string(b) != "replaced" {
		t.Errorf("f has %q, %v; want what the owner put there", b, err)
	}
	if b, err := os.ReadFile(s.temp()); err != nil || string(b) != "staged and mine" {
		t.Errorf("beside it is %q, %v; want what the owner wrote after the kill", b, err)
	}
}

// If the owner has the old file open for writing when the next session recovers a killed apply, the
// file comes back to its path, with the owner's later writes.
func TestRecoveryRestoresOpenFile(t *testing.T) {
	for _, isRemoved := range []bool{false, true} {
		s := newScene(t, "f")
		if s.put("f", "staged"); isRemoved {
			s.rm("f")
		}
		s.killAt("look", "", nil)
		f, err := os.OpenFile(s.temp(), os.O_WRONLY, 0)
		s.must(err)
		s.start()
		s.wantChanges(map[bool]string{false: "M f", true: "D f"}[isRemoved])
		_, err = f.WriteString("mine")
		s.must(err, f.Close())
		s.wantChanges("C f")
		s.wantSource("f=mine")
	}
}

// If a discard is killed half way, the change is still staged, or is dropped. It never
// becomes a removal, which the next apply would make in the source. In this test, a program has
// removed the file and made it again.
func TestDiscardIsKilled(t *testing.T) {
	s := newScene(t, "f", "d/f")
	s.rm("f", "d/f")
	s.rmdir("d")
	s.put("f", "staged")
	s.mkdir("d")
	beneath.AtStep = func(at string) error {
		if at == "removed" {
			return errKilled
		}
		return nil
	}
	t.Cleanup(func() { beneath.AtStep = nil })
	for range 3 {
		_, err := s.tree.StageDiscard(t.Context(), "r", []string{"d", "f"})
		if err == nil {
			break
		}
		s.restart()
		list, err := s.tree.StageChanges(t.Context(), "r", nil)
		s.must(err)
		if got := words(list); strings.Contains(got, "D f") || strings.Contains(got, "D d,") || strings.HasSuffix(got, "D d") {
			t.Errorf("after a kill, the stage says %q; want no removal of what it had replaced", got)
		}
	}
	beneath.AtStep = nil
	_, err := s.tree.StageDiscard(t.Context(), "r", nil)
	s.must(err)
	s.wantChanges("")
	s.wantSource("d/", "d/f", "f")
}
