package deps

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// untested is how integration/requirements.md marks a requirement that no test can show.
const untested = "(no test)"

var (
	requirementID    = regexp.MustCompile(`\bR[0-9]{3}\b`)
	requirementRange = regexp.MustCompile(`\bR[0-9]{3}( ?[-–] ?| to )R[0-9]{3}\b`)
)

// Each requirement is named by a test, unless it is marked as untested. No Go file or script names
// a requirement that does not exist. Ids are written out one by one, so that a search for an id
// finds its tests.
func TestRequirementsAreNamed(t *testing.T) {
	root := top(t)
	want := requirements(t, filepath.Join(root, "integration", "requirements.md"))
	named := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".txtar") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		for _, r := range requirementRange.FindAllString(string(text), -1) {
			t.Errorf("%s: write %s out, one by one", rel, r)
		}
		test := strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".txtar")
		for _, id := range requirementID.FindAllString(string(text), -1) {
			if _, known := want[id]; !known {
				t.Errorf("%s: there is no requirement %s", rel, id)
			}
			named[id] = named[id] || test
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if !named[id] && !strings.HasSuffix(want[id], untested) {
			t.Errorf("no test names %s: %s", id, want[id])
		}
	}
}

// requirements returns the requirements of a file, by id. The line of a requirement has the id,
// " | " and the text.
func requirements(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		id, rest, ok := strings.Cut(strings.TrimSpace(line), " | ")
		if !ok || requirementID.FindString(id) != id || id == "" {
			continue
		}
		if _, twice := all[id]; twice {
			t.Errorf("duplicate requirement %s", id)
		}
		all[id] = rest
	}
	if len(all) < 200 {
		t.Fatalf("%s has only %d requirements", path, len(all))
	}
	return all
}
