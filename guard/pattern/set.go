package pattern

import (
	"fmt"
	"strconv"
	"sync"
)

// Options configure a set.
type Options struct {
	// Fold is for file systems that take several spellings for one name: patterns and names
	// are folded by the function Fold before they are compared.
	Fold bool
}

// Set judges names by a list of rules. Sets with equal rules share a program; each has its own
// cache of the states of directories.
type Set struct {
	program *program
	states  cache
}

// program is a compiled list of rules. It never changes.
type program struct {
	rules []*compiled
	fold  bool
	root  *State
	plain *State // of a directory to which no rule applies and where no pattern is half matched
	floating
}

// floating are the patterns that may begin in any directory, grouped by the text of their first
// element, so that a name is compared with few of them, however many patterns there are.
type floating struct {
	literals map[string][]int32
	suffixes [256][]int32 // by the last byte
	prefixes [256][]int32 // by the first
	globs    []int32      // patterns that may begin and end with any byte
}

// Error is the error for a rule that cannot be used.
type Error struct {
	Rule Rule
	Err  error
}

// Error returns FILE:LINE: LIST "PATTERN": REASON.
func (e *Error) Error() string {
	at := ""
	if e.Rule.File != "" {
		at = fmt.Sprintf("%s:%d: ", e.Rule.File, e.Rule.Line)
	}
	text := strconv.Quote(e.Rule.Text)
	if len(e.Rule.Text) > longText {
		text = strconv.Quote(e.Rule.Text[:longText]) + "…"
	}
	return fmt.Sprintf("%s%s %s: %v", at, e.Rule.List, text, e.Err)
}

// longText is how much of a pattern an error shows, in bytes.
const longText = 200

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New compiles rules. The rules of one list are judged in their order in rules. Every error is
// an *Error.
func New(rules []Rule, o Options) (*Set, error) {
	if len(rules) > MaxRules {
		return nil, &Error{Rule: rules[MaxRules], Err: fmt.Errorf("it is beyond the limit of %d patterns for one root", MaxRules)}
	}
	p, err := shared.program(rules, o.Fold)
	if err != nil {
		return nil, err
	}
	return &Set{program: p}, nil
}

// newProgram compiles rules, each by means of compile.
func newProgram(rules []Rule, fold bool, compile func(*Rule, bool) (*compiled, error)) (*program, error) {
	p := &program{fold: fold, floating: floating{literals: map[string][]int32{}}}
	p.root, p.plain = &State{program: p}, &State{program: p}
	for i := range rules {
		r := rules[i]
		c, err := compile(&r, fold)
		if err != nil {
			return nil, &Error{Rule: r, Err: err}
		}
		n := int32(len(p.rules))
		p.rules = append(p.rules, c)
		if c.elems[0].sticky {
			p.addFloating(n, &c.elems[0])
		} else {
			p.root.items = append(p.root.items, item{rule: n})
		}
	}
	return p, nil
}

// addFloating adds a rule whose first element is e, and which may begin in any directory.
func (p *program) addFloating(rule int32, e *elem) {
	head, tail := e.head, e.tail
	switch e.kind {
	case literal:
		p.literals[e.text] = append(p.literals[e.text], rule)
		return
	case suffix:
		tail = e.text
	case prefix:
		head = e.text
	case anyName, glob:
	}
	switch {
	case tail != "":
		b := tail[len(tail)-1]
		p.suffixes[b] = append(p.suffixes[b], rule)
	case head != "":
		p.prefixes[head[0]] = append(p.prefixes[head[0]], rule)
	default:
		p.globs = append(p.globs, rule)
	}
}

// Rules returns the rules of the set, in order. The caller must not change them.
func (s *Set) Rules() []*Rule {
	rules := s.program.rules
	out := make([]*Rule, len(rules))
	for i, c := range rules {
		out[i] = c.Rule
	}
	return out
}

// name returns a name in the form that is compared with patterns.
func (p *program) name(n string) string {
	if p.fold {
		return Fold(n)
	}
	return n
}

// A cache keeps two generations of at most maxStates directories, a hundred bytes each.
// A generation is full when its paths have maxKeys bytes together. A path of more than maxKey
// bytes is not cached. A program can make a tree so deep that paths alone would be gigabytes, and
// finding the nearest cached directory would take longer than going down from the root.
const (
	maxStates = 8192
	maxKeys   = 2 << 20
	maxKey    = 16 << 10
)

// cache keeps the states of directories by their path. States never become wrong. When the young
// generation is full, it becomes the old one, and the generation that was old is dropped.
type cache struct {
	mu         sync.RWMutex // guards the fields below
	young, old map[string]*State
	keys       int // bytes of the paths in young
}

func (c *cache) get(path string) (st *State, ok bool) {
	c.mu.RLock()
	st, ok = c.young[path]
	if !ok {
		st, ok = c.old[path]
	}
	c.mu.RUnlock()
	return st, ok
}

func (c *cache) put(path string, st *State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young == nil || len(c.young) >= maxStates || c.keys >= maxKeys {
		c.old, c.young, c.keys = c.young, map[string]*State{}, 0
	}
	if _, ok := c.young[path]; !ok {
		c.keys += len(path)
	}
	c.young[path] = st
}

// At returns the state of the directory with this path below the root, without slashes at
// its ends; "" is the root.
func (s *Set) At(path string) *State {
	if path == "" {
		return s.program.root
	}
	if len(path) <= maxKey {
		if st, ok := s.states.get(path); ok {
			return st
		}
	}
	// Begin at the nearest cached directory above the path, or at the root.
	st, from := s.program.root, 0
	for i := min(len(path)-1, maxKey); i > 0; i-- {
		if path[i] != '/' {
			continue
		}
		if have, ok := s.states.get(path[:i]); ok {
			st, from = have, i+1
			break
		}
	}
	for from < len(path) {
		end := from
		for end < len(path) && path[end] != '/' {
			end++
		}
		st = st.Enter(path[:max(0, from-1)], path[from:end])
		from = end + 1
		if end == len(path) && end <= maxKey {
			s.states.put(path, st)
		}
	}
	return st
}
