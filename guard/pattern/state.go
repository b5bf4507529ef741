package pattern

import (
	"slices"
	"strings"
)

// State is the result of the rules for one directory.
type State struct {
	program   *program
	items     []item        // patterns that the path of the directory has matched in part
	inherited []matchedRule // rules that matched the directory or one above, and apply in it
	// barrier is the verdict Hide or Deny on the directory and everything in it. Its Effect is None
	// if there is no such verdict.
	barrier Verdict
	except  bool // the list Except matches the directory or one above
}

// item is a pattern whose elements before pos have been matched.
type item struct {
	rule int32
	pos  int16
}

// matchedRule is a rule that matched, and the depth of the directory in which its pattern began to
// match.
type matchedRule struct {
	rule  int32
	depth int16
}

// Type is the type of the file at a name, as far as the caller knows.
type Type uint8

// The types. Links are not followed: a link to a directory is a Link.
const (
	Unknown Type = iota
	Dir
	Link
	Other
)

// Facts answers the questions that some rules ask about files. The paths are below the root.
// Without Facts, the conditions of all rules count as met.
type Facts interface {
	// IsDir reports whether there is a directory at the path. The path need not exist.
	IsDir(path string) bool
	// IsTop reports whether the directory is the top of a repository that the
	// root's users did not make themselves.
	IsTop(dir string) bool
	// IsBare reports whether the names in the directory show that it is a repository of the given
	// kind (GitDir or SvnDir), and the root's users did not make that repository themselves.
	IsBare(dir string, kind Condition) bool
	// IsInUserRepo reports whether the path belongs to a repository that the root's users made
	// themselves.
	IsInUserRepo(path string) bool
	// HasTokens reports whether the file holds credentials.
	HasTokens(path string) bool
}

// Verdict is the result of the rules for a name.
type Verdict struct {
	Effect Effect
	Rule   *Rule // the rule that decided; nil with None, unless a rule was lifted
	// Lifted is the rule that would have decided if Rule had not lifted it. Rule is then of the
	// list Allow. Lifted is nil if no rule was lifted.
	Lifted *Rule
}

// Barrier returns the verdict Hide or Deny on the directory and everything in it. The Effect is
// None if there is no such verdict.
func (st *State) Barrier() Verdict { return st.barrier }

// Enter returns the state of the subdirectory called name. dir is the path of st's directory.
func (st *State) Enter(dir, name string) *State {
	if st.barrier.Effect != None {
		return st
	}
	var buf [8]int32
	rules, items := st.match(st.program.name(name), buf[:0])
	if len(rules) == 0 && len(items) == 0 && len(st.inherited) == 0 && !st.except {
		return st.program.plain
	}
	next := &State{program: st.program, except: st.except, items: items}
	chain := st.chain(dir, rules, Dir)
	if v := st.weigh(chain, noFacts{}, ""); v.Effect == Hide || v.Effect == Deny {
		next.barrier, next.items = v, nil
		return next
	}
	next.inherited = slices.DeleteFunc(chain, func(h matchedRule) bool { return st.program.rules[h.rule].NameOnly })
	for _, r := range rules {
		if c := st.program.rules[r]; c.List == Except {
			next.except = !c.negated()
		}
	}
	return next
}

// Judge returns the verdict on a name in the directory. dir is the path of the directory.
// facts may be nil.
func (st *State) Judge(dir, name string, t Type, facts Facts) Verdict {
	if st.barrier.Effect != None {
		return st.barrier
	}
	var buf [8]int32
	rules, _ := st.match(st.program.name(name), buf[:0])
	if len(rules) == 0 && len(st.inherited) == 0 {
		return Verdict{}
	}
	path := join(dir, name)
	if t == Unknown && st.dirOnly(rules) {
		t = Other
		if facts == nil || facts.IsDir(path) {
			t = Dir
		}
	}
	return st.weigh(st.chain(dir, rules, t), facts, path)
}

// Silent reports whether no rule is about a name in the directory, whatever the type of the file.
// If so, Judge returns None and does not call Facts.
func (st *State) Silent(name string) bool {
	if st.barrier.Effect != None || len(st.inherited) > 0 {
		return false
	}
	var buf [8]int32
	rules, _ := st.match(st.program.name(name), buf[:0])
	return len(rules) == 0
}

// match compares a name with the patterns of the directory. rules are the matching rules, in
// order, appended to buf. items are the patterns whose further elements have to match names below.
func (st *State) match(name string, buf []int32) (rules []int32, items []item) {
	p := st.program
	rules = buf
	for _, r := range p.literals[name] {
		rules, items = p.addItem(item{rule: r}, rules, items)
	}
	if name != "" {
		for _, list := range [...][]int32{p.suffixes[name[len(name)-1]], p.prefixes[name[0]], p.globs} {
			for _, r := range list {
				if p.rules[r].elems[0].match(name) {
					rules, items = p.addItem(item{rule: r}, rules, items)
				}
			}
		}
	}
	for _, it := range st.items {
		e := &p.rules[it.rule].elems[it.pos]
		if e.sticky {
			items = add(items, it)
		}
		if e.match(name) {
			rules, items = p.addItem(it, rules, items)
		}
	}
	if len(rules) > 1 {
		slices.Sort(rules)
		rules = slices.Compact(rules)
	}
	return rules, items
}

// addItem is called if a name has matched the element it.pos of a rule. It adds the rule to rules
// if that was the last element. Otherwise it adds the rule's next element to items.
func (p *program) addItem(it item, rules []int32, items []item) ([]int32, []item) {
	if int(it.pos) == len(p.rules[it.rule].elems)-1 {
		return append(rules, it.rule), items
	}
	return rules, add(items, item{it.rule, it.pos + 1})
}

