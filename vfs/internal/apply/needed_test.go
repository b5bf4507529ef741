package apply_test

import (
	"os"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/vfs"
	"github.com/rootsfs/rootsfs/vfs/internal/apply"
)

// An apply of one path compares that path and the directories above it, and the checkpoint of the
// path keeps no other file. If the path lies in a repository's data, all files of that data are
// compared and kept, because they are applied together.
func TestApplyOfPathNeedsOnlyIt(t *testing.T) {
	for path, want := range map[string]string{"a/f": "a a/f", "a/.git/HEAD": "a a/.git a/.git/HEAD a/.git/index"} {
		s := newScene(t, "a/f", "b/g")
		s.policy.NoDefaults = true // so that a program can write into .git
		s.restart()
		s.mkdir("a/.git")
		s.mkdir("a/d")
		for _, rel := range []string{"a/f", "a/d/x", "a/.git/HEAD", "a/.git/index", "b/g", "new"} {
			s.put(rel, "staged")
		}
		s.must(s.tree.StageCheckpointOf(t.Context(), "r", []string{path}, vfs.CheckpointApply))
		objects, err := os.ReadDir(s.store + "/objects")
		s.must(err)
		var compared []string
		apply.AtStep = func(point, rel string) error {
			if point == "compare" {
				compared = append(compared, rel)
			}
			return nil
		}
		_, err = s.tree.StageApply(t.Context(), "r", vfs.StageApply{Paths: []string{path}})
		apply.AtStep = nil
		s.must(err)
		files := strings.Count(want, "/f") + strings.Count(want, "HEAD") + strings.Count(want, "index")
		if got := strings.Join(compared, " "); got != want || len(objects) != files {
			t.Errorf("apply %s compared %q, and its checkpoint has %d objects, want %q and %d", path, got, len(objects), want, files)
		}
	}
}
