package reports

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

var report = regexp.MustCompile(`^[\w.-]+/[\w.-]+#[1-9]\d*$`)

// cases returns the names of all tests of the package, as README.md writes them, each with the
// value false.
func cases(t *testing.T) map[string]bool {
	all := map[string]bool{"serve/link_loop": false, "serve/notifications": false, "serve/marked_line": false, "serve/codes": false, "serve/unicode_forms": false}
	scripts, err := filepath.Glob("testdata/files/*.py")
	testkit.Must(t, err)
	for _, s := range scripts {
		all["files/"+strings.TrimSuffix(filepath.Base(s), ".py")] = false
	}
	for name := range runCases {
		all["run/"+name] = false
	}
	for name := range serveCases {
		all["serve/"+name] = false
	}
	return all
}

// Each row of README.md names a report, a verdict and an existing test, and each test has a
// row.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("README.md")
	testkit.Must(t, err)
	_, table, _ := strings.Cut(string(page), "|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	all := cases(t)
	for row := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 4 {
			t.Errorf("no row of four cells: %s", row)
			continue
		}
		for r := range strings.SplitSeq(cells[0], ", ") {
			if !report.MatchString(r) {
				t.Errorf("%q is no report: write owner/repository#number", r)
			}
		}
		verdict, test := cells[2], cells[3]
		if !slices.Contains([]string{"right", "mended", "limit"}, verdict) {
			t.Errorf("%q is no verdict: %s", verdict, row)
		}
		hasRow, known := all[test]
		switch {
		case !known:
			t.Errorf("there is no test %s: %s", test, row)
		case hasRow:
			t.Errorf("%s has two rows", test)
		}
		if known {
			all[test] = true
		}
	}
	for test, named := range all {
		if !named {
			t.Errorf("%s has no row in README.md", test)
		}
	}
}