func add(items []item, it item) []item {
	if slices.Contains(items, it) {
		return items
	}
	return append(items, it)
}

func (st *State) dirOnly(rules []int32) bool {
	return slices.ContainsFunc(rules, func(r int32) bool { return st.program.rules[r].dirOnly })
}

// chain returns the rules that apply to an entry: those of the directory, then those that match
// the entry itself. A rule without a condition replaces all earlier ones of its list.
func (st *State) chain(dir string, rules []int32, t Type) []matchedRule {
	if len(rules) == 0 {
		return st.inherited
	}
	out := slices.Clone(st.inherited)
	for _, r := range rules {
		c := st.program.rules[r]
		if c.dirOnly && t != Dir || c.List == Except {
			continue
		}
		if c.Condition == Always {
			out = slices.DeleteFunc(out, func(h matchedRule) bool { return st.program.rules[h.rule].List == c.List })
		}
		out = append(out, matchedRule{r, c.startDepth(dir)})
	}
	return out
}

// startDepth returns the depth of the directory in which a pattern begins to match, if its last
// element has matched a name in dir. For a pattern with ** in the middle, the result may be wrong.
// That does no harm: no built-in rule whose condition depends on the depth has ** in the middle.
func (c *compiled) startDepth(dir string) int16 { return max(0, depth(dir)-int16(len(c.elems)-1)) }

// depth returns how many names a path has.
func depth(path string) int16 {
	if path == "" {
		return 0
	}
	return int16(strings.Count(path, "/") + 1)
}

// ProtectingRule returns a rule that protects something below a name in the directory, or nil. It
// considers only patterns that have this name as plain text, without wildcards. A link of that name
// would put other files in the place of the protected ones.
func (st *State) ProtectingRule(dir, name string, facts Facts) *Rule {
	if st.barrier.Effect != None {
		return nil
	}
	p, key := st.program, st.program.name(name)
	path := join(dir, name)
	protectingRule := func(it item) *Rule {
		c := p.rules[it.rule]
		e := &c.elems[it.pos]
		if c.List.Effect() != Protect || c.negated() || int(it.pos) == len(c.elems)-1 || e.kind != literal || e.text != key {
			return nil
		}
		h := matchedRule{it.rule, depth(dir) - it.pos}
		if !st.applies(c) || facts != nil && !holds(c.Rule, h, facts, path) {
			return nil
		}
		return c.Rule
	}
	for _, r := range p.literals[key] {
		if rule := protectingRule(item{rule: r}); rule != nil {
			return rule
		}
	}
	for _, it := range st.items {
		if rule := protectingRule(it); rule != nil {
			return rule
		}
	}
	return nil
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// weigh decides between the lists. Without facts all conditions hold.
func (st *State) weigh(chain []matchedRule, facts Facts, path string) Verdict {
	var by [listCount]*Rule
	for i := len(chain) - 1; i >= 0; i-- {
		h := chain[i]
		c := st.program.rules[h.rule]
		// Any other rule of the list overrides a rule that only keeps a name in its place
		// (Fixed).
		undecided := by[c.List] == nil || by[c.List].Fixed && !c.Fixed
		if undecided && st.applies(c) && (facts == nil || holds(c.Rule, h, facts, path)) {
			by[c.List] = c.Rule
		}
	}
	for l, r := range by {
		if r != nil && r.negated() {
			by[l] = nil
		}
	}
	var lifted *Rule
	for _, list := range byStrictness {
		r := by[list]
		switch {
		case r == nil:
		case by[Allow] == nil || !list.liftable():
			return Verdict{Effect: list.Effect(), Rule: r}
		case lifted == nil:
			lifted = r
		}
	}
	if lifted != nil {
		return Verdict{Rule: by[Allow], Lifted: lifted}
	}
	return Verdict{}
}

// byStrictness has the lists in the order in which they decide. Of equally strict lists the owner's
// decides first, after ReservedHide.
var byStrictness = [...]List{ReservedHide, OwnHide, Ignore, BuiltinHide, OwnDeny, OwnProtect, BuiltinProtect}

// applies reports whether a rule applies in the directory: most built-in rules do not apply in the
// directories of the list Except.
func (st *State) applies(c *compiled) bool {
	builtin := c.List == BuiltinHide || c.List == BuiltinProtect
	return !builtin || !st.except || c.Condition.vcs()
}

// noFacts implements Facts so that no condition holds.
type noFacts struct{}

func (noFacts) IsDir(string) bool             { return false }
func (noFacts) IsTop(string) bool             { return false }
func (noFacts) IsBare(string, Condition) bool { return false }
func (noFacts) IsInUserRepo(string) bool      { return true }
func (noFacts) HasTokens(string) bool         { return false }

// holds reports whether the condition of a rule holds for the file at path. h has the depth at
// which the rule's pattern began to match.
func holds(r *Rule, h matchedRule, facts Facts, path string) bool {
	switch r.Condition {
	case AtTop:
		return facts.IsTop(head(path, int(h.depth)))
	case Control:
		return !facts.IsInUserRepo(path)
	case Tokens:
		return facts.HasTokens(path)
	case GitDir, SvnDir:
		return facts.IsBare(head(path, int(h.depth)), r.Condition) && !facts.IsInUserRepo(path)
	}
	return true
}

// head returns the first n names of a path.
func head(path string, n int) string {
	end := 0
	for range n {
		if end > 0 {
			end++
		}
		for end < len(path) && path[end] != '/' {
			end++
		}
	}
	return path[:end]
}
