package pattern

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The functions slow, slowList, slowRule, slowPath and slowName are a slow model of the engine. The
// model has no state, no index and no compiled patterns. For a path and each directory above it,
// the model tries each pattern, with its own matchers.

// slowName reports whether p, which is one element of a pattern, matches the name s.
func slowName(p, s string) bool {
	if p == "" {
		return s == ""
	}
	switch p[0] {
	case '*':
		return slowName(p[1:], s) || s != "" && slowName(p, s[1:])
	case '?':
		return s != "" && slowName(p[1:], s[1:])
	case '[':
		end := strings.IndexByte(p[2:], ']') + 2
		set, neg := p[1:end], false
		if set[0] == '!' {
			set, neg = set[1:], true
		}
		if s == "" {
			return false
		}
		in := false
		for i := 0; i < len(set); i++ {
			if i+2 < len(set) && set[i+1] == '-' {
				in = in || set[i] <= s[0] && s[0] <= set[i+2]
				i += 2
				continue
			}
			in = in || set[i] == s[0]
		}
		return in != neg && slowName(p[end+1:], s[1:])
	case '\\':
		return s != "" && s[0] == p[1] && slowName(p[2:], s[1:])
	}
	return s != "" && s[0] == p[0] && slowName(p[1:], s[1:])
}

// slowPath reports whether a pattern's elements match the names of a path.
func slowPath(p, s []string) bool {
	switch {
	case len(p) == 0:
		return len(s) == 0
	case p[0] == "**" && len(p) == 1:
		return len(s) > 0
	case p[0] == "**":
		return slowPath(p[1:], s) || len(s) > 0 && slowPath(p, s[1:])
	}
	return len(s) > 0 && slowName(p[0], s[0]) && slowPath(p[1:], s[1:])
}

// slowRule reports whether a pattern matches a path itself.
func slowRule(text, path string, dir bool) bool {
	text = strings.TrimPrefix(text, "!")
	if strings.HasSuffix(text, "/") {
		if !dir {
			return false
		}
		text = text[:len(text)-1]
	}
	if !strings.Contains(text, "/") {
		text = "**/" + text
	}
	return slowPath(strings.Split(strings.TrimPrefix(text, "/"), "/"), strings.Split(path, "/"))
}

// slowList reports whether one list matches the path, by itself or through a directory
// above. If isFinal is set, the match of a directory cannot be taken back below the directory.
func slowList(list []string, path string, dir, isFinal bool) bool {
	matches := false
	names := strings.Split(path, "/")
	for i := range names {
		at, isDir := strings.Join(names[:i+1], "/"), dir || i < len(names)-1
		if isFinal && matches {
			return true
		}
		for _, text := range list {
			if slowRule(text, at, isDir) {
				matches = !strings.HasPrefix(text, "!")
			}
		}
	}
	return matches
}

// slow returns the verdict. Below a hidden or denied directory no other list counts.
func slow(hide, deny, protect []string, path string, dir bool) Effect {
	names := strings.Split(path, "/")
	for i := range names {
		at, isDir := strings.Join(names[:i+1], "/"), dir || i < len(names)-1
		switch {
		case slowList(hide, at, isDir, true):
			return Hide
		case slowList(deny, at, isDir, true):
			return Deny
		}
	}
	if slowList(protect, path, dir, false) {
		return Protect
	}
	return None
}

var words = []string{"a", "b", "ab", "abc", "a.b", "b.c", "c", ".a", "x1", "x2"}

func randomPath(r *rand.Rand) string {
	var list []string
	for range 1 + r.IntN(5) {
		list = append(list, words[r.IntN(len(words))])
	}
	return strings.Join(list, "/")
}

func randomPattern(r *rand.Rand) string {
	parts := []string{"a", "b", "ab", "*", "a*", "*b", "*.*", "?", "x?", "x[12]", "[!a]", "[a-c]", "*b*", `\a`, ".*"}
	var list []string
	for range 1 + r.IntN(3) {
		if r.IntN(4) == 0 {
			list = append(list, "**")
		}
		list = append(list, parts[r.IntN(len(parts))])
	}
	if r.IntN(6) == 0 {
		list = append(list, "**")
	}
	s := strings.Join(list, "/")
	if r.IntN(4) == 0 {
		s = "/" + s
	}
	if r.IntN(4) == 0 && !strings.HasSuffix(s, "**") {
		s += "/"
	}
	if r.IntN(4) == 0 {
		s = "!" + s
	}
	return s
}

