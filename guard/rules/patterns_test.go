package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// R104: new patterns allow more than the old ones if a pattern that refuses is missing or in
// another order, if a pattern that begins with "!" is new, or if more is lifted. Further patterns
// that refuse allow nothing more.
func TestPatternsWiderThan(t *testing.T) {
	list := rules.Texts
	for name, c := range map[string]struct {
		old, now rules.Patterns
		want     bool
	}{
		"none":                       {},
		"the same":                   {rules.Patterns{Deny: list("a", "b")}, rules.Patterns{Deny: list("a", "b")}, false},
		"one more":                   {rules.Patterns{Deny: list("a")}, rules.Patterns{Deny: list("x", "a", "y")}, false},
		"one less":                   {rules.Patterns{Hide: list("a", "b")}, rules.Patterns{Hide: list("b")}, true},
		"another order":              {rules.Patterns{Protect: list("a", "!b")}, rules.Patterns{Protect: list("!b", "a")}, true},
		"an exception":               {rules.Patterns{Deny: list("a")}, rules.Patterns{Deny: list("a", "!a/b")}, true},
		"denied, not hidden":         {rules.Patterns{Hide: list("a")}, rules.Patterns{Deny: list("a")}, true},
		"lifted":                     {rules.Patterns{}, rules.Patterns{Allow: list(".env")}, true},
		"lifted no more":             {rules.Patterns{Allow: list("a", "b")}, rules.Patterns{Allow: list("b")}, false},
		"an exception to the lifted": {rules.Patterns{Allow: list("a")}, rules.Patterns{Allow: list("a", "!a/b")}, true},
		"an exception less":          {rules.Patterns{Allow: list("a", "!a/b")}, rules.Patterns{Allow: list("a")}, true},
		"no defaults":                {rules.Patterns{}, rules.Patterns{NoDefaults: true}, true},
		"defaults":                   {rules.Patterns{NoDefaults: true}, rules.Patterns{}, false},
		".gitignore no more":         {rules.Patterns{Gitignore: true}, rules.Patterns{}, true},
		".gitignore, too":            {rules.Patterns{}, rules.Patterns{Gitignore: true}, false},
	} {
		if got := c.now.WiderThan(c.old); got != c.want {
			t.Errorf("%s: wider %v, want %v", name, got, c.want)
		}
	}
}

// Mistakes in patterns are found without a root, and a list is bounded.
func TestPatternsAreChecked(t *testing.T) {
	long := make([]rules.Pattern, rules.MaxPatterns)
	for i := range long {
		long[i].Text = "x"
	}
	for name, c := range map[string]struct {
		p    rules.Patterns
		want string // a part of the error, "" for none
	}{
		"good":     {rules.Patterns{Deny: rules.Texts("*.key"), Allow: long}, ""},
		"mistake":  {rules.Patterns{Deny: []rules.Pattern{{Text: "[", File: "/f", Line: 3}}}, "/f:3"},
		"too many": {rules.Patterns{Protect: append(long, rules.Texts("y")...)}, "protect has 1001 patterns"},
	} {
		err := c.p.Check()
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, names.Invalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Summary returns the numbers of patterns. LiftedText names the lifted built-in protections, and
// quotes patterns, because somebody else may have chosen them.
func TestPatternsInWords(t *testing.T) {
	p := rules.Patterns{Deny: rules.Texts("a", "b"), Allow: rules.Texts(".env", "\x1b[1m"), Gitignore: true}
	if got, want := p.Summary(), "2 deny, 0 hide, 0 protect, 2 allow, .gitignore"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := p.LiftedText(), `built-in protections lifted for ".env", "\u{1b}[1m"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	p.NoDefaults = true
	if got := p.LiftedText(); got != "all built-in protections are off" {
		t.Error(got)
	}
}

// foldingTree is a tree in which only the directory "folds" folds names (chattr +F). It has no files.
type foldingTree struct{ rules.Tree }

func (foldingTree) File() string         { return "" }
func (foldingTree) Naming() rules.Naming { return rules.MixedNames }
func (foldingTree) FoldsAt(dir string, _ bool) bool {
	return dir == "folds" || strings.HasPrefix(dir, "folds/")
}
func (foldingTree) Look(string, bool) (rules.LookResult, error) {
	return rules.LookResult{}, &names.Error{Kind: names.NotExist}
}

// In a directory that folds names, a rule refuses every spelling of its name, whether the rule or the
// spelling has the capital letters. In other directories each spelling is another name.
func TestRulesInFoldingDirectories(t *testing.T) {
	p := rules.Policy{Patterns: rules.Patterns{Hide: rules.Texts("Secret.txt", "lower.txt", "Dir/", "**/Deep/*.zzz", "\u212aelvin"), Protect: rules.Texts("**/Ci/run", "**/ci2/run")}}
	if err := p.Compile(foldingTree{}); err != nil {
		t.Fatal(err)
	}
	facts := rules.NewRootFacts(foldingTree{}, false)
	for name, c := range map[string]struct{ folding, other bool }{ // refused there
		"Secret.txt": {true, true}, "secret.txt": {true, false}, "SECRET.TXT": {true, false},
		"lower.txt": {true, true}, "Lower.txt": {true, false},
		"plain.txt": {false, false}, "Plain.txt": {false, false}, "kelvin": {true, false},
	} {
		for dir, want := range map[string]bool{"folds": c.folding, "folds/in": c.folding, "exact": c.other} {
			_, err := p.Rules().Judge(facts, names.OpCreate, rules.ToMake, dir, name, pattern.Other)
			if (err != nil) != want {
				t.Errorf("%s in %s: %v, want refused %v", name, dir, err, want)
			}
		}
	}
	// A link would put other files in the place of the protected ones.
	for name, other := range map[string]bool{"Ci": true, "ci": false, "CI": false, "ci2": true, "Ci2": false} {
		for dir, want := range map[string]bool{"folds": true, "exact": other} {
			_, err := p.Rules().Judge(facts, names.OpSymlink, rules.ToMake, dir, name, pattern.Link)
			if (err != nil) != want {
				t.Errorf("link %s in %s: %v, want refused %v", name, dir, err, want)
			}
		}
	}
	for dir, want := range map[string]bool{"folds/deep": true, "exact/deep": false, "exact/Deep": true} {
		_, err := p.Rules().Judge(facts, names.OpCreate, rules.ToMake, dir, "a.zzz", pattern.Other)
		if (err != nil) != want {
			t.Errorf("a.zzz in %s: %v, want refused %v", dir, err, want)
		}
	}
	for dir, want := range map[string]bool{"folds/dir": true, "folds/Dir/in": true, "exact/dir": false, "exact/Dir": true} {
		if _, err := p.Rules().JudgeDir(facts, dir); (err != nil) != want {
			t.Errorf("%s: %v, want refused %v", dir, err, want)
		}
	}
}
