package pattern

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
)

// factTables implements Facts by tables of paths.
type factTables struct {
	dirs, tops, userRepos, bare, tokens map[string]bool
}

func (w factTables) IsDir(p string) bool                 { return w.dirs[p] }
func (w factTables) IsTop(p string) bool                 { return w.tops[p] }
func (w factTables) IsBare(dir string, k Condition) bool { return w.bare[dir] && k == GitDir }
func (w factTables) HasTokens(p string) bool             { return w.tokens[p] }
func (w factTables) IsInUserRepo(p string) bool {
	for m := range w.userRepos {
		if p == m || strings.HasPrefix(p, m+"/") {
			return true
		}
	}
	return false
}

// list makes rules of one list.
func list(l List, texts ...string) (out []Rule) {
	for _, t := range texts {
		out = append(out, Rule{List: l, Text: t})
	}
	return out
}

func mustNew(t testing.TB, o Options, groups ...[]Rule) *Set {
	t.Helper()
	var all []Rule
	for _, g := range groups {
		all = append(all, g...)
	}
	s, err := New(all, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judge returns the verdict on a path. A path that ends with a slash is the path of a directory.
func judge(s *Set, path string, f Facts) Verdict {
	typ := Other
	if p := strings.TrimSuffix(path, "/"); p != path {
		typ, path = Dir, p
	}
	i := strings.LastIndexByte(path, '/')
	dir := path[:max(0, i)]
	return s.At(dir).Judge(dir, path[i+1:], typ, f)
}

// Rules have the precedence that the package comment describes.
func TestPrecedence(t *testing.T) {
	hide, deny, protect := list(OwnHide, "secret*", "!secret-not"), list(OwnDeny, "*-deny", "secret-not"), list(OwnProtect, "*", "!free/", "/locked/**")
	builtin := []Rule{
		{List: BuiltinHide, Text: ".env*", Reason: "x"}, {List: BuiltinHide, Text: "!.env.example", Reason: "x"},
		{List: BuiltinProtect, Text: ".vscode/", Reason: "x", Condition: AtTop},
		{List: BuiltinProtect, Text: "**/.git/config", Reason: "x", Condition: Control},
		{List: BuiltinProtect, Text: ".git", Reason: "x", Condition: Control, NameOnly: true},
		{List: BuiltinHide, Text: ".npmrc", Reason: "x", Condition: Tokens},
		{List: Except, Text: "node_modules/"},
	}
	f := factTables{tops: map[string]bool{"": true, "sub": true}, userRepos: map[string]bool{"mine/.git": true}, tokens: map[string]bool{".npmrc": true}}
	allow := list(Allow, "work/", "!work/strict", ".env.mine")
	for _, tt := range []struct {
		name  string
		rules [][]Rule
		path  string
		want  Effect
	}{
		{"hide beats protect", [][]Rule{hide, deny, protect}, "secret", Hide},
		{"hide beats deny", [][]Rule{hide, deny, protect}, "secret-deny", Hide},
		{"deny beats protect", [][]Rule{hide, deny, protect}, "x-deny", Deny},
		{"deny applies where hide is taken back", [][]Rule{hide, deny, protect}, "secret-not", Deny},
		{"protect", [][]Rule{hide, deny, protect}, "plain", Protect},
		{"protect taken back for a directory", [][]Rule{list(OwnProtect, "*", "!free/")}, "free/", None},
		{"protect not taken back for a file of that name", [][]Rule{list(OwnProtect, "*", "!free/")}, "free", Protect},
		{"protect taken back below a protected directory", [][]Rule{list(OwnProtect, "d", "!d/x")}, "d/x", None},
		{"other names below a protected directory", [][]Rule{list(OwnProtect, "d", "!d/x")}, "d/y/z", Protect},
		{"hide not taken back below a hidden directory", [][]Rule{list(OwnHide, "d", "!d/x")}, "d/x", Hide},
		{"deny not taken back below a denied directory", [][]Rule{list(OwnDeny, "d", "!d/x")}, "d/x", Deny},
		{"built in", [][]Rule{builtin}, ".env.local", Hide},
		{"built in, taken back", [][]Rule{builtin}, ".env.example", None},
		{"in an excepted tree", [][]Rule{builtin}, "a/node_modules/b/.env", None},
		{"below a name that only begins like an excepted tree", [][]Rule{builtin}, "node_modules.x/.env", Hide},
		{"version control rules apply in an excepted tree", [][]Rule{builtin}, "node_modules/b/.git/config", Protect},
		{"in the top directory of a repository", [][]Rule{builtin}, "sub/.vscode/tasks.json", Protect},
		{"not in the top directory of a repository", [][]Rule{builtin}, "sub/deeper/.vscode/", None},
		{"in a repository of the owner", [][]Rule{builtin}, "own/.git/config", Protect},
		{"in a repository that the root's users made", [][]Rule{builtin}, "mine/.git/config", None},
		{"NameOnly protects the name itself", [][]Rule{builtin}, "own/.git/", Protect},
		{"NameOnly does not protect names below it", [][]Rule{builtin}, "own/.git/HEAD", None},
		{"file with tokens", [][]Rule{builtin}, ".npmrc", Hide},
		{"file without tokens", [][]Rule{builtin}, "sub/.npmrc", None},
		{"lifted by allow", [][]Rule{builtin, allow}, ".env.mine", None},
		{"lifted by allow for all names below", [][]Rule{builtin, allow}, "work/deep/.env", None},
		{"not lifted where allow is taken back", [][]Rule{builtin, allow}, "work/strict/.env", Hide},
		{"owner's own list not lifted by allow", [][]Rule{builtin, allow, list(OwnHide, ".env.mine")}, ".env.mine", Hide},
		{"from .gitignore", [][]Rule{list(Ignore, "*.log")}, "a/b.log", Hide},
		{".gitignore lifted by allow", [][]Rule{list(Ignore, "*.log"), list(Allow, "/a")}, "a/b.log", None},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := mustNew(t, Options{}, tt.rules...)
			if got := judge(s, tt.path, f); got.Effect != tt.want {
				t.Errorf("%s: %v, want %v", tt.path, got.Effect, tt.want)
			}
		})
	}
}

