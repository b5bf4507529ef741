package rules

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// Pattern is one pattern of a policy, written as in .gitignore (package pattern), and the
// line that it comes from. Without a File it comes from the command line.
type Pattern struct {
	Text names.Foreign `json:"text"`
	File names.Foreign `json:"file,omitempty"`
	Line int           `json:"line,omitempty"`
}

// Negated reports whether the pattern takes back earlier ones of its list ("!").
func (p Pattern) Negated() bool { return strings.HasPrefix(p.Text.Raw(), "!") }

// Texts makes patterns that come from no file.
func Texts(texts ...string) []Pattern {
	out := make([]Pattern, len(texts))
	for i, t := range texts {
		out[i].Text = names.Foreign(t)
	}
	return out
}

// Patterns are the part of a policy that is about names. The zero value has only the built-in
// protections (package builtin). A single-file root has no patterns: its owner has named the
// one file.
//
// A file is judged by the name it is reached by. A file to which the host gave a second name
// that no pattern matches can be reached by that name.
type Patterns struct {
	Deny    []Pattern `json:"deny,omitempty"`    // visible, refused
	Hide    []Pattern `json:"hide,omitempty"`    // as if absent
	Protect []Pattern `json:"protect,omitempty"` // readable, never changed
	// Allow lifts the built-in protections, and the rules of .gitignore files, for the names
	// that it matches and for everything below them.
	Allow []Pattern `json:"allow,omitempty"`
	// Gitignore hides the names that the .gitignore files of the root match. The files are read
	// only when the patterns are compiled (Policy.Compile): a program that may write in the root
	// could change them later.
	Gitignore bool `json:"respect_gitignore,omitempty"`
	// NoDefaults turns the built-in protections off.
	NoDefaults bool `json:"no_default_policy,omitempty"`
}

// MaxPatterns bounds each list of a policy.
const MaxPatterns = 1000

// LiftedText returns a few words about the built-in protections that are lifted, "" if none are.
func (p *Patterns) LiftedText() string {
	if p.NoDefaults {
		return "all built-in protections are off"
	}
	if len(p.Allow) == 0 {
		return ""
	}
	texts := make([]string, len(p.Allow))
	for i, a := range p.Allow {
		texts[i] = names.Quote(a.Text)
	}
	return "built-in protections lifted for " + strings.Join(texts, ", ")
}

// Summary counts the patterns.
func (p *Patterns) Summary() string {
	text := fmt.Sprintf("%d deny, %d hide, %d protect, %d allow", len(p.Deny), len(p.Hide), len(p.Protect), len(p.Allow))
	if p.Gitignore {
		text += ", .gitignore"
	}
	return text
}

// own returns the owner's rules.
func (p *Patterns) own() ([]pattern.Rule, error) {
	var out []pattern.Rule
	for _, l := range []struct {
		key  string
		list pattern.List
		from []Pattern
	}{
		{"allow", pattern.Allow, p.Allow}, {"hide", pattern.OwnHide, p.Hide},
		{"deny", pattern.OwnDeny, p.Deny}, {"protect", pattern.OwnProtect, p.Protect},
	} {
		if len(l.from) > MaxPatterns {
			return nil, &names.Error{Kind: names.Invalid, Err: fmt.Errorf("%s has %d patterns, more than the limit of %d", l.key, len(l.from), MaxPatterns)}
		}
		for _, f := range l.from {
			out = append(out, pattern.Rule{List: l.list, Text: f.Text.Raw(), File: f.File.Raw(), Line: f.Line})
		}
	}
	return out, nil
}

// Check returns an error if the patterns have a mistake. It does not look at any file.
func (p *Patterns) Check() error {
	_, err := p.Preview()
	return err
}

// Preview compiles the patterns for a tree that is no root yet. The result has the built-in
// protections unless NoDefaults turns them off, compares names exactly, and has no rules of
// .gitignore files. If the result is asked without pattern.Facts, a rule with a condition about
// files applies as if the condition held.
func (p *Patterns) Preview() (*pattern.Set, error) {
	own, err := p.own()
	if err != nil {
		return nil, err
	}
	var all []pattern.Rule
	if !p.NoDefaults {
		all = builtin.Rules()
	}
	return compileRules(append(all, own...), pattern.Options{})
}

// compileRules is pattern.New. Its error is a *names.Error of the kind Invalid.
func compileRules(rules []pattern.Rule, opt pattern.Options) (*pattern.Set, error) {
	set, err := pattern.New(rules, opt)
	if err != nil {
		return nil, &names.Error{Kind: names.Invalid, Err: err}
	}
	return set, nil
}

