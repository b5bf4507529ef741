package tools_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// grow fills dir with a random tree, in which directories are nested depth levels deep at most.
func grow(t *testing.T, dir string, rnd *rand.Rand, depth int) {
	t.Helper()
	for i := range rnd.IntN(9) {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.txt", i)), []byte("text\n"), 0o600))
	}
	if rnd.IntN(3) == 0 {
		testkit.Must(t, os.Symlink(".", filepath.Join(dir, "loop")))
	}
	for i := range rnd.IntN(6) {
		if depth > 0 {
			sub := filepath.Join(dir, []string{"a", "b.d", "e0", "g", "skip", "z"}[i])
			testkit.Must(t, os.Mkdir(sub, 0o700))
			grow(t, sub, rnd, depth-1)
		}
	}
}

// walked returns the names of a tree in the order of a walk, without those called skip, and how
// many directories the walk enters.
func walked(t *testing.T, dir, rel string, depth int) (list []string, dirs int) {
	t.Helper()
	entries, err := os.ReadDir(dir) // sorted
	testkit.Must(t, err)
	for _, e := range entries {
		if e.Name() == "skip" {
			continue
		}
		list = append(list, path.Join(rel, e.Name()))
		if e.IsDir() && depth != 1 {
			in, n := walked(t, filepath.Join(dir, e.Name()), path.Join(rel, e.Name()), depth-1)
			list, dirs = append(list, in...), dirs+n
		}
	}
	return list, dirs + 1
}

// all calls a tool until its answer is whole, passes each part to add, and returns the number of
// calls.
func (b *bench) all(name string, args m, add func(text string)) (calls int) {
	b.t.Helper()
	for {
		calls++
		text, note, failed := b.call(name, args)
		if failed {
			b.t.Fatalf("%s: %s", name, text)
		}
		add(text)
		_, cursor, more := strings.Cut(note, "cursor ")
		if !more {
			return calls
		}
		args["cursor"] = cursor
	}
}

// A walk returns every name once, in order, wherever an answer ends. If one answer has the whole
// tree, each directory is listed once, also if it was listed ahead. A directory that is excluded or
// too deep is not listed.
func TestWalk(t *testing.T) {
	for seed := range uint64(4) {
		for _, limit := range []int{0, 3000} {
			b := start(t, func(c *tools.Config) { c.Answer = limit }, nil)
			dir := b.root("code", guard.ReadOnly)
			grow(t, dir, rand.New(rand.NewPCG(seed, 1)), 4)
			testkit.Must(t, os.MkdirAll(filepath.Join(dir, "a/b/c/d"), 0o700)) // never empty
			b.connect("2025-11-25")
			for _, depth := range []int{0, 2} {
				want, dirs := walked(t, dir, "", depth)
				before := len(b.recs.Of(names.OpOpendir))
				var got []string
				calls := b.all("directory_tree", m{"path": "code", "depth": depth, "excludePatterns": []string{"**/skip"}}, func(text string) {
					got = append(got, named(t, text)...)
				})
				slices.Sort(got) // a part repeats the directories it is in
				sorted := slices.Sorted(slices.Values(want))
				if calls == 1 && !slices.Equal(got, sorted) || !slices.Equal(slices.Compact(got), sorted) {
					t.Errorf("seed %d, depth %d, %d answers: %d names, want %d", seed, depth, calls, len(got), len(want))
				}
				if n := len(b.recs.Of(names.OpOpendir)) - before; calls == 1 && n != dirs {
					t.Errorf("seed %d, depth %d: %d directories were listed, of %d", seed, depth, n, dirs)
				}
			}
			want, _ := walked(t, dir, "code", 0)
			var got []string
			calls := b.all("search_files", m{"path": "code", "pattern": "**", "excludePatterns": []string{"**/skip"}}, func(text string) {
				got = append(got, strings.Split(text, "\n")...)
			})
			if !slices.Equal(got, want) {
				t.Errorf("seed %d, %d answers: found %q, want %q", seed, calls, got, want)
			}
		}
	}
}

// named returns all names of a tree, by path.
func named(t *testing.T, text string) (out []string) {
	t.Helper()
	var walk func(prefix string, list []node)
	walk = func(prefix string, list []node) {
		for _, n := range list {
			out = append(out, prefix+n.Name)
			walk(prefix+n.Name+"/", n.Children)
		}
	}
	walk("", treeOf(t, text))
	return out
}

