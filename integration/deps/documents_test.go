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

// declares reports whether code declares a function, type, variable or constant. receiver is the
// type of a method, or "". Without a receiver, a name that follows a single tab at the beginning of
// a line counts, because it may be in a group of declarations.
func declares(code, receiver, name string) bool {
	before := `(?m)^(?:(?:func|type|var|const) |\t)`
	if receiver != "" {
		before = `(?m)^func \((?:\w+ )?\*?` + receiver + `(?:\[[^\]]*\])?\) `
	}
	return regexp.MustCompile(before + name + `\b`).MatchString(code)
}

// documents are the files that a page can name.
type documents struct {
	root string
	all  map[string][]string // paths, by the last element
}

func newDocuments(t *testing.T) documents {
	t.Helper()
	d := documents{top(t), map[string][]string{}}
	err := filepath.WalkDir(d.root, func(p string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && namedFile.MatchString(e.Name()) {
			d.all[e.Name()] = append(d.all[e.Name()], p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// pathsOf returns the paths of the files that a name can mean.
func (d documents) pathsOf(file string) []string {
	return slices.DeleteFunc(slices.Clone(d.all[filepath.Base(file)]), func(p string) bool { return !strings.HasSuffix(p, "/"+file) })
}

// anyDeclares reports whether one of the files declares a function, type or variable.
func anyDeclares(files []string, of, name string) bool {
	return slices.ContainsFunc(files, func(p string) bool {
		code, err := os.ReadFile(p)
		return err == nil && declares(string(code), of, name)
	})
}

// The pages for contributors name files and functions that exist.
func TestDocumentsNameExistingCode(t *testing.T) {
	d := newDocuments(t)
	for _, page := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"} {
		text, err := os.ReadFile(filepath.Join(d.root, ".github", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range namedFile.FindAllString(string(text), -1) {
			if len(d.pathsOf(file)) == 0 {
				t.Errorf("%s names %s, which is not there", page, file)
			}
		}
		for _, m := range namedFunc.FindAllStringSubmatch(string(text), -1) {
			if files := d.pathsOf(m[1]); len(files) > 0 && !anyDeclares(files, m[2], m[3]) {
				t.Errorf("%s: %s has no %s", page, m[1], strings.TrimPrefix(m[2]+"."+m[3], "."))
			}
		}
	}
}

// walkName is a name in the code, with the package or type that it belongs to.
var walkName = regexp.MustCompile("`((?:[A-Za-z]+\\.)*)([A-Za-z]+)`")

// noCode are words in the walks that are no names in the code: system calls and commands.
var noCode = []string{"open", "run", "revoke", "rename", "mount"}

// A walk is a section "The walk of ..." of ARCHITECTURE.md. Each name in a walk is declared in a
// file that the walk names, or in the package that is written before the name.
func TestWalksNameTheirFiles(t *testing.T) {
	d := newDocuments(t)
	text, err := os.ReadFile(filepath.Join(d.root, ".github", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	walks := 0
	for walk := range strings.SplitSeq(string(text), "\n## ") {
		title, _, _ := strings.Cut(walk, "\n")
		if !strings.HasPrefix(title, "The walk of ") {
			continue
		}
		walks++
		var files []string
		for _, file := range namedFile.FindAllString(walk, -1) {
			files = append(files, d.pathsOf(file)...)
		}
		for _, m := range walkName.FindAllStringSubmatch(walk, -1) {
			if m[1] == "" && slices.Contains(noCode, m[2]) || d.isIn(files, m[1], m[2]) {
				continue
			}
			t.Errorf("%s: no file that it names declares %s", title, m[1]+m[2])
		}
	}
	if walks < 6 {
		t.Errorf("ARCHITECTURE.md has %d walks", walks)
	}
}

// isIn reports whether a name is declared. prefix is "", the type of a method, a package, or both,
// each followed by a dot. Without a package the name must be declared in files, with a package in the
// files of the package.
func (d documents) isIn(files []string, prefix, name string) bool {
	if prefix == "" {
		return anyDeclares(files, "", name) || anyDeclares(files, `\w+`, name)
	}
	pkg, of, _ := strings.Cut(strings.TrimSuffix(prefix, "."), ".")
	if of == "" && anyDeclares(files, pkg, name) {
		return true
	}
	var inside []string
	for _, paths := range d.all {
		for _, p := range paths {
			if filepath.Base(filepath.Dir(p)) == pkg {
				inside = append(inside, p)
			}
		}
	}
	return anyDeclares(inside, of, name)
}

// outsideReference matches references that a reader of this repository cannot follow.
var outsideReference = regexp.MustCompile(`(?i)\bdesign\.md\b|\blab/[a-z]+\.md\b|\bhouse/[a-z]+\.md\b|\bseeds?` + space + `\d{3}\b|\bissues?` + space + `\d+\b`)

// space matches the gap between two words of a text or comment, also at the end of a line.
const space = `(?: |\n[\t ]*(?://|#|-)? ?)`

// No file refers to documents outside the repository, or to numbers of an issue tracker that is not
// public (outsideReference). A file states the fact itself, or refers to a requirement (R064) or to
// a public address.
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
		for _, at := range outsideReference.FindAllIndex(text, -1) {
			line := 1 + strings.Count(string(text[:at[0]]), "\n")
			t.Errorf("%s:%d refers to %q: write the fact itself, or the id of a requirement", name, line, text[at[0]:at[1]])
		}
	}
}
