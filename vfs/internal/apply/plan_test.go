package apply_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// Each change has the right class, whether a program alone or the owner, too, has made changes. A
// restart does not alter the classes.
func TestClasses(t *testing.T) {
	for _, c := range []struct {
		name     string
		programs func(s *scene)
		owner    func(s *scene)
		want     string
	}{
		{"new", func(s *scene) { s.put("new", "x") }, nil, "A new"},
		{"new directory", func(s *scene) { s.mkdir("n"); s.put("n/f", "x") }, nil, "A n, A n/f"},
		{"changed", func(s *scene) { s.put("f", "x") }, nil, "M f"},
		{"changed and back", func(s *scene) { s.put("f", "x"); s.put("f", "f") }, nil, ""},
		{"mode", func(s *scene) { s.chmod("f", 0o600) }, nil, "m f"},
		{"mode of a directory", func(s *scene) { s.chmod("d", 0o700) }, nil, "m d"},
		{"removed", func(s *scene) { s.rm("f") }, nil, "D f"},
		{"removed directory", func(s *scene) { s.rm("d/a", "d/b"); s.rmdir("d") }, nil, "D d, D d/a, D d/b"},
		{"moved", func(s *scene) { s.mv("f", "g") }, nil, "D f, A g"},
		{"file to link", func(s *scene) { s.rm("f"); s.link("f", "d/a") }, nil, "T f"},
		{"file to directory", func(s *scene) { s.rm("f"); s.mkdir("f") }, nil, "T f"},
		{"directory to file", func(s *scene) { s.rm("d/a", "d/b"); s.rmdir("d"); s.put("d", "x") }, nil, "T d, D d/a, D d/b"},
		{"directory made again", func(s *scene) { s.rm("d/a", "d/b"); s.rmdir("d"); s.mkdir("d"); s.put("d/a", "x") }, nil, "M d/a, D d/b"},
		{"directory to link, the owner did the same", func(s *scene) { s.rm("d/a", "d/b"); s.rmdir("d"); s.link("d", "f") }, func(s *scene) {
			s.must(os.RemoveAll(s.at("d")), os.Symlink("f", s.at("d")))
		}, ""},
		{"link target", func(s *scene) { s.rm("l"); s.link("l", "d") }, nil, "M l"},
		{"link that leads out", func(s *scene) { s.link("out", "../x"); s.link("abs", "/etc") }, nil, "L abs, L out"},

		{"both changed", func(s *scene) { s.put("f", "x") }, func(s *scene) { s.write("f", "mine") }, "C f"},
		{"both replaced", func(s *scene) { s.put("f", "x") }, func(s *scene) { s.replace("f", "mine") }, "C f"},
		{"both the same", func(s *scene) { s.put("f", "x") }, func(s *scene) { s.write("f", "x") }, ""},
		{"both removed", func(s *scene) { s.rm("f") }, func(s *scene) { s.must(os.Remove(s.at("f"))) }, ""},
		{"both made", func(s *scene) { s.put("new", "x") }, func(s *scene) { s.write("new", "mine") }, "C new"},
		{"both made directories", func(s *scene) { s.mkdir("n"); s.put("n/x", "x") }, func(s *scene) { s.write("n/y", "mine") }, "A n/x"},
		{"same contents made again by the owner", func(s *scene) { s.put("f", "x") }, func(s *scene) { s.replace("f", "f") }, "M f"},
		{"changed, owner's mode", func(s *scene) { s.put("f", "x") }, func(s *scene) { s.must(os.Chmod(s.at("f"), 0o600)) }, "M f"},
		{"both modes", func(s *scene) { s.chmod("f", 0o600) }, func(s *scene) { s.must(os.Chmod(s.at("f"), 0o640)) }, "C f"},
		{"owner's mode of a directory with a changed file", func(s *scene) { s.put("d/a", "x") }, func(s *scene) { s.must(os.Chmod(s.at("d"), 0o700)) }, "M d/a"},
		{"changed, removed by the owner", func(s *scene) { s.put("f", "x") }, func(s *scene) { s.must(os.Remove(s.at("f"))) }, "C f"},
		{"removed, changed by the owner", func(s *scene) { s.rm("f") }, func(s *scene) { s.write("f", "mine") }, "C f"},
		{"removed, replaced by the owner", func(s *scene) { s.rm("f") }, func(s *scene) { s.replace("f", "f") }, "C f"},
		{"removed, changed by the owner with the old time", func(s *scene) { s.rm("f") }, func(s *scene) {
			was, err := os.Stat(s.at("f"))
			s.must(err)
			s.write("f", "F")
			s.must(os.Chtimes(s.at("f"), was.ModTime(), was.ModTime()))
		}, "C f"},
		{"removed directory, owner's new file", func(s *scene) { s.rm("d/a", "d/b"); s.rmdir("d") }, func(s *scene) { s.write("d/mine", "mine") }, "C d, D d/a, D d/b"},
		{"removed directory, owner's change", func(s *scene) { s.rm("d/a", "d/b"); s.rmdir("d") }, func(s *scene) { s.write("d/a", "mine") }, "C d, C d/a, D d/b"},
		{"directory gone, new file", func(s *scene) { s.put("d/new", "x") }, func(s *scene) { s.must(os.RemoveAll(s.at("d"))) }, "A d/new"},
		{"directory gone, changed file", func(s *scene) { s.put("d/a", "x") }, func(s *scene) { s.must(os.RemoveAll(s.at("d"))) }, "C d/a"},
		{"directory gone, unchanged", func(s *scene) { s.put("d/new", "x"); s.rm("d/new") }, func(s *scene) { s.must(os.RemoveAll(s.at("d"))) }, ""},
		{"file of the owner's for a new directory", func(s *scene) { s.mkdir("n"); s.put("n/f", "x") }, func(s *scene) { s.write("n", "mine") }, "C n, C n/f"},
		{"directory of the owner's for a new file", func(s *scene) { s.put("n", "x") }, func(s *scene) { s.write("n/f", "mine") }, "C n"},
		{"directory of the owner's for a changed file", func(s *scene) { s.put("f", "x") }, func(s *scene) { s.must(os.Remove(s.at("f"))); s.write("f/g", "mine") }, "C f"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, "d/a", "d/b", "f")
			s.must(os.Symlink("f", s.at("l")))
			c.programs(s)
			if c.owner != nil {
				c.owner(s)
			}
			s.wantChanges(c.want)
			s.restart()
			s.wantChanges(c.want)
		})
	}
}

