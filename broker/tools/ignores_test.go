//lint:file-ignore SA1019 roots are deprecated since revision 2026-07-28 and not replaced; hosts have them.

package tools_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// searchedFiles searches for "x" below path, with the further arguments more. It returns the files
// with matches, relative to path. If each file contains "x", these are the files that are searched.
func (b *bench) searchedFiles(path string, more m) (out []string) {
	b.t.Helper()
	args := m{"path": path, "substring": "x", "max_results": 10000}
	for k, v := range more {
		args[k] = v
	}
	text := b.ok("search_within_files", args)
	if text == "No matches found" {
		return nil
	}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, ":")
		name = strings.TrimPrefix(name, path+"/")
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// A search leaves out the files that git ignores, in a tree with nested files, negations, anchors,
// patterns for directories, and .git/info/exclude.
func TestSearchRespectsGitignore(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("git is not installed")
	}
	testkit.Must(t, err)
	b := start(t, nil, nil)
	dir := b.root("code", guard.ReadOnly)
	b.connect("")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(git, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	run("init", "-q")
	guardtest.Tree(t, dir, "", "a.txt=x", "a.log=x", "keep.log=x", "build/out=x", "build/deep/out=x", "src/build/x=x",
		"src/a.log=x", "src/keep.log=x", "src/gen/a=x", "src/gen/keep/b=x", "src/sub/todo=x", "src/sub/todo.txt=x",
		"logs/a/b.txt=x", "logs/keep/c.txt=x", "data/a.csv=x", "data/b.csv=x", "excluded=x", "src/excluded=x",
		"#hash=x", "!bang=x", "space =x", ".dot/f=x", "only/build=x", "docs/a/b/c.md=x", "docs/c.md=x")
	for file, text := range map[string]string{
		".gitignore":        "# comment\n*.log\n!keep.log\n/build/\nlogs/*\n!logs/keep/\n\\#hash\n\\!bang\ndocs/**/c.md\nonly/build/\nx x=x\nspace\\ \n",
		"src/.gitignore":    "gen/\n!gen/keep/\n!a.log\n/sub/todo\nx=x\n",
		"data/.gitignore":   "*\n!b.csv\n!.gitignore\n# x\n",
		".git/info/exclude": "excluded\n!a.log\n",
	} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	var want []string
	for name := range strings.SplitSeq(strings.TrimSuffix(run("ls-files", "-z", "-co", "--exclude-standard"), "\x00"), "\x00") {
		if text := b.file(dir, name); strings.Contains(text, "x") {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	if len(want) < 10 || slices.Contains(want, "a.log") || !slices.Contains(want, "src/a.log") {
		t.Fatalf("the tree tests too little: %q", want)
	}
	if got := b.searchedFiles("code", nil); !slices.Equal(got, want) {
		t.Errorf("searched %q\ngit has   %q", got, want)
	}
	// A search from a directory below the root has the same rules.
	for _, sub := range []string{"src", "data", "docs", "logs", "src/sub", ".dot"} {
		var below []string
		for _, name := range want {
			if rest, ok := strings.CutPrefix(name, sub+"/"); ok {
				below = append(below, rest)
			}
		}
		if got := b.searchedFiles("code/"+sub, nil); !slices.Equal(got, below) {
			t.Errorf("%s: searched %q, git has %q", sub, got, below)
		}
	}
	// A search that names an ignored file or directory searches it. A search with
	// respect_gitignore false searches the ignored files, too.
	if got := b.searchedFiles("code/build", nil); !slices.Equal(got, []string{"deep/out", "out"}) {
		t.Errorf("an ignored directory that is named: %q", got)
	}
	if got := b.ok("search_within_files", m{"path": "code/a.log", "substring": "x"}); got != "code/a.log:1: x" {
		t.Errorf("an ignored file that is named: %q", got)
	}
	all := b.searchedFiles("code", m{"respect_gitignore": false})
	for _, name := range append(want, "a.log", "build/deep/out", "excluded", "src/gen/a") {
		if !slices.Contains(all, name) {
			t.Errorf("%s is left out although respect_gitignore is false", name)
		}
	}
	b.checkPaged(t, want) // a search that continues at a cursor applies the same rules
}

// checkPaged checks that a search in steps of one result finds the files want.
func (b *bench) checkPaged(t *testing.T, want []string) {
	t.Helper()
	var got []string
	args := m{"path": "code", "substring": "x", "max_results": 1}
	for range 1000 {
		text, note, failed := b.call("search_within_files", args)
		if failed {
			t.Fatal(text)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(text, "code/"), ":")
		if text != "No matches found" && !slices.Contains(got, name) {
			got = append(got, name)
		}
		i := strings.LastIndex(note, " ")
		if i < 0 {
			break
		}
		args["cursor"] = note[i+1:]
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("in steps %q\nwant     %q", got, want)
	}
}

// A .gitignore does not count if it is hidden, a link, or too large, or lies outside the client's
// roots. The .gitignore files outside a nested repository do not count in the nested repository. A
// root need not be a repository.
func TestSearchReadsIgnoresAsItsSubject(t *testing.T) {
	b := start(t, nil, nil)
	outside := filepath.Join(t.TempDir(), "rules")
	testkit.Must(t, os.WriteFile(outside, []byte("*\n"), 0o600))
	dir := b.root("code", guard.ReadOnly, ".gitignore=*.log\n", "a.log=x", "a=x", "in/.gitignore=b\n", "in/a.log=x", "in/b=x", "in/c=x",
		"repo/.git/HEAD=x", "repo/a.log=x", "repo/.gitignore=c\n", "repo/c=x", "linked/a=x", "large/a=x")
	testkit.Must(t, os.Symlink(outside, filepath.Join(dir, "linked/.gitignore")))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "large/.gitignore"), []byte("a\n"+strings.Repeat("#", 1<<20)), 0o600))
	b.connect("2025-11-25")
	want := []string{"a", "in/c", "large/a", "linked/a", "repo/a.log"}
	if got := b.searchedFiles("code", nil); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, note, _ := b.call("search_within_files", m{"path": "code", "substring": "x"}); !strings.Contains(note, "1 .gitignore files do not count: too large") {
		t.Errorf("note %q", note)
	}

	hidden := start(t, nil, nil)
	tree := t.TempDir()
	guardtest.Tree(t, tree, "", ".gitignore=a\n", "a=x", "b=x")
	_, err := hidden.reg.Grant(t.Context(), guard.Grant{Root: "code", Dir: names.Foreign(tree), Origin: "test", Policy: guard.Policy{
		Rights: guard.ReadOnly, Patterns: guard.Patterns{Hide: []rules.Pattern{{Text: ".gitignore"}}}}})
	testkit.Must(t, err)
	hidden.connect("")
	if got := hidden.searchedFiles("code", nil); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("a hidden .gitignore counts: %q", got)
	}

	narrowed := start(t, nil, nil)
	top := narrowed.root("code", guard.ReadOnly, ".gitignore=*.log\n", "in/a.log=x")
	narrowed.mcp.AddRoots(&mcp.Root{URI: names.FormatURI(top + "/in")})
	narrowed.connect("2025-11-25")
	if got := narrowed.searchedFiles("code/in", nil); !slices.Equal(got, []string{"a.log"}) {
		t.Errorf("a .gitignore above the client's roots counts: %q", got)
	}
}

// The .gitignore of a directory counts even if the names in the directory do not fit on one page.
func TestSearchRespectsGitignoreOfLargeDirectory(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("code", guard.ReadOnly, ".gitignore=f*\n", "z=x")
	for i := range 12_000 {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), nil, 0o600))
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600))
	b.connect("")
	if got := b.searchedFiles("code", nil); !slices.Equal(got, []string{"z"}) {
		t.Errorf("%q", got)
	}
}

// In a nested repository with too many rules, the rules of the outer repository do not count
// either.
func TestSearchInRepositoryWithTooManyRules(t *testing.T) {
	b := start(t, nil, nil)
	many := strings.Repeat("y\n", pattern.MaxRules+1)
	dir := b.root("code", guard.ReadOnly, ".gitignore=*.log\n", "a.log=x", "a=x", "repo/.git/HEAD=x", "repo/a.log=x", "in/a.log=x", "in/b=x")
	for _, sub := range []string{"repo", "in"} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, sub, ".gitignore"), []byte("b\n"+many), 0o600))
	}
	b.connect("")
	if got, want := b.searchedFiles("code", nil), []string{"a", "in/b", "repo/a.log"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
