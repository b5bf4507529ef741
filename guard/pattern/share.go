package pattern

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// There may be thousands of roots, and mostly the rules of all are the same: the
// built-in ones, and what the owner wrote for every root. So each list of rules is
// compiled once in the process. What is built in is kept; what the owner wrote is kept
// as long as some Set has it.

// builtin is what was compiled in this process.
var builtin sharedRules

// maxPrograms bounds the programs of built-in rules alone that are kept: with and
// without the trash's rule, by exact and by folded names, and as much again.
const maxPrograms = 8

// sharedRules keeps what has been compiled of rules. The zero value is ready for use,
// and it may be used concurrently.
type sharedRules struct {
	mu       sync.Mutex // guards the fields below
	rules    map[sharedRule]*compiled
	programs []*lazyProgram // of built-in rules alone
	owned    map[uint64][]weak.Pointer[program]
}

// lazyProgram is a list of built-in rules, compiled when it is first asked for.
type lazyProgram struct {
	rules []Rule
	fold  bool
	get   func() *program
}

type sharedRule struct {
	Rule
	fold bool
}

// lazy returns what compiles built-in rules when it is first called: nothing is wrong
// with what is built in, and a short run may never come to ask.
func (s *sharedRules) lazy(rules []Rule, fold bool) func() *program {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.programs {
		if p.fold == fold && slices.Equal(p.rules, rules) {
			return p.get
		}
	}
	p := &lazyProgram{rules: slices.Clone(rules), fold: fold}
	p.get = sync.OnceValue(func() *program {
		made, err := newProgram(p.rules, fold, s.compile)
		if err != nil {
			panic(err) // a test compiles all of them
		}
		return made
	})
	if len(s.programs) < maxPrograms {
		s.programs = append(s.programs, p)
	}
	return p.get
}

// seed is for keys of sharedRules.owned.
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

// program compiles rules, unless some Set has the same ones.
func (s *sharedRules) program(rules []Rule, fold bool) (*program, error) {
	key := keyOf(rules, fold)
	if p := s.have(key, rules, fold); p != nil {
		return p, nil
	}
	p, err := newProgram(rules, fold, s.compile)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owned == nil {
		s.owned = map[uint64][]weak.Pointer[program]{}
	}
	s.owned[key] = append(s.owned[key], weak.Make(p))
	runtime.AddCleanup(p, s.forget, key)
	return p, nil
}

// have finds a program of these rules.
func (s *sharedRules) have(key uint64, rules []Rule, fold bool) *program {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.owned[key] {
		if p := w.Value(); p != nil && p.fold == fold && slices.EqualFunc(p.rules, rules, func(c *compiled, r Rule) bool { return *c.Rule == r }) {
			return p
		}
	}
	return nil
}

// forget drops the programs with a key that nobody has any more.
func (s *sharedRules) forget(key uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.owned[key], func(w weak.Pointer[program]) bool { return w.Value() == nil })
	if s.owned[key] = left; len(left) == 0 {
		delete(s.owned, key)
	}
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