// A FIFO stays in the stage, and does not prevent other changes from being applied.
func TestSpecialFilesStay(t *testing.T) {
	s := newScene(t)
	s.policy.PosixFull = true
	s.restart()
	_, err := s.tree.Mknod(t.Context(), s.who, s.place(""), "p", unix.S_IFIFO|0o600, 0)
	s.must(err)
	s.put("new", "x")
	s.apply(vfs.StageApply{}, "A new", "")
	s.wantChanges("S p")
}

// If there is a conflict, nothing is written. With Partial, only the conflict is left: it stays in
// the stage, and the source's file stays unchanged.
func TestNothingWrittenOnConflict(t *testing.T) {
	s := newScene(t, "a", "b", "c", "d")
	s.put("a", "staged")
	s.put("b", "staged")
	s.rm("c")
	s.put("new", "staged")
	s.write("b", "mine")
	s.apply(vfs.StageApply{}, "", "C b")
	s.wantSource("a", "b=mine", "c", "d")
	s.apply(vfs.StageApply{Partial: true, DryRun: true}, "M a, D c, A new", "C b")
	s.wantSource("a", "b=mine", "c", "d")
	s.apply(vfs.StageApply{Partial: true}, "M a, D c, A new", "C b")
	s.wantSource("a=staged", "b=mine", "d", "new=staged")
	s.wantChanges("C b")
	s.apply(vfs.StageApply{Paths: []string{"a", "d"}}, "", "")
}