// Compile compiles the patterns of the policy for the files of a root, which src describes. Rules
// then returns the result. Compile may block if src does.
func (p *Policy) Compile(src Tree) (err error) {
	p.rules, err = p.compile(src)
	return err
}

// ReplacePatterns replaces the patterns, and their compiled form, by those of another policy. That
// policy has to be compiled for the same root.
func (p *Policy) ReplacePatterns(compiled *Policy) {
	p.Patterns, p.rules = compiled.Patterns, compiled.rules
}

// Rules returns the compiled patterns; nil: no name is judged.
func (p *Policy) Rules() *RuleSet { return p.rules }

// defaults returns the rules of each root with the defaults. All roots share them: an append to the
// result makes a copy.
var defaults = sync.OnceValue(func() []pattern.Rule {
	return slices.Clip(append(builtin.Rules(), builtin.Reserved(TrashName)...))
})

func (p *Policy) compile(src Tree) (*RuleSet, error) {
	own, err := p.own()
	if err != nil || src.File() != "" { // a single file has no patterns
		return nil, err
	}
	naming := src.Naming()
	if p.OtherFileSystems {
		naming = max(naming, FoldedNames) // a file system mounted inside may fold names
	}
	opt := pattern.Options{Fold: naming >= FoldedNames}
	var all []pattern.Rule
	switch {
	case !p.NoDefaults:
		all = defaults()
	case p.Trash.On:
		all = builtin.Reserved(TrashName)
	}
	if p.Gitignore {
		ignores, err := readIgnores(src, opt)
		if err != nil {
			return nil, adviseIgnores(err)
		}
		all = append(all, ignores...)
	}
	all = append(all, own...)
	if len(all) == 0 {
		return nil, nil
	}
	r := &RuleSet{naming: naming, hides: slices.ContainsFunc(all, func(r pattern.Rule) bool { return r.List.Effect() == pattern.Hide })}
	if r.set, err = compileRules(all, opt); err == nil && naming == MixedNames {
		r.folded, err = compileRules(all, pattern.Options{Fold: true})
	}
	for i := 0; r.folded != nil && i < len(all); i++ {
		r.noteCapitals(Join(all[i].Base, strings.TrimPrefix(all[i].Text, "!")))
	}
	if err != nil && p.Gitignore {
		err = adviseIgnores(err)
	}
	return r, err
}

// adviseIgnores adds advice to the error of a root whose .gitignore files cannot be used. The
// root is refused, because without these files less would be hidden than was asked for. A program
// that writes into the root could bring that about, by making the files unusable.
func adviseIgnores(err error) error {
	return fmt.Errorf("%w; shorten or remove it, or leave --respect-gitignore out and name what is hidden with --hide", err)
}

// RuleSet is the compiled form of Patterns.
type RuleSet struct {
	naming Naming
	hides  bool // some rule hides names
	set    *pattern.Set
	folded *pattern.Set // with MixedNames: for directories that fold names; else nil
	// initials marks the first letters of plain names (pattern.Plain) to which a rule may apply in
	// folded alone, because the rule has capital letters or characters beyond ASCII. To plain names
	// and directories with any other first letter, folded and set apply alike.
	initials [256]bool
}

// Rules returns the rules, in the order in which they are judged.
func (r *RuleSet) Rules() []*pattern.Rule { return r.set.Rules() }

// Hides reports whether some rule hides names.
func (r *RuleSet) Hides() bool { return r.hides }

// Naming says which spellings the root takes for one name.
func (r *RuleSet) Naming() Naming { return r.naming }

// barrier returns the verdict that keeps operations out of a directory. Its Effect is None if there
// is no such verdict.
func (r *RuleSet) barrier(f *RootFacts, rel string) pattern.Verdict {
	v := r.set.At(rel).Barrier()
	if r.mayFold(rel, "") {
		if w := r.folded.At(rel).Barrier(); w.Effect > v.Effect && f.foldsAt(rel) {
			return w
		}
	}
	return v
}

// judge returns the verdict of the rules on a name. f answers the rules' questions about files. root
// says which directories fold names.
func (r *RuleSet) judge(root *RootFacts, f pattern.Facts, dir, name string, t pattern.Type) pattern.Verdict {
	v := r.set.At(dir).Judge(dir, name, t, f)
	if r.mayFold(dir, name) {
		if w := r.folded.At(dir).Judge(dir, name, t, f); w.Effect > v.Effect && root.foldsAt(dir) {
			return w
		}
	}
	return v
}

