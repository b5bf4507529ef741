package builtin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// topsOf has the directories that are tops of the owner's repositories.
type topsOf map[string]bool

func (topsOf) IsDir(string) bool                     { return false }
func (t topsOf) IsTop(dir string) bool               { return t[dir] }
func (topsOf) IsBare(string, pattern.Condition) bool { return false }
func (topsOf) IsInUserRepo(string) bool              { return false }
func (topsOf) HasTokens(string) bool                 { return false }

// list returns rules with these patterns, all of the list l.
func list(l pattern.List, texts ...string) (out []pattern.Rule) {
	for _, t := range texts {
		out = append(out, pattern.Rule{List: l, Text: t})
	}
	return out
}

func mustNew(t testing.TB, o pattern.Options, groups ...[]pattern.Rule) *pattern.Set {
	t.Helper()
	var all []pattern.Rule
	for _, g := range groups {
		all = append(all, g...)
	}
	s, err := pattern.New(all, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judge returns the verdict on the path of a file.
func judge(s *pattern.Set, path string, f pattern.Facts) pattern.Verdict {
	i := strings.LastIndexByte(path, '/')
	dir := path[:max(0, i)]
	return s.At(dir).Judge(dir, path[i+1:], pattern.Other, f)
}

// Files that make another program run commands are protected at the top of a root and of
// repositories. They are not protected in other directories, nor in node_modules, which holds other
// people's code, even at the top of a repository there.
func TestControlFiles(t *testing.T) {
	s := mustNew(t, pattern.Options{}, builtin.Rules())
	facts := topsOf{"lib": true, "node_modules/x": true}
	for _, name := range []string{
		".mcp.json", ".roo/mcp.json", ".kiro/hooks/x", "opencode.json", ".vscode/tasks.json", ".helix/languages.toml", ".devcontainer/devcontainer.json",
		".devcontainer.json", ".nvim.lua", ".envrc", "mise.toml", ".config/mise/config.toml", ".pre-commit-config.yaml", ".github/workflows/ci.yml",
		"lefthook-local.yml", ".config/lefthook.json", "mise.production.toml", ".husky/pre-commit", ".tekton/run.yaml", ".gdbinit", ".github/hooks/x.json",
		".npmrc", ".yarnrc.yml", ".cargo/config.toml", "x.sublime-project", ".dir-locals.el", ".dir-locals-2.el", ".vimrc", "_vimrc", ".gvimrc", ".iex.exs", ".ocamlinit", ".byebugrc", ".rdbgrc", ".config/opencode/opencode.json",
	} {
		for _, dir := range []string{"", "lib/"} {
			if got := judge(s, dir+name, facts); got.Effect != pattern.Protect {
				t.Errorf("%s%s: %v", dir, name, got.Effect)
			}
		}
		for _, dir := range []string{"docs/", "node_modules/x/"} {
			if got := judge(s, dir+name, facts); got.Effect != pattern.None {
				t.Errorf("%s%s: %v", dir, name, got.Effect)
			}
		}
	}
}

// The judgement of a name that matches none of many patterns allocates nothing, also if names
// are folded.
func TestNoAllocation(t *testing.T) {
	for _, fold := range []bool{false, true} {
		s := mustNew(t, pattern.Options{Fold: fold}, builtin.Rules(), fifty(), list(pattern.OwnHide, "a/**/z", "[Tt]est?"))
		s.At("src/pkg/deep")
		if n := testing.AllocsPerRun(1000, func() {
			st := s.At("src/pkg/deep")
			if st.Barrier().Effect != pattern.None || st.Judge("src/pkg/deep", "main.go", pattern.Unknown, nil).Effect != pattern.None {
				t.Fatal("matched")
			}
		}); n != 0 {
			t.Errorf("folding %v: %v allocations", fold, n)
		}
	}
}

// fifty returns fifty rules with patterns of all common forms. None matches a name in these tests.
func fifty() (out []pattern.Rule) {
	for i := range 10 {
		out = append(out, list(pattern.OwnHide, fmt.Sprintf("*.secret%d", i), fmt.Sprintf("/vault%d/", i))...)
		out = append(out, list(pattern.OwnDeny, fmt.Sprintf("docs/**/private%d.*", i))...)
		out = append(out, list(pattern.OwnProtect, fmt.Sprintf("release-%d-[0-9]*.lock", i), fmt.Sprintf("**/generated%d/*.pb.go", i))...)
	}
	return out
}

// BenchmarkJudge measures the cost of a name that no rule matches, with the built-in rules and with
// fifty more patterns.
func BenchmarkJudge(b *testing.B) {
	for _, with := range []struct {
		name  string
		rules []pattern.Rule
		fold  bool
	}{{"builtin", nil, false}, {"fifty", fifty(), false}, {"folded", fifty(), true}} {
		for _, name := range []string{"main.go", "README.md"} {
			b.Run(with.name+"/"+name, func(b *testing.B) {
				s := mustNew(b, pattern.Options{Fold: with.fold}, builtin.Rules(), with.rules)
				b.ReportAllocs()
				for b.Loop() {
					s.At("src/pkg/deep").Judge("src/pkg/deep", name, pattern.Unknown, nil)
				}
			})
		}
	}
}

// HasTokens finds npm's credentials in different spellings. A value that npm takes from its
// environment does not count as a credential.
func TestTokensOfNpm(t *testing.T) {
	for text, want := range map[string]bool{
		"registry=https://r/\n":                                     false,
		"//r/:_authToken=abc":                                       true,
		"//r/:_authToken=${TOKEN}":                                  false,
		"//r/:_authToken=\"${TOKEN}\"":                              false,
		"//r/:_authToken=${A}abc${B}":                               true,
		"//r/:_authToken=":                                          false,
		"  //r/:_AUTHTOKEN = abc":                                   true,
		"\"//r/:_authToken\"=abc":                                   true,
		"_authToken[]=abc":                                          true,
		"a=1\r//r/:_authToken=abc":                                  true,
		"//r/:username=me\n//r/:_password=cHc=":                     true,
		"_auth=bWU6cHc=":                                            true,
		"key=\"-----BEGIN PRIVATE KEY-----\\nMIIE\"":                true,
		"# nothing\nsave-exact=true\n//r/:keyfile=/home/me/key.pem": false,
	} {
		if got := builtin.HasTokens(text); got != want {
			t.Errorf("%q holds tokens: %v, want %v", text, got, want)
		}
	}
}
