package pattern

import (
	"slices"
	"sync"
)

// The built-in rules are the same in every root, and there may be thousands of
// roots: so they are compiled once in the process. What the owner wrote is not kept
// here, for nobody would know when to let go of it.

// builtin is what was compiled of the built-in rules.
var builtin sharedRules

// maxPrograms bounds the programs that are kept: with and without the trash's rule,
// by exact and by folded names, and as much again.
const maxPrograms = 8

// sharedRules keeps what has been compiled of built-in rules. The zero value is
// ready for use, and it may be used concurrently.
type sharedRules struct {
	mu       sync.Mutex // guards the fields below
	rules    map[sharedRule]*compiled
	programs []sharedProgram
}

type sharedRule struct {
	Rule
	fold bool
}

type sharedProgram struct {
	rules []Rule
	*program
}

// program compiles built-in rules, as far as that has not been done.
func (s *sharedRules) program(rules []Rule, fold bool) *program {
	s.mu.Lock()
	for _, p := range s.programs {
		if p.fold == fold && slices.Equal(p.rules, rules) {
			s.mu.Unlock()
			return p.program
		}
	}
	s.mu.Unlock()
	p, err := newProgram(rules, fold, s.compile)
	if err != nil {
		panic(err) // a test compiles all of them
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.programs) < maxPrograms {
		s.programs = append(s.programs, sharedProgram{rules, p})
	}
	return p
}

// compile compiles a rule, unless it is a built-in one for which that has been done.
func (s *sharedRules) compile(r *Rule, fold bool) (*compiled, error) {
	if !r.Builtin() {
		return compile(r, fold)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sharedRule{*r, fold}
	if c := s.rules[key]; c != nil {
		return c, nil
	}
	c, err := compile(r, fold)
	if err != nil {
		return nil, err
	}
	if s.rules == nil {
		s.rules = map[sharedRule]*compiled{}
	}
	s.rules[key] = c
	return c, nil
}
