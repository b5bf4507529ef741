package deps

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// namedFile is the path of a file, or its end: "revoke.go", "cli/cmd_run.go".
	namedFile = regexp.MustCompile(`\b[a-z][a-z0-9_/]*\.(?:go|md)\b`)
	// namedFunc is a file and a function or method of it, as "vfs/open.go `Tree.Open`".
	namedFunc = regexp.MustCompile("(" + namedFile.String() + ")\\s+`(?:([A-Za-z]+)\\.)?([A-Za-z]+)`")
)

// declares reports whether a file declares a function, type or variable; of is the receiver of a
// method, or "".
func declares(code, of, name string) bool {
	before := `(?m)^(?:(?:func|type|var|const) |\t)`
	if of != "" {
		before = `(?m)^func \((?:\w+ )?\*?` + of + `(?:\[[^\]]*\])?\) `
	}
	return regexp.MustCompile(before + name + `\b`).MatchString(code)
}

// The pages for contributors name files and functions that exist.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	root := top(t)
	all := map[string][]string{} // paths, by the last element
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && namedFile.MatchString(d.Name()) {
			all[d.Name()] = append(all[d.Name()], p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"} {
		text, err := os.ReadFile(filepath.Join(root, ".github", page))
		if err != nil {
			t.Fatal(err)
		}
		have := func(file string) []string {
			return slices.DeleteFunc(slices.Clone(all[filepath.Base(file)]), func(p string) bool { return !strings.HasSuffix(p, "/"+file) })
		}
		for _, file := range namedFile.FindAllString(string(text), -1) {
			if len(have(file)) == 0 {
				t.Errorf("%s names %s, which is not there", page, file)
			}
		}
		for _, m := range namedFunc.FindAllStringSubmatch(string(text), -1) {
			files := have(m[1])
			if len(files) > 0 && !slices.ContainsFunc(files, func(p string) bool {
				code, err := os.ReadFile(p)
				return err == nil && declares(string(code), m[2], m[3])
			}) {
				t.Errorf("%s: %s has no %s", page, m[1], strings.TrimPrefix(m[2]+"."+m[3], "."))
			}
		}
	}
}

// elsewhere matches references that a reader of this repository cannot follow.
var elsewhere = regexp.MustCompile(`(?i)\bdesign\.md\b|\blab/[a-z]+\.md\b|\bhouse/[a-z]+\.md\b|\bseeds?` + space + `\d{3}\b|\bissues?` + space + `\d+\b`)

// space matches the gap between two words of a text or comment, also at the end of a line.
const space = `(?: |\n[\t ]*(?://|#|-)? ?)`

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
		for _, at := range elsewhere.FindAllIndex(text, -1) {
			line := 1 + strings.Count(string(text[:at[0]]), "\n")
			t.Errorf("%s:%d refers to %q: write the fact itself, or the id of a requirement", name, line, text[at[0]:at[1]])
		}
	}
}
