package pattern

import (
	"fmt"
	"slices"
	"testing"
)

// What is built in is compiled once for all roots, and once for each way of
// comparing names; what the owner wrote is each root's own.
func TestBuiltinRulesAreCompiledOnce(t *testing.T) {
	set := func(o Options, more ...Rule) *Set {
		t.Helper()
		s, err := New(append(append(Builtin(), Reserved("trash")...), more...), o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	own := func(text string) Rule { return Rule{List: OwnDeny, Text: text} }
	a, b, folded := set(Options{}), set(Options{}), set(Options{Fold: true})
	if a.program() != b.program() {
		t.Error("equal rules were compiled twice")
	}
	if a.program() == folded.program() || a.program().fold || !folded.program().fold {
		t.Error("rules for folded names are those for exact ones")
	}
	a.At("deep/down")
	if _, ok := b.states.get("deep/down"); ok {
		t.Error("two roots share the states of their directories")
	}
	c, d := set(Options{}, own("x")), set(Options{}, own("y"))
	if last := func(s *Set) string { r := s.Rules(); return r[len(r)-1].Text }; c.program() == d.program() || last(c) != "x" || last(d) != "y" {
		t.Error("two roots share what the owner wrote for one")
	}
	for i, r := range a.program().rules {
		if c.program().rules[i] != r || d.program().rules[i] != r {
			t.Fatalf("rule %d, %s, was compiled again", i, r.Text)
		}
	}
}

// However many lists of built-in rules there are, few are kept, and none of the
// owner's.
func TestFewCompiledRulesAreKept(t *testing.T) {
	var s sharedRules
	for i := range 3 * maxPrograms {
		s.program(Builtin()[i:], false)
		if _, err := newProgram(append(Builtin(), Rule{List: OwnHide, Text: fmt.Sprint(i)}), false, s.compile); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.programs) != maxPrograms || len(s.rules) != len(Builtin()) ||
		slices.ContainsFunc(s.programs, func(p sharedProgram) bool { return !p.rules[0].Builtin() }) {
		t.Errorf("%d programs and %d rules are kept", len(s.programs), len(s.rules))
	}
}
