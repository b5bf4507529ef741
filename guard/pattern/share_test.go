package pattern

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
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

// What the owner wrote for every root is compiled once for all of them, and not kept
// longer than a root has it.
func TestOwnRulesAreShared(t *testing.T) {
	var s sharedRules
	list := func(text string) []Rule { return append(Builtin(), Rule{List: OwnDeny, Text: text}) }
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
			t.Errorf("%+v: other rules are the same: %v", other, err)
		}
	}
	if _, err := s.program(list("["), false); err == nil {
		t.Error("a pattern that cannot be compiled was")
	}
	kept := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, list := range s.owned {
			n += len(list)
		}
		return n
	}
	for i := 0; kept() > 1 && i < 1000; i++ { // of what nobody has, the collector tells later
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if n := kept(); n != 1 {
		t.Errorf("%d programs are kept, of which one is in use", n)
	}
	runtime.KeepAlive(a)
}

// However many lists of built-in rules there are, few are kept, and none of the
// owner's.
func TestFewCompiledRulesAreKept(t *testing.T) {
	var s sharedRules
	for i := range 3 * maxPrograms {
		s.lazy(Builtin()[i:], false)()
		if _, err := newProgram(append(Builtin(), Rule{List: OwnHide, Text: fmt.Sprint(i)}), false, s.compile); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.programs) != maxPrograms || len(s.rules) != len(Builtin()) ||
		slices.ContainsFunc(s.programs, func(p *lazyProgram) bool { return !p.rules[0].Builtin() }) {
		t.Errorf("%d programs and %d rules are kept", len(s.programs), len(s.rules))
	}
}