// Paths select what is applied; a conflict elsewhere does not matter.
func TestApplyPaths(t *testing.T) {
	s := newScene(t, "d/a", "d/b", "e/a")
	s.put("d/a", "staged")
	s.put("e/a", "staged")
	s.mkdir("n")
	s.mkdir("n/m")
	s.put("n/m/f", "staged")
	s.write("e/a", "mine")
	s.apply(vfs.StageApply{Paths: []string{"d", "n/m/f"}}, "M d/a, A n/m/f", "")
	s.wantSource("d/", "d/a=staged", "d/b", "e/", "e/a=mine", "n/", "n/m/", "n/m/f=staged")
	s.wantChanges("C e/a")
}

// The owner may choose a version. Files of the owner that the stage replaces go to the trash,
// even if the root has no trash otherwise.
func TestTake(t *testing.T) {
	change := func(s *scene) {
		s.put("f", "staged")
		s.rm("gone")
		s.put("new", "staged")
		for _, rel := range []string{"f", "gone", "new"} {
			s.write(rel, "mine")
		}
	}
	var s *scene
	for _, keepsAll := range []bool{false, true} {
		s = newScene(t, "f", "gone")
		s.policy.Trash.On = keepsAll
		s.restart()
		change(s)
		s.apply(vfs.StageApply{Take: "stage"}, "M f, D gone, M new", "")
		s.wantSource("f=staged", "new=staged")
		kept := 0
		list, err := os.ReadDir(s.at(rules.TrashName))
		s.must(err)
		for _, e := range list {
			if b, err := os.ReadFile(filepath.Join(s.at(rules.TrashName), e.Name())); err == nil && string(b) == "mine" {
				kept++
			}
		}
		if kept != 3 {
			t.Errorf("the trash has %v, want the owner's three files", list)
		}
	}

	// A directory can replace a file of the owner, too.
	s = newScene(t, "f", "gone")
	s.policy.Trash.On = true
	s.restart()
	for _, rel := range []string{"f", "gone"} {
		s.rm(rel)
		s.mkdir(rel)
		s.put(rel+"/g", "staged")
	}
	s.write("f", "mine")
	s.write("gone", "mine")
	s.must(os.Remove(s.at("gone")))
	s.apply(vfs.StageApply{Partial: true}, "A gone, A gone/g", "C f, C f/g")
	s.apply(vfs.StageApply{Take: "stage"}, "T f, A f/g", "")
	s.wantSource("f/", "f/g=staged", "gone/", "gone/g=staged")

	s = newScene(t, "f", "gone")
	change(s)
	s.put("other", "staged")
	r, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{Take: "source"})
	if err != nil || words(r.Done) != "A other" || words(r.Dropped) != "C f, C gone, C new" || len(r.Left) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	s.wantSource("f=mine", "gone=mine", "new=mine", "other=staged")
	s.wantChanges("")

	// A part of a removed directory cannot be dropped by itself.
	s = newScene(t, "d/a", "d/b")
	s.rm("d/a", "d/b")
	s.rmdir("d")
	s.write("d/a", "mine")
	s.apply(vfs.StageApply{Paths: []string{"d/a"}, Take: "source"}, "", "C d/a")
	s.apply(vfs.StageApply{Take: "source"}, "D d/b", "")
	s.wantSource("d/", "d/a=mine")
}

