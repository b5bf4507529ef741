package deps

import (
	"os"
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

// The pages for those who carry on name files and functions that there are.
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
