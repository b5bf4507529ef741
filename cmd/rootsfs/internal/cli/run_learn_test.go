package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// run --learn proposes no path below another one that it proposes, also if a third path is sorted
// between the two.
func TestLearnProposesNoPathBelowAnother(t *testing.T) {
	dir := t.TempDir()
	l := newLearnLog()
	l.begin()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"a", "a/b", "a/b/c", "a-b", "a-b/c", "b"} {
		testkit.Must(t, os.MkdirAll(at(name), 0o700))
		l.missing(at(name))
	}
	l.missing(at("none"))
	found, skipped := l.existing(func(path string) bool { return path == at("b") })
	if want := []string{at("a"), at("a-b")}; !slices.Equal(found, want) || !slices.Equal(skipped, []string{at("b")}) {
		t.Errorf("found %q, want %q; skipped %q", found, want, skipped)
	}
}
