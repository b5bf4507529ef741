package deps

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedFile = regexp.MustCompile(`\b(?:guard|vfs|mount|broker|cmd|integration)/[a-z/_]*[a-z_]+\.(?:go|md)\b`)
	// namedFunc is a file and a function or method of it, as "vfs/open.go `Tree.Open`".
	namedFunc = regexp.MustCompile("(" + namedFile.String() + ")\\s+`(?:[A-Za-z]+\\.)?([A-Za-z]+)`")
)

// The pages for contributors name files and functions that exist.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	root := top(t)
	for _, page := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"} {
		text, err := os.ReadFile(filepath.Join(root, ".github", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range namedFile.FindAllString(string(text), -1) {
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s names %s: %v", page, file, err)
			}
		}
		for _, m := range namedFunc.FindAllStringSubmatch(string(text), -1) {
			code, err := os.ReadFile(filepath.Join(root, m[1]))
			if err != nil {
				continue // reported above
			}
			if !strings.Contains(string(code), " "+m[2]+"(") && !strings.Contains(string(code), " "+m[2]+"[") && !strings.Contains(string(code), "var "+m[2]+" ") {
				t.Errorf("%s: %s has no %s", page, m[1], m[2])
			}
		}
	}
}

// elsewhere matches references that a reader of this repository cannot follow.
var elsewhere = regexp.MustCompile(`(?i)\bdesign\.md\b|\blab/[a-z]+\.md\b|\bhouse/[a-z]+\.md\b|\bseeds? \d{3}\b|\bissues? \d+\b`)

// Nothing refers to documents that are not here, nor to numbers of a tracker that is not public.
// A fact stands where it is needed, or has the id of a requirement (R064) or a public address.
func TestNothingRefersElsewhere(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = top(t)
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(cmd.Dir, name))
		if err != nil || name == "integration/deps/documents_test.go" {
			continue // removed in this checkout, or the pattern itself
		}
		for i, line := range strings.Split(string(text), "\n") {
			if found := elsewhere.FindString(line); found != "" {
				t.Errorf("%s:%d refers to %q: write the fact itself, or the id of a requirement", name, i+1, found)
			}
		}
	}
}
