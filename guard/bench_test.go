package guard_test

import (
	"fmt"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// BenchmarkAdmit measures the cost of the gate per operation if only rights are checked. Run it
// before and after a change of the gate: features that are off must cost nothing.
func BenchmarkAdmit(b *testing.B) {
	for name, op := range map[string]guard.Op{"lookup": names.OpLookup, "read": names.OpRead, "write": names.OpWrite} {
		b.Run(name, func(b *testing.B) {
			g := guard.NewRegistry(guard.Config{Opener: &fakeOpener{}})
			if _, err := g.Grant(bg, guard.Grant{Root: "r", Dir: "/r", Policy: guard.Policy{Rights: guard.ReadWrite}, Origin: "test"}); err != nil {
				b.Fatal(err)
			}
			r := req(b, op)
			r.Path = path(b, "r", "src/deep/inside/of/it/file.go")
			if op != names.OpLookup {
				r.Bytes = 4096
			}
			b.ReportAllocs()
			for b.Loop() {
				l, err := g.Admit(bg, r)
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Done(r.Bytes, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMaking measures the gate's work for a new file: without patterns, with the built-in
// ones, and with these and fifty more.
func BenchmarkMaking(b *testing.B) {
	var fifty []rules.Pattern
	for i := range 10 {
		for _, shape := range []string{"*.secret%d", "/vault%d/", "docs/**/private%d.*", "release-%d-[0-9]*.lock", "**/generated%d/*.pb.go"} {
			fifty = append(fifty, guard.Texts(fmt.Sprintf(shape, i))...)
		}
	}
	for _, with := range []struct {
		name string
		guard.Patterns
	}{{"none", guard.Patterns{NoDefaults: true}}, {"builtin", guard.Patterns{}}, {"fifty", guard.Patterns{Hide: fifty}}} {
		b.Run(with.name, func(b *testing.B) {
			s := newSetup(b, nil)
			s.grant(b, "r", "/r", guard.Policy{Patterns: with.Patterns})
			r := req(b, names.OpCreate)
			r.Path, r.Names = path(b, "r", "src/deep/inside/file.go"), 1
			b.ReportAllocs()
			for b.Loop() {
				if err := makeFile(s, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// makeFile calls the gate as package vfs does for a new file.
func makeFile(s *setup, r guard.Request) error {
	l, err := s.Admit(bg, r)
	if err != nil {
		return err
	}
	unlock, err := l.Making(bg)
	if err != nil {
		return l.Done(0, err)
	}
	defer unlock()
	dir, base := r.Path.Split()
	if err = l.Judge().Dir(dir.Rel()); err == nil {
		err = l.Judge().Name(dir.Rel(), base)
	}
	l.Notes().Name(dir.Rel(), base, rules.Identity{Ino: 1}, false)
	l.Hold()
	return l.Done(0, err)
}

// Patterns that match none of the names cause no allocation.
func TestMakingAllocatesAsWithoutPatterns(t *testing.T) {
	var allocs []float64
	for _, p := range []guard.Patterns{{NoDefaults: true}, {Hide: guard.Texts("*.secret", "docs/**/x", "a[0-9]b")}} {
		s := newSetup(t, func(c *guard.Config) { c.Auditor = nil })
		s.grant(t, "r", "/r", guard.Policy{Patterns: p})
		r := req(t, names.OpCreate)
		r.Path, r.Names = path(t, "r", "src/deep/inside/file.go"), 1
		allocs = append(allocs, testing.AllocsPerRun(100, func() {
			if err := makeFile(s, r); err != nil {
				t.Fatal(err)
			}
		}))
	}
	if allocs[1] != allocs[0] {
		t.Errorf("%v allocations without patterns and with them", allocs)
	}
}