// A verdict names the rule that decided, and the rule that was lifted.
func TestVerdictNamesItsRule(t *testing.T) {
	s := mustNew(t, Options{}, []Rule{
		{List: BuiltinHide, Text: ".env*", Reason: "secrets"},
		{List: Allow, Text: "ok/", File: "c.toml", Line: 3},
		{List: OwnDeny, Text: "x", File: "c.toml", Line: 7},
	})
	if v := judge(s, "ok/.env", nil); v.Effect != None || v.Rule.Line != 3 || v.Lifted == nil || v.Lifted.Text != ".env*" {
		t.Errorf("lifted: %+v", v)
	}
	if v := judge(s, "ok/x/y/z", nil); v.Effect != Deny || v.Rule.Line != 7 {
		t.Errorf("below a denied directory: %+v", v)
	}
	if v := judge(s, "ok/plain", nil); v != (Verdict{}) {
		t.Errorf("nothing matched: %+v", v)
	}
}

func TestBadPatterns(t *testing.T) {
	for _, text := range []string{
		"", "!", "/", "//", "a//b", "a/../b", "./a", "#a", "a\x00b", "a\nb", "[", "[a", "a[[:nope:]]", `a*\`, "[z-a]", "x[a9-0]*", `[\--\!]`, "[!é-a]",
		strings.Repeat("a", MaxLength+1), strings.Repeat("a/", MaxElements+1) + "b", "\xff*",
	} {
		if _, err := compile(&Rule{Text: text}, false); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
	for _, text := range []string{`\#a`, `\!a`, "a/", "/a", "**", "**/a", "a/**", "{a,b}", "[]a]", "[!a]", "[[:digit:]]", "[a-a]", "[a-]", "[-a]", "[]-a]", "[!z-]", "\xff", "a**b", `a\*`} {
		if _, err := compile(&Rule{Text: text}, false); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, err := New([]Rule{{List: OwnHide, Text: "ok"}, {List: OwnHide, Text: "[", File: "f", Line: 9}}, Options{})
	var bad *Error
	if !errors.As(err, &bad) || bad.Rule.Line != 9 {
		t.Errorf("%v", err)
	}
}

// Other spellings of a name match, as in file systems that fold names.
func TestFold(t *testing.T) {
	s := mustNew(t, Options{Fold: true}, list(OwnHide, ".env", "Straße", "/Sub/*.PEM", "café"))
	for _, p := range []string{
		".env", ".ENV", ".Env.", ".env ", ".e\u00adnv", ".\u200benv", "STRASSE", "strasse", "sub/x.pem", "SUB/X.PEM",
		"cafe\u0301", "CAF\u00c9",
	} {
		if v := judge(s, p, nil); v.Effect != Hide {
			t.Errorf("%q is another spelling and not matched", p)
		}
	}
	for _, p := range []string{".envx", "env", "sub/pem", "x/sub/a.pem"} {
		if v := judge(s, p, nil); v.Effect != None {
			t.Errorf("%q is matched", p)
		}
	}
	exact := mustNew(t, Options{}, list(OwnHide, ".env"))
	if v := judge(exact, ".ENV", nil); v.Effect != None {
		t.Error("an exact set folds")
	}
	for name, want := range map[string]bool{"SECRET~1": true, "a:b": true, "é": true, "README.md": false} {
		if Suspicious(name) != want {
			t.Errorf("%q: suspicious %v", name, !want)
		}
	}
}

// Every name that a glob matches begins with the glob's head and ends with its tail.
func TestEnds(t *testing.T) {
	for pattern, want := range map[string][2]string{
		"release-[0-9]*.lock": {"release-", ".lock"}, "a?b": {"a", "b"}, "[ab]c": {"", "c"}, `a\*b*\{c`: {"a", "{c"},
		"x*[ab]": {"x", ""}, "a*\ufffdb": {"a", "b"}, "a\ufffd*b": {"a", "b"}, "a[]]b*c": {"a", "c"}, "*é?ü": {"", "ü"},
	} {
		c, err := compile(&Rule{Text: pattern}, false)
		if err != nil {
			t.Fatal(err)
		}
		if e := c.elems[0]; e.kind != glob || e.head != want[0] || e.tail != want[1] {
			t.Errorf("%q begins with %q and ends with %q", pattern, e.head, e.tail)
		}
	}
	r := rand.New(rand.NewPCG(7, 11))
	alphabet := []string{"a", "b", "*", "?", "[ab]", "[!a]", `\*`, `\a`, "é", "\ufffd"}
	word := func(from []string) (s string) {
		for range 1 + r.IntN(6) {
			s += from[r.IntN(len(from))]
		}
		return s
	}
	matched := 0
	for range 200_000 {
		text, name := word(alphabet), word([]string{"a", "b", "*", "é", "\ufffd", "\xc3"})
		head, tail := ends(text)
		if doublestar.MatchUnvalidated(text, name) {
			if matched++; strings.ContainsAny(text, `*?[\`) && (len(name) < len(head)+len(tail) || !strings.HasPrefix(name, head) || !strings.HasSuffix(name, tail)) {
				t.Fatalf("%q matches %q, and is taken to begin with %q and to end with %q", text, name, head, tail)
			}
		}
	}
	if matched < 1000 {
		t.Errorf("%d matches only", matched)
	}
}

// The states of very many directories are not all kept.
func TestStatesAreBounded(t *testing.T) {
	s := mustNew(t, Options{}, list(OwnHide, "x"))
	for i := range 5 * maxStates {
		s.At("d/" + strings.Repeat("a", i%200) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676%26)))
	}
	s.states.mu.Lock()
	defer s.states.mu.Unlock()
	if n := len(s.states.young) + len(s.states.old); n > 2*maxStates {
		t.Errorf("%d states are kept", n)
	}
}

// However deep a tree is, the paths that a Set caches take a bounded number of bytes, and the
// patterns still match.
func TestStatesOfDeepTreesAreBounded(t *testing.T) {
	s := mustNew(t, Options{}, list(OwnHide, "secret"), list(OwnDeny, "/a/**/locked"))
	for _, name := range []string{strings.Repeat("a", 255), "b"} {
		path := "a"
		for range 1000 {
			path += "/" + name
			if s.At(path).Judge(path, "secret", Other, nil).Effect != Hide {
				t.Fatalf("a secret is not hidden at a depth of %d bytes", len(path))
			}
		}
		if s.At(path+"/locked").Barrier().Effect != Deny {
			t.Error("a pattern does not match at a depth of 1000 names")
		}
	}
	s.states.mu.Lock()
	defer s.states.mu.Unlock()
	bytes := 0
	for _, m := range []map[string]*State{s.states.young, s.states.old} {
		for path := range m {
			bytes += len(path)
		}
	}
	if bytes > 2*(maxKeys+maxKey) {
		t.Errorf("%d bytes of paths are kept", bytes)
	}
}
