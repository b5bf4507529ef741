package apply_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/apply"
)

// outputs returns the build output of each change in the stage: "path=output", or "path".
func (s *scene) outputs(patterns ...string) string {
	s.Helper()
	o, err := vfs.NewStageOutput(guard.Texts(patterns...))
	s.must(err)
	s.tree.SetStageOutput(o)
	list, err := s.tree.StageChanges(s.Context(), "r", nil)
	s.must(err)
	var out []string
	for _, c := range list {
		if c.Output != "" {
			c.Path += "=" + c.Output
		}
		out = append(out, c.Path.Raw())
	}
	return strings.Join(out, " ")
}

// The owner's patterns and the source's .gitignore files name build output. A file of the owner that
// matches a pattern by its own name does not count as build output, and neither do the contents of a
// removed directory and a repository's data. A .gitignore that a program wrote has no effect.
func TestBuildOutput(t *testing.T) {
	for _, c := range []struct {
		name     string
		patterns string
		programs func(s *scene)
		want     string
	}{
		{"no patterns", "", func(s *scene) { s.mkdir("dist"); s.put("dist/x", "x") }, "dist dist/x"},
		{"a directory", "dist/", func(s *scene) { s.mkdir("dist"); s.put("dist/x", "x"); s.put("new", "x") }, "dist=dist dist/x=dist new"},
		{"the topmost", "dist/ *.o", func(s *scene) { s.mkdir("dist"); s.put("dist/x.o", "x"); s.put("x.o", "x") }, "dist=dist dist/x.o=dist x.o=x.o"},
		{"a file named as a directory", "dist/", func(s *scene) { s.put("dist", "x") }, "dist"},
		{"deep", "dist/", func(s *scene) { s.mkdir("a"); s.mkdir("a/dist"); s.put("a/dist/x", "x") }, "a a/dist=a/dist a/dist/x=a/dist"},
		{"a removed file", "*.o", func(s *scene) { s.rm("old.o") }, "old.o"},
		{"a replaced file", "*.o", func(s *scene) { s.rm("old.o"); s.link("old.o", "f") }, "old.o"},
		{"a removed directory", "target/", func(s *scene) { s.rm("target/a"); s.rmdir("target") }, "target target/a"},
		{"a file removed in a directory that stays", "target/", func(s *scene) { s.rm("target/a"); s.put("target/b", "x") }, "target/a=target target/b=target"},
		{"a changed file", "*.o", func(s *scene) { s.put("old.o", "x") }, "old.o"},
		{"a file changed in a directory that stays", "target/", func(s *scene) { s.put("target/a", "x") }, "target/a=target"},
		{"a repository", "dist/", func(s *scene) { s.mkdir("dist"); s.mkdir("dist/.git"); s.put("dist/.git/x", "x") }, "dist=dist dist/.git dist/.git/x"},
		{".gitignore of the source", ".gitignore", func(s *scene) { s.mkdir("ign"); s.put("ign/x", "x") }, "ign=ign ign/x=ign"},
		{".gitignore of the source, overridden", ".gitignore !ign/", func(s *scene) { s.mkdir("ign"); s.put("ign/x", "x") }, "ign ign/x"},
		{".gitignore of a program", ".gitignore", func(s *scene) { s.put(".gitignore", "*"); s.mkdir("d"); s.put("d/.gitignore", "*"); s.put("d/x", "x") }, ".gitignore d d/.gitignore d/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, "f", "old.o", "target/a")
			s.policy.NoDefaults = true // so that a program can write into .git
			s.must(os.WriteFile(s.at(".gitignore"), []byte("ign/\n"), 0o644))
			s.restart()
			c.programs(s)
			if got := s.outputs(strings.Fields(c.patterns)...); got != c.want {
				t.Errorf("changes are %q, want %q", got, c.want)
			}
		})
	}
}

// A list counts build output by its unit, and shows other changes. A removal or change of the
// owner's files is both shown and counted. Build output is shown if the paths name it, and not
// if they name a directory around it.
func TestReview(t *testing.T) {
	file := func(path string, class apply.Class, output string) apply.Change {
		return apply.Change{Path: names.Foreign(path), Class: class, Output: names.Foreign(output), Mode: unix.S_IFREG | 0o644, Size: 10}
	}
	gone := apply.Change{Path: "a/dist/old", Class: apply.Removed, Output: "a/dist", OldMode: unix.S_IFREG | 0o644}
	had := file("a/dist/z", apply.Changed, "a/dist")
	had.OldMode = had.Mode
	list := []apply.Change{
		file("a/new", apply.New, ""),
		{Path: "a/dist", Class: apply.New, Output: "a/dist", Mode: unix.S_IFDIR | 0o755},
		gone, file("a/dist/x", apply.New, "a/dist"), file("a/dist/y", apply.Special, "a/dist"), had,
		file("b.o", apply.Changed, "b.o"),
	}
	unit := apply.OutputUnit{Path: "a/dist", Files: 2, Bytes: 20, Owned: 2}
	object := apply.OutputUnit{Path: "b.o", Files: 1, Bytes: 10}
	for _, c := range []struct {
		paths, want string
		units       []apply.OutputUnit
	}{
		{"", "A a/new, D a/dist/old, M a/dist/z", []apply.OutputUnit{unit, object}},
		{"a", "A a/new, D a/dist/old, M a/dist/z", []apply.OutputUnit{unit, object}},
		{"a/dist", "A a/new, A a/dist, D a/dist/old, A a/dist/x, S a/dist/y, M a/dist/z", []apply.OutputUnit{object}},
		{"a/dist/x", "A a/new, A a/dist, D a/dist/old, A a/dist/x, S a/dist/y, M a/dist/z", []apply.OutputUnit{object}},
		{"a/dist b.o", "A a/new, A a/dist, D a/dist/old, A a/dist/x, S a/dist/y, M a/dist/z, M b.o", nil},
	} {
		shown, units := apply.Review(list, strings.Fields(c.paths))
		if words(shown) != c.want {
			t.Errorf("paths %q show %q, want %q", c.paths, words(shown), c.want)
		}
		if len(units) != len(c.units) {
			t.Errorf("paths %q count %+v, want %+v", c.paths, units, c.units)
			continue
		}
		for i := range units {
			if units[i] != c.units[i] {
				t.Errorf("paths %q count %+v, want %+v", c.paths, units[i], c.units[i])
			}
		}
	}
}