func randomList(r *rand.Rand) (out []string) {
	for range r.IntN(4) {
		out = append(out, randomPattern(r))
	}
	return out
}

// The engine and the slow model agree for random patterns and paths.
func TestAgainstSlowModel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	seen := map[Effect]int{}
	for range 1500 {
		hide, deny, protect := randomList(r), randomList(r), randomList(r)
		s := mustNew(t, Options{}, list(OwnHide, hide...), list(OwnDeny, deny...), list(OwnProtect, protect...))
		for range 20 {
			p, dir := randomPath(r), r.IntN(2) == 0
			arg := p
			if dir {
				arg += "/"
			}
			got, want := judge(s, arg, nil).Effect, slow(hide, deny, protect, p, dir)
			seen[want]++
			if got != want {
				t.Fatalf("seed %d: hide %q deny %q protect %q: %s is %v, the model says %v", seed, hide, deny, protect, arg, got, want)
			}
		}
	}
	for _, e := range []Effect{None, Protect, Deny, Hide} {
		if seen[e] < 100 {
			t.Errorf("only %d answers were %v: the test shows little", seen[e], e)
		}
	}
}

// For random .gitignore files and paths, the engine ignores the same paths as git check-ignore.
func TestAgainstGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not here")
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	dir := t.TempDir()
	run := func(in string, args ...string) string {
		cmd := exec.Command(git, args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(in)
		out, err := cmd.Output()
		if e, ok := err.(*exec.ExitError); ok && e.ExitCode() == 1 { //nolint:errorlint // nothing wraps it
			err = nil // nothing is ignored
		}
		if err != nil {
			t.Fatal(args, err)
		}
		return string(out)
	}
	run("", "init", "-q")
	for range 25 {
		var top, nested []string
		for range 1 + r.IntN(5) {
			top, nested = append(top, randomPattern(r)), append(nested, randomPattern(r))
		}
		if err := os.MkdirAll(filepath.Join(dir, "ab"), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, ".gitignore"), strings.Join(top, "\n"))
		write(t, filepath.Join(dir, "ab", ".gitignore"), strings.Join(nested, "\n"))
		rules := list(Ignore, top...)
		for _, text := range nested {
			rules = append(rules, Rule{List: Ignore, Text: text, Base: "ab"})
		}
		s := mustNew(t, Options{}, rules)
		var ask []string
		for range 60 {
			p := randomPath(r)
			if i := r.IntN(3); i == 0 {
				p = "ab/" + p
			}
			if r.IntN(2) == 0 {
				if err := os.MkdirAll(filepath.Join(dir, p), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			ask = append(ask, p)
		}
		out := run(strings.Join(ask, "\n"), "check-ignore", "--no-index", "--stdin")
		ignored := map[string]bool{}
		for line := range strings.Lines(out) {
			ignored[strings.TrimSuffix(line, "\n")] = true
		}
		for _, p := range ask {
			arg := p
			if info, err := os.Stat(filepath.Join(dir, p)); err == nil && info.IsDir() {
				arg += "/"
			}
			if got := judge(s, arg, nil).Effect == Hide; got != ignored[p] {
				t.Fatalf("seed %d: .gitignore %q, ab/.gitignore %q: %s ignored %v, git says %v", seed, top, nested, arg, got, ignored[p])
			}
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// No pattern makes the engine panic. The engine can judge by every pattern that it accepts, and the
// verdict is the same with and without cached states.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"a/**/b*", "[!a-]x", `\[*`, "!/.git/", "[[:alpha:]]?", "[]-]", "*[^\\]]*"} {
		f.Add(s, "a/b/c", true)
	}
	f.Fuzz(func(t *testing.T, text, path string, fold bool) {
		if strings.Contains(path, "//") || strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || path == "" || len(path) > 4096 {
			return
		}
		s, err := New([]Rule{{List: OwnProtect, Text: text}}, Options{Fold: fold})
		if err != nil {
			return
		}
		first := judge(s, path, nil).Effect
		if again := judge(s, path, nil).Effect; again != first {
			t.Errorf("%q on %q: %v, then %v", text, path, first, again)
		}
		fresh, _ := New([]Rule{{List: OwnProtect, Text: text}}, Options{Fold: fold})
		if other := judge(fresh, path, nil).Effect; other != first {
			t.Errorf("%q on %q: %v, and %v with an empty cache", text, path, first, other)
		}
	})
}
