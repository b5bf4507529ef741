package vfs_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// whiteouts reads the hidden names from the log of the store.
func (s *stageScene) whiteouts() map[string]bool {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.store, "log"))
	s.must(err)
	out := map[string]bool{}
	for line := range bytes.SplitSeq(bytes.TrimSpace(text), []byte("\n")) {
		var rec struct {
			P     *[]byte `json:"p"`
			W     bool    `json:"w"`
			Clear *[]byte `json:"clear"`
		}
		s.must(json.Unmarshal(line, &rec))
		switch {
		case rec.P != nil && rec.W:
			out[string(*rec.P)] = true
		case rec.Clear != nil:
			delete(out, string(*rec.Clear))
		}
	}
	return out
}

// united returns the expected names: those of the upper directory, and those of the source that
// no whiteout and no file of the upper directory hides.
func (s *stageScene) united() map[string]string {
	s.Helper()
	upper, lower, hidden := seenIn(s.T, filepath.Join(s.store, "upper")), seenIn(s.T, s.source), s.whiteouts()
	out := maps.Clone(upper)
	for rel, text := range lower {
		shown := true
		for at := rel; ; at = filepath.Dir(at) {
			above := at != rel
			if at == "." {
				break
			}
			have, isUpper := upper[at]
			if hidden[at] || above && isUpper && !strings.HasPrefix(have, "40") || above && !isUpper && !strings.HasPrefix(lower[at], "40") {
				shown = false
			}
		}
		if _, isUpper := upper[rel]; shown && !isUpper {
			out[rel] = text
		}
	}
	return out
}

// The owner changes the source while programs use a staged root. The view is the union of the
// source and the stage. Lists and look-ups agree on the names. Look-ups and directory entries agree
// on the inode numbers.
func TestUnionLookup(t *testing.T) {
	for seed := range uint64(shortOrSoak(40, 2000)) {
		s := newStageScene(t, seed)
		for range 40 {
			op := stageOps[s.rnd.IntN(len(stageOps))]
			a, b, text := s.path(), s.path(), s.text()
			if s.rnd.IntN(3) == 0 {
				s.log = append(s.log, "owner: "+op.name+" "+a+" "+b)
				_ = op.model(filepath.Join(s.source, a), filepath.Join(s.source, b), text)
			} else {
				s.log = append(s.log, op.name+" "+a+" "+b)
				_ = op.staged(s, a, b, text) // TestStageModel compares its errors
			}
			have, want := s.seen(), s.united()
			if !maps.Equal(have, want) {
				s.fail("seen:\n%s", difference(have, want))
			}
			numbers := map[uint64]rules.Identity{}
			for rel := range want {
				if _, err := s.tree.Lstat(s.Context(), s.who, s.at(rel)); err != nil {
					s.fail("%s is listed, and a look-up says %v", rel, err)
				}
				dir, name := filepath.Split(rel)
				info := s.lstat(rel)
				if other, twice := numbers[info.Ino]; twice && other != info.ID() {
					s.fail("%s has the inode number of another file", rel)
				}
				numbers[info.Ino] = info.ID()
				if got := s.list(strings.TrimSuffix(dir, "/"))[name]; got != info.Ino {
					s.fail("the entry of %s shows the inode %d, and stat %d", rel, got, info.Ino)
				}
			}
		}
		s.end()
	}
}

// A whole tree is listed page by page, even if each page has only one name.
func TestStagedPages(t *testing.T) {
	s := newStaged(t, "a/1=x", "a/2=x", "a/b/3=x", "c/4=x", "d=x")
	s.put("a/new", "y")
	s.unlink("a/1")
	s.mkdir("e")
	s.put("e/5", "z")
	want, got := s.seen(), map[string]bool{}
	for cursor := ""; ; {
		page, err := s.tree.List(s.Context(), s.who, s.at("").Path, vfs.ListOptions{Recursive: true, Hidden: true, Limit: 1, Cursor: cursor})
		s.must(err)
		for _, e := range page.Entries {
			if got[e.Path.Rel()] {
				t.Errorf("%s came twice", e.Path.Rel())
			}
			got[e.Path.Rel()] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	for rel := range want {
		if !got[rel] {
			t.Errorf("%s did not come", rel)
		}
	}
	if len(got) != len(want) || errnoOf(s.write("a/1", "x", unix.O_WRONLY)) != unix.ENOENT { //nolint:errorlint // an errno
		t.Errorf("%d names came, want %d", len(got), len(want))
	}
}
