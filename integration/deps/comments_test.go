package deps

import (
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// riddles are phrases that name a thing by a clause. A comment names it by a noun: not "size
// is what a read returns at most" but "size is the most bytes that a read returns".
var riddles = regexp.MustCompile(`(?i)\b(?:is|are|was|were) (?:what|who|whoever|those that|those who)\b|\bwhoever\b|\bof ours\b|\bthe likes of\b`)

// notYetPlain are the directories whose comments still have riddles. Take a directory off the
// list when its comments have none.
var notYetPlain = []string{}

// Comments name things by nouns.
func TestCommentsArePlain(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z", "*.go")
	cmd.Dir = top(t)
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a checkout: %v", err)
	}
	found := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if name == "integration/deps/comments_test.go" {
			continue // the pattern itself
		}
		for _, text := range riddlesOf(t, filepath.Join(cmd.Dir, name)) {
			found[path.Dir(name)] = true
			if !slices.Contains(notYetPlain, path.Dir(name)) {
				t.Errorf("%s: name the thing by a noun, not by a clause", strings.Replace(text, cmd.Dir+"/", "", 1))
			}
		}
	}
	for _, dir := range notYetPlain {
		if !found[dir] {
			t.Errorf("the comments of %s are plain: take it off the list notYetPlain", dir)
		}
	}
}

// riddlesOf returns the riddles in the comments of a file, with their positions. A phrase may
// break over a line.
func riddlesOf(t *testing.T, file string) (list []string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil // removed in this checkout; vet reports a file that does not parse
	}
	for _, c := range f.Comments {
		if text := strings.Join(strings.Fields(c.Text()), " "); riddles.MatchString(text) {
			list = append(list, fset.Position(c.Pos()).String()+": "+riddles.FindString(text))
		}
	}
	return list
}
