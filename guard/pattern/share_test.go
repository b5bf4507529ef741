package pattern

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// builtinRules are rules like those of package builtin.
func builtinRules() (out []Rule) {
	for i, text := range []string{".env*", "id_rsa", "*.pem", ".ssh", "**/.docker/config.json", "**/.git/hooks", "/.vscode", "**/.mcp.json"} {
		out = append(out, Rule{List: BuiltinHide + List(i%2), Text: text, Reason: "built in"})
	}
	return out
}

// For each way of comparing names (exact or folded), the built-in rules are compiled once for all
// roots. Roots share neither the owner's rules for one of them nor the states of directories.
func TestBuiltinRulesAreCompiledOnce(t *testing.T) {
	set := func(o Options, more ...Rule) *Set {
		t.Helper()
		s, err := New(append(builtinRules(), more...), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	own := func(text string) Rule { return Rule{List: OwnDeny, Text: text} }
	a, b, folded := set(Options{}), set(Options{}), set(Options{Fold: true})
	if a.program != b.program {
		t.Error("equal rules were compiled twice")
	}
	if a.program == folded.program || a.program.fold || !folded.program.fold {
		t.Error("rules for folded names are those for exact ones")
	}
	a.At("deep/down")
	if _, ok := b.states.get("deep/down"); ok {
		t.Error("two roots share the states of their directories")
	}
	c, d := set(Options{}, own("x")), set(Options{}, own("y"))
	if last := func(s *Set) string { r := s.Rules(); return r[len(r)-1].Text }; c.program == d.program || last(c) != "x" || last(d) != "y" {
		t.Error("two roots share what the owner wrote for one")
	}
	for i, r := range a.program.rules {
		if c.program.rules[i] != r || d.program.rules[i] != r {
			t.Fatalf("rule %d, %s, was compiled again", i, r.Text)
		}
	}
}

// Rules that the owner wrote for every root are compiled once for all of them, and kept only
// while a root has them.
func TestOwnRulesAreShared(t *testing.T) {
	var s sharedRules
	list := func(text string) []Rule { return append(builtinRules(), Rule{List: OwnDeny, Text: text}) }
	a, err := s.program(list("x"), false)
	b, err2 := s.program(list("x"), false)
	if err != nil || err2 != nil || a != b {
		t.Errorf("equal rules were compiled twice: %v, %v", err, err2)
	}
	for _, other := range []struct {
		text string
		fold bool
	}{{"y", false}, {"x", true}} {
		if c, err := s.program(list(other.text), other.fold); err != nil || c == a {
			t.Errorf("%+v: other rules have the same program: %v", other, err)
		}
	}
	if _, err := s.program(list("["), false); err == nil {
		t.Error("a malformed pattern was compiled")
	}
	kept := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, list := range s.programs {
			n += len(list)
		}
		return n
	}
	testkit.Eventually(func() bool { // the collector reports an unused program later
		runtime.GC()
		return kept() <= 1
	})
	if n := kept(); n != 1 {
		t.Errorf("%d programs are kept, of which one is in use", n)
	}
	runtime.KeepAlive(a)
}

// However many lists are compiled, sharedRules.builtin keeps the built-in rules only.
func TestFewCompiledRulesAreKept(t *testing.T) {
	var s sharedRules
	for i := range 20 {
		if _, err := s.program(append(builtinRules(), Rule{List: OwnHide, Text: fmt.Sprint(i)}), false); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.builtin) != len(builtinRules()) {
		t.Errorf("%d rules are kept", len(s.builtin))
	}
}

// A rule says where it comes from: it is built in, or written on the command line or in a file.
func TestSource(t *testing.T) {
	for want, r := range map[string]Rule{
		BuiltIn:          {List: BuiltinHide, Text: ".env*", Reason: "environment files"},
		CommandLine:      {List: OwnHide, Text: "a"},
		"sub/.gitignore": {List: Ignore, Text: "a", File: "sub/.gitignore", Line: 3},
	} {
		if got := r.Source(); got != want {
			t.Errorf("%+v: %s", r, got)
		}
	}
	if r := (Rule{List: Except, Text: "a"}); r.Source() != BuiltIn {
		t.Error(r.Source())
	}
}