// noteCapitals adds the first letters of a pattern's path elements to initials, if the pattern is not
// plain.
func (r *RuleSet) noteCapitals(text string) {
	if pattern.Plain(text) {
		return
	}
	for elem := range strings.SplitSeq(text, "/") {
		switch {
		case elem == "" || elem == "**":
		case strings.ContainsAny(elem[:1], `*?[{\`) || elem[0] >= utf8.RuneSelf: // it may match any letter
			for i := range r.initials {
				r.initials[i] = true
			}
		default:
			r.initials[strings.ToLower(elem[:1])[0]] = true
		}
	}
}

// mayFold reports whether the verdict on a name in the directory dir may be another one if dir folds
// names.
func (r *RuleSet) mayFold(dir, name string) bool {
	if r.folded == nil {
		return false
	}
	if !pattern.Plain(name) || !pattern.Plain(dir) || name != "" && r.initials[name[0]] {
		return true
	}
	for i := range len(dir) {
		if (i == 0 || dir[i-1] == '/') && r.initials[dir[i]] {
			return true
		}
	}
	return false
}

// silent reports whether no rule is about a name.
func (r *RuleSet) silent(dir, name string) bool {
	return r.set.At(dir).Silent(name) && (!r.mayFold(dir, name) || r.folded.At(dir).Silent(name))
}

// readIgnores reads the .gitignore files of a source. As git does, it does not
// look into directories that are ignored.
func readIgnores(src Tree, opt pattern.Options) ([]pattern.Rule, error) {
	var rules []pattern.Rule
	set, err := pattern.New(nil, opt)
	if err != nil {
		return nil, err
	}
	added := false
	addFile := func(f Ignore) {
		rules, added = append(rules, parseIgnore(f)...), true
	}
	enter := func(dir string) bool {
		if added {
			// If the rules cannot be compiled, the final compilation returns the error.
			if next, err := pattern.New(rules, opt); err == nil {
				set = next
			}
			added = false
		}
		up, name := Split(dir)
		return name != ".git" && set.At(up).Judge(up, name, pattern.Dir, nil).Effect == pattern.None
	}
	if err := src.Ignores(addFile, enter); err != nil {
		return nil, err
	}
	return rules, nil
}

func parseIgnore(f Ignore) []pattern.Rule {
	file := ".gitignore"
	if f.Dir != "" {
		file = f.Dir + "/" + file
	}
	return pattern.ParseIgnore(f.Text, file, f.Dir)
}

// WiderThan reports whether the patterns may allow something that old did not.
func (p *Patterns) WiderThan(old Patterns) bool { return old.allowsLess(p) }

// allowsLess reports whether other may allow something that p does not. Further patterns in the
// lists Deny, Hide and Protect of other allow nothing more, unless they begin with "!".
func (p *Patterns) allowsLess(other *Patterns) bool {
	switch {
	case other.NoDefaults && !p.NoDefaults, p.Gitignore && !other.Gitignore:
		return true
	case matchesLess(p.Deny, other.Deny), matchesLess(p.Hide, other.Hide), matchesLess(p.Protect, other.Protect):
		return true
	}
	return !liftsNoMore(other.Allow, p.Allow)
}

// matchesLess reports whether the list given may match less than the list asked. It reports false if
// given has all patterns of asked, in the same order, and besides them only patterns that do not
// begin with "!".
func matchesLess(asked, given []Pattern) bool {
	for _, g := range given {
		if len(asked) > 0 && asked[0].Text == g.Text {
			asked = asked[1:]
		} else if g.Negated() {
			return true
		}
	}
	return len(asked) > 0
}

// liftsNoMore compares two lists for Patterns.Allow. It reports whether given lifts no more
// than asked.
func liftsNoMore(given, asked []Pattern) bool {
	text := func(p Pattern) string { return p.Text.Raw() }
	if slices.ContainsFunc(append(slices.Clone(given), asked...), Pattern.Negated) {
		return slices.EqualFunc(given, asked, func(a, b Pattern) bool { return text(a) == text(b) })
	}
	return !slices.ContainsFunc(given, func(g Pattern) bool {
		return !slices.ContainsFunc(asked, func(a Pattern) bool { return a.Text == g.Text })
	})
}