// A walk lists only a few directories more than its answer shows. It does not list a whole tree
// first.
func TestWalkListsFewAhead(t *testing.T) {
	b := start(t, func(c *tools.Config) { c.Answer = 2000 }, nil)
	dir := b.root("code", guard.ReadOnly)
	for i := range 400 {
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", i))
		testkit.Must(t, os.Mkdir(sub, 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(sub, "f.txt"), []byte("text\n"), 0o600))
	}
	b.connect("2025-11-25")
	const ahead = 4
	for name, args := range map[string]m{
		"directory_tree":      {"path": "code"},
		"search_files":        {"path": "code", "pattern": "**"},
		"search_within_files": {"path": "code", "substring": "text"},
	} {
		before := len(b.recs.Of(names.OpOpendir))
		text, note, failed := b.call(name, args)
		if failed || !strings.Contains(note, "cursor") {
			t.Errorf("%s: %s %s", name, text, note)
		}
		entered := map[string]bool{}
		for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("/\" \n", r) }) {
			if len(word) == 4 && strings.HasPrefix(word, "d") {
				entered[word] = true
			}
		}
		if n := len(b.recs.Of(names.OpOpendir)) - before; n > 1+len(entered)+ahead || len(entered) < 10 {
			t.Errorf("%s: %d directories were listed, and the answer shows %d", name, n, len(entered))
		}
	}
}

// A tree with unusual names is the same JSON over a pair of streams and through the SDK.
func TestTreeOfOddNames(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("code", guard.ReadOnly)
	odd := []string{`"`, `\`, `a\"b`, "line\nline", "tab\tbell\a\x7f", "<&>'", "caf\xe9", "\u2028 größer 😀", `{"type":"x"}`, strings.Repeat(`\`, 200)}
	for _, name := range odd {
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, "d"+name), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "d"+name, name), nil, 0o600))
	}
	var want []string
	for _, name := range odd {
		name = strings.ToValidUTF8(name, "\uFFFD")
		want = append(want, "d"+name, "d"+name+"/"+name)
	}
	slices.Sort(want)
	b.connect("2025-11-25")
	text := b.ok("directory_tree", m{"path": "code"})
	if got := slices.Sorted(slices.Values(named(t, text))); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	x := b.lines(t)
	x.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"directory_tree","arguments":{"path":"code"}}}`)
	if got := x.answer(); got.text(t) != text {
		t.Errorf("over streams: %s, want %s", got.text(t), text)
	}
}

// R005: after a revocation has returned, the walk lists and reads nothing, not even ahead.
// The call that the revocation cut short is answered with a refusal.
func TestRevokeDuringWalk(t *testing.T) {
	for tool, args := range map[string]m{
		"directory_tree":      {"path": "code"},
		"search_within_files": {"path": "code", "substring": "x", "max_results": 1000},
	} {
		t.Run(tool, func(t *testing.T) {
			b := start(t, nil, nil)
			dir := b.root("code", guard.ReadOnly)
			for i := range 300 {
				sub := filepath.Join(dir, fmt.Sprintf("d%03d", i))
				testkit.Must(t, os.Mkdir(sub, 0o700))
				testkit.Must(t, os.WriteFile(filepath.Join(sub, "last"), []byte("x"), 0o600))
			}
			b.connect("2025-11-25")
			done := func() (n int) {
				for _, r := range b.recs.All() {
					if r.Verdict == guard.Allowed && (r.Op == names.OpOpendir || r.Op == names.OpOpen) {
						n++
					}
				}
				return n
			}
			ended := make(chan string)
			go func() {
				for {
					text, _, failed := b.call(tool, args)
					if n := strings.Count(text, "last"); failed || n != 300 {
						ended <- fmt.Sprintf("%.80q, %d of 300", text, n)
						return
					}
				}
			}()
			testkit.Eventually(func() bool { return done() >= 50 })
			_, err := b.reg.Revoke(context.Background(), "code")
			testkit.Must(t, err)
			before := done()
			// The tool is gone with the last root.
			if text := <-ended; !strings.Contains(text, "revoked") && !strings.Contains(text, "is not offered") {
				t.Errorf("the call that was under way answered %s", text)
			}
			if n := done(); n != before || before < 50 {
				t.Errorf("%d operations succeeded before the revocation returned, %d in all", before, n)
			}
		})
	}
}
