package vfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// absentAs checks that there is no file at a path, and that a look-up returns the error want.
func (s *stageScene) absentAs(rel string, want error) {
	s.Helper()
	if _, err := s.tree.Lstat(s.Context(), s.who, s.at(rel)); !errors.Is(errnoOf(err), want) {
		s.Errorf("%s: %v, want %v", rel, err, want)
	}
}

// A file that a program has made stays a file, even if the owner makes a directory at its path
// later. Files in that directory are not visible, in this session and the next.
func TestFileHidesTheOwnersDirectory(t *testing.T) {
	s := newStaged(t, "d/")
	s.put("a", "1")
	s.put("d/a", "1")
	s.must(stageOps[0].staged(s, "moved", "", "1"))
	s.must(s.rename("moved", "d/to", 0))
	link, name := s.split("link")
	_, err := s.tree.Symlink(s.Context(), s.who, "d", link, name)
	s.must(err)
	for _, dir := range []string{"a/b/c", "d/a/b/c", "d/to/b/c", "link/b/c", "moved/b"} {
		s.must(os.MkdirAll(filepath.Join(s.source, dir), 0o755))
	}
	for range 2 {
		for _, rel := range []string{"a/b", "a/b/c", "d/a/b", "d/a/b/c", "d/to/b", "d/to/none"} {
			s.absentAs(rel, unix.ENOTDIR)
		}
		s.absentAs("link/b", unix.ELOOP)
		s.lstat("moved/b")
		s.end()
		s.start()
	}
	s.unlink("a")
	s.absentAs("a/b", unix.ENOENT) // a removal hides what the owner has put there
	testkit.Must(t, os.Mkdir(filepath.Join(s.source, "d/new"), 0o755))
	s.lstat("d/new")
}