// The policy at the time of the apply counts. It also excludes a .git that a program has made,
// with its contents.
func TestPolicyAtApply(t *testing.T) {
	s := newScene(t, "a.lock", "b.lock", "d/f")
	s.put("a.lock", "staged")
	s.rm("b.lock")
	s.put("new.lock", "staged")
	s.put("d/f", "staged")
	s.put("other", "staged")
	s.mkdir("p")
	s.mkdir("p/.git")
	s.put("p/.git/HEAD", "staged")
	s.policy.Protect, s.policy.Hide = guard.Texts("*.lock"), guard.Texts("d")
	s.restart()
	list, err := s.tree.StageChanges(t.Context(), "r", nil)
	s.must(err)
	if want := "P a.lock, P b.lock, P d/f, P new.lock, A other, A p, P p/.git, C p/.git/HEAD"; words(list) != want {
		t.Errorf("changes are %q, want %q: %q", words(list), want, whys(list))
	}
	for _, c := range list {
		if c.Class == vfs.StageProtected && !strings.Contains(c.Why.Raw(), "protect") && !strings.Contains(c.Why.Raw(), "hide") {
			t.Errorf("%s does not name the rule: %s", c.Path, c.Why)
		}
	}
	r, err := s.tree.StageApply(t.Context(), "r", vfs.StageApply{Partial: true})
	if err != nil || words(r.Done) != "A other, A p" {
		t.Errorf("applied %q, %v", words(r.Done), err)
	}
	s.wantSource("a.lock", "b.lock", "d/", "d/f", "other=staged", "p/")
}

// Files that were written shortly before a power loss are applied only if the owner asks for
// it.
func TestUnsureIsLeft(t *testing.T) {
	s := newScene(t, "f", "g")
	s.policy.Trash.On = true
	s.restart()
	s.put("f", "staged")
	s.put("new", "staged")
	s.rm("g")
	log := filepath.Join(s.store, "log")
	text, err := os.ReadFile(log)
	s.must(err)
	s.end()
	s.must(os.WriteFile(log, otherBoot(t, text), 0o600))
	s.start()
	s.wantChanges("? f, ? g, ? new")
	s.apply(vfs.StageApply{}, "", "? f, ? g, ? new")
	s.wantSource("f", "g")
	s.restart()
	s.apply(vfs.StageApply{Paths: []string{"f", "g"}, Take: "stage"}, "M f, D g", "")
	s.wantSource("f=staged")
	s.write("new", "mine")
	s.apply(vfs.StageApply{Take: "source"}, "", "")
	s.wantSource("f=staged", "new=mine")
	s.wantChanges("")
}

// otherBoot returns the log as another run of the kernel would have written it.
func otherBoot(t *testing.T, text []byte) []byte {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for line := range bytes.Lines(text) {
		line = bytes.Replace(line, bytes.TrimSpace(boot), []byte("another"), 1)
		body := line[:len(line)-len(",\"x\":\"00000000\"}\n")]
		out = append(out, fmt.Sprintf("%s,\"x\":\"%08x\"}\n", body, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))...)
	}
	return out
}

// After a change is dropped, the source's file is visible. A part of a removed directory cannot
// be dropped by itself.
func TestDiscard(t *testing.T) {
	s := newScene(t, "d/a", "d/b", "f", "g/h")
	s.put("f", "staged")
	s.put("g/h", "staged")
	s.put("g/new", "staged")
	s.rm("d/a", "d/b")
	s.rmdir("d")
	r, err := s.tree.StageDiscard(t.Context(), "r", []string{"d/a", "g"})
	if err != nil || words(r.Done) != "M g/h, A g/new" || words(r.Left) != "C d/a" {
		t.Errorf("%+v, %v; want d/a left", r, err)
	}
	s.wantChanges("D d, D d/a, D d/b, M f")
	if r, err = s.tree.StageDiscard(t.Context(), "r", []string{"d"}); err != nil || words(r.Done) != "D d, D d/a, D d/b" {
		t.Errorf("%+v, %v", r, err)
	}
	text, err := s.tree.StageContents(t.Context(), "r", "f", true, 100)
	if err != nil || string(text) != "staged" {
		t.Errorf("f has %q, %v in the stage", text, err)
	}
	if text, err = s.tree.StageContents(t.Context(), "r", "f", false, 100); err != nil || string(text) != "f" {
		t.Errorf("f has %q, %v in the source", text, err)
	}
	if _, err = s.tree.StageContents(t.Context(), "r", "f", true, 5); err == nil {
		t.Error("no error for six bytes with a limit of five")
	}
	r, err = s.tree.StageDiscard(t.Context(), "r", nil)
	if err != nil || words(r.Done) != "M f" {
		t.Errorf("%+v, %v", r, err)
	}
	s.wantSource("d/", "d/a", "d/b", "f", "g/", "g/h")
	s.end()
	if left, err := os.ReadDir(s.stages); err != nil || len(left) > 0 {
		t.Errorf("the store is still there: %v, %v", left, err)
	}
}

