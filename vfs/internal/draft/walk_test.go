package draft

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// makeUpper makes files in the upper. A name that ends in a slash makes a directory.
func (s *Store) makeUpper(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		dir := filepath.Join(s.dir, upperName, filepath.Dir(f))
		testkit.Must(t, os.MkdirAll(dir, 0o700))
		if !strings.HasSuffix(f, "/") {
			s.writeUpper(t, f, "")
		}
	}
}

// A walk of a scope visits its paths, what lies below them and the directories above, each once.
func TestWalkOfScope(t *testing.T) {
	s := openFor(t, t.TempDir())
	s.makeUpper(t, "a/b/c/x", "a/b/y", "a/b2", "a.b", ".d/e/z", ".d/f", "g")
	for in, want := range map[string]string{
		"":              ".d .d/e .d/e/z .d/f a a.b a/b a/b/c a/b/c/x a/b/y a/b2 g",
		"a/b":           "a a/b a/b/c a/b/c/x a/b/y",
		"a/b/c a/b g":   "a a/b a/b/c a/b/c/x a/b/y g",
		".d/e/z a/b/y":  ".d .d/e .d/e/z a a/b a/b/y",
		"a/none none/x": "a",
		"g/x":           "g",
	} {
		var got []string
		scope := NewScope(strings.Fields(in))
		testkit.Must(t, s.Walk(scope, func(rel string, _ *unix.Stat_t) {
			got = append(got, rel)
			if !scope.Touches(rel) {
				t.Errorf("scope %q does not touch %s", in, rel)
			}
		}))
		if slices.Sort(got); strings.Join(got, " ") != want {
			t.Errorf("scope %q: %q, want %q", in, got, want)
		}
	}
}

// A walk visits all other directories when one directory is moved away meanwhile. It holds few
// directories open, however deep they lie.
func TestWalkOfMovedAndDeep(t *testing.T) {
	s := openFor(t, t.TempDir())
	deep := strings.Repeat("d/", 500)
	s.makeUpper(t, "a/b/c/x", deep)
	want := []string{"a/b/c/x", deep[:len(deep)-1]}
	for i := range 8 {
		s.makeUpper(t, fmt.Sprintf("a/s%d/x", i))
		want = append(want, fmt.Sprintf("a/s%d/x", i))
	}
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		testkit.Must(t, err)
		return len(list)
	}
	before, most := open(), 0
	seen := map[string]bool{}
	testkit.Must(t, s.Walk(nil, func(rel string, _ *unix.Stat_t) {
		seen[rel] = true
		if most = max(most, open()-before); rel == "a/b/c/x" {
			upper := filepath.Join(s.dir, upperName)
			testkit.Must(t, os.Rename(filepath.Join(upper, "a/b"), filepath.Join(upper, "moved")))
		}
	}))
	for _, rel := range want {
		if !seen[rel] {
			t.Errorf("%.40s was not visited", rel)
		}
	}
	if most > 20 {
		t.Errorf("%d descriptors were open at a time", most)
	}
}

// Measuring a store leaves the access times of its directories as they are.
func TestWalkKeepsAccessTimes(t *testing.T) {
	s := openFor(t, t.TempDir())
	s.makeUpper(t, "d/x")
	dir, then := filepath.Join(s.dir, upperName, "d"), time.Unix(1_000_000_000, 0)
	testkit.Must(t, os.Chtimes(dir, then, time.Now()))
	s.Size()
	var st unix.Stat_t
	testkit.Must(t, unix.Stat(dir, &st))
	if got := time.Unix(st.Atim.Unix()); !got.Equal(then) {
		t.Errorf("the access time is %v, want %v", got, then)
	}
}
