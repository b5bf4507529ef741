package pattern

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// There may be thousands of roots, and most have the same rules: the built-in ones, and those
// that the owner wrote for every root. So each list of rules is compiled once in the process,
// and kept as long as some Set has it. A compiled built-in rule is always kept, because nearly
// every list has it.

// shared holds the rules compiled in this process.
var shared sharedRules

// sharedRules finds rules that are compiled already. The zero value is ready for use,
// and it may be used concurrently.
type sharedRules struct {
	mu       sync.Mutex // guards the fields below
	builtin  map[sharedRule]*compiled
	programs map[uint64][]weak.Pointer[program] // by keyOf
}

type sharedRule struct {
	Rule
	fold bool
}

// seed is for keys of sharedRules.programs.
var seed = maphash.MakeSeed()

func keyOf(rules []Rule, fold bool) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	maphash.WriteComparable(&h, fold)
	for i := range rules {
		maphash.WriteComparable(&h, rules[i])
	}
	return h.Sum64()
}

// program compiles rules. If some Set has the same rules and the same fold, program returns the
// program of that Set.
func (s *sharedRules) program(rules []Rule, fold bool) (*program, error) {
	key := keyOf(rules, fold)
	if p := s.find(key, rules, fold); p != nil {
		return p, nil
	}
	p, err := newProgram(rules, fold, s.compile)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs == nil {
		s.programs = map[uint64][]weak.Pointer[program]{}
	}
	s.programs[key] = append(s.programs[key], weak.Make(p))
	runtime.AddCleanup(p, s.forget, key)
	return p, nil
}

// find returns the program of these rules, nil if there is none.
func (s *sharedRules) find(key uint64, rules []Rule, fold bool) *program {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.programs[key] {
		if p := w.Value(); p != nil && p.fold == fold && slices.EqualFunc(p.rules, rules, func(c *compiled, r Rule) bool { return *c.Rule == r }) {
			return p
		}
	}
	return nil
}

// forget drops, from the programs of a key, those that the garbage collector has freed.
func (s *sharedRules) forget(key uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.programs[key], func(w weak.Pointer[program]) bool { return w.Value() == nil })
	if s.programs[key] = left; len(left) == 0 {
		delete(s.programs, key)
	}
}

// compile compiles a rule. A built-in rule that was compiled before with the same fold is not
// compiled again.
func (s *sharedRules) compile(r *Rule, fold bool) (*compiled, error) {
	if !r.Builtin() {
		return compile(r, fold)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sharedRule{*r, fold}
	if c := s.builtin[key]; c != nil {
		return c, nil
	}
	c, err := compile(r, fold)
	if err != nil {
		return nil, err
	}
	if s.builtin == nil {
		s.builtin = map[sharedRule]*compiled{}
	}
	s.builtin[key] = c
	return c, nil
}