// Nothing is written through a link that the owner or a program has made.
func TestLinksOnEitherSideLeadNowhere(t *testing.T) {
	outside := t.TempDir()
	s := newScene(t, "d/a", "d/b", "e/a")
	s.must(os.WriteFile(filepath.Join(outside, "a"), []byte("outside"), 0o644))
	s.put("d/a", "staged")
	s.put("d/new", "staged")
	s.rm("d/b")
	s.must(os.Rename(s.at("d"), s.at("was")), os.Symlink(outside, s.at("d")))
	s.rm("e/a")
	s.rmdir("e")
	s.link("e", outside)
	s.apply(vfs.StageApply{Partial: true}, "D e/a", "C d, C d/a, C d/new, L e")
	s.apply(vfs.StageApply{Partial: true, Links: true, Paths: []string{"e"}}, "T e", "")
	s.wantSource("d->"+outside, "e->"+outside, "was/", "was/a=d/a", "was/b=d/b")
	list, err := os.ReadDir(outside)
	text, _ := os.ReadFile(filepath.Join(outside, "a"))
	if err != nil || len(list) != 1 || string(text) != "outside" {
		t.Errorf("outside are %v, %v, and a has %q", list, err, text)
	}
}

// If several directories above a change are left, its reason names the outermost.
func TestReasonNamesOneDirectory(t *testing.T) {
	s := newScene(t, "d/a")
	s.mkdir("d/e")
	s.mkdir("d/e/g")
	s.put("d/e/g/new", "staged")
	s.must(os.Rename(s.at("d"), s.at("was")), os.Symlink("was", s.at("d")))
	list, err := s.tree.StageChanges(t.Context(), "r", nil)
	s.must(err)
	if words(list) != "C d, C d/e, C d/e/g, C d/e/g/new" {
		t.Fatal(words(list))
	}
	for i := range list[1:] {
		if want := `it lies in "d", which is left: ` + list[0].Why.Raw(); list[1+i].Why.Raw() != want {
			t.Errorf("%s: %s, want %s", list[1+i].Path, list[1+i].Why, want)
		}
	}
}

// A repository is applied whole or not at all.
func TestGitIsOneUnit(t *testing.T) {
	s := newScene(t, "p/.git/objects/1", "p/.git/HEAD", "p/.git/index", "p/f", "q/.git/HEAD")
	s.put("p/.git/HEAD", "staged")
	s.put("p/.git/objects/2", "staged")
	s.put("p/.git/index", "staged")
	s.put("p/f", "staged")
	s.put("q/.git/HEAD", "staged")
	s.write("p/.git/index", "mine")
	s.wantChanges("C p/.git/HEAD, C p/.git/index, C p/.git/objects/2, M p/f, M q/.git/HEAD")
	s.apply(vfs.StageApply{Partial: true, Paths: []string{"p/.git/HEAD"}}, "", "C p/.git/HEAD")
	s.write("p/.git/index", "p/.git/index")
	s.wantChanges("M p/.git/HEAD, M p/.git/index, A p/.git/objects/2, M p/f, M q/.git/HEAD")
	var order []string
	s.recordExchanges(&order)
	s.apply(vfs.StageApply{Paths: []string{"p"}}, "M p/.git/HEAD, M p/.git/index, A p/.git/objects/2, M p/f", "")
	if want := []string{"p/f", "p/.git/HEAD", "p/.git/index"}; len(order) != 3 || order[0] != want[0] || order[1] != want[1] || order[2] != want[2] {
		t.Errorf("exchanged in the order %v, want %v", order, want)
	}
}
