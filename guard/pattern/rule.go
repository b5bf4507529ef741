package pattern

import (
	"errors"
	"fmt"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Effect is the effect of a rule on the names that it matches. A greater value is stricter.
type Effect uint8

// The effects.
const (
	None    Effect = iota
	Protect        // can be read, but not changed, moved, removed or linked
	Deny           // can be seen, but not opened
	Hide           // seems not to exist
)

func (e Effect) String() string {
	switch e {
	case None:
		return "none"
	case Protect:
		return "protect"
	case Deny:
		return "deny"
	case Hide:
		return "hide"
	}
	return "unknown"
}

// List is a list of rules, in which the last match counts.
type List uint8

// The lists.
const (
	BuiltinHide List = iota
	BuiltinProtect
	Ignore // hidden by a .gitignore
	Allow  // lifts rules of the built-in lists and of Ignore
	OwnHide
	OwnDeny
	OwnProtect
	// Except has directories in which built-in rules do not apply, except for those about
	// version control (see Condition.vcs).
	Except
	// ReservedHide: names that are hidden whatever the owner writes, see rules.TrashName.
	ReservedHide
	listCount
)

// Effect returns the effect of the list's rules.
func (l List) Effect() Effect {
	switch l {
	case BuiltinHide, Ignore, OwnHide, ReservedHide:
		return Hide
	case OwnDeny:
		return Deny
	case BuiltinProtect, OwnProtect:
		return Protect
	}
	return None
}

// String returns the word for the list in messages.
func (l List) String() string {
	if l == Allow {
		return "allow"
	}
	return l.Effect().String()
}

// liftable reports whether Allow lifts the rules of the list.
func (l List) liftable() bool { return l == BuiltinHide || l == BuiltinProtect || l == Ignore }

// Condition restricts a built-in rule. The rule applies only if the condition holds, too.
type Condition uint8

// The conditions.
const (
	Always Condition = iota
	// AtTop: the directory in which the pattern begins to match is the top of a repository
	// (Facts.IsTop), and the root's users did not make the repository.
	AtTop
	// Control: the name does not belong to a repository that the root's users made themselves
	// (Facts.IsInUserRepo).
	Control
	// Tokens: the file holds credentials.
	Tokens
	// GitDir and SvnDir: the directory in which the pattern begins to match is a repository by
	// the names in it (Facts.IsBare), and the root's users did not make the repository.
	GitDir
	SvnDir
)

// vcs reports whether a rule with the condition is one about version control.
func (c Condition) vcs() bool { return c == Control || c == GitDir || c == SvnDir }

// Rule is one pattern and where it comes from.
type Rule struct {
	List List
	Text string // as written, a leading ! included
	// File and Line are where the rule is written. Without a File it comes from the command
	// line or is built in.
	File string
	Line int
	// Base is the directory the pattern is written for, "" for the root.
	Base      string
	Reason    string // why it is built in; of built-in rules only (package builtin)
	Condition Condition
	// NameOnly: the rule is about the matched name only, not about names below it.
	NameOnly bool
	// Creatable: a protected name that is missing may be created (only with NameOnly).
	Creatable bool
	// Fixed: a protected file may be changed and replaced, but neither removed nor moved
	// away (only with NameOnly).
	Fixed bool
}

// negated reports whether the rule takes back earlier ones of its list ("!").
func (r *Rule) negated() bool { return strings.HasPrefix(r.Text, "!") }

// Builtin reports whether the rule is one of the built-in ones.
func (r *Rule) Builtin() bool { return r.Reason != "" }

// The results of Source for a rule that is written in no file.
const (
	BuiltIn     = "built in"
	CommandLine = "command line"
)

// Source returns where the rule comes from: BuiltIn, CommandLine or the rule's file.
func (r *Rule) Source() string {
	switch {
	case r.List == Except, r.Builtin():
		return BuiltIn
	case r.File != "":
		return r.File
	}
	return CommandLine
}

// Limits of patterns.
const (
	MaxLength   = 1024 // bytes
	MaxElements = 64   // names between slashes
	MaxRules    = 20_000
)

// elem is the part of a pattern between two slashes.
type elem struct {
	kind elemKind
	text string
	// Every name that a glob matches begins with its head and ends with its tail. They rule
	// out most names without a matcher.
	head, tail string
	// sticky: any number of directories may come before (`**/`).
	sticky bool
}

type elemKind uint8

const (
	literal elemKind = iota
	suffix           // *text
	prefix           // text*
	anyName          // *
	glob             // text is a doublestar pattern for one name
)

func (e *elem) match(name string) bool {
	switch e.kind {
	case literal:
		return name == e.text
	case suffix:
		return strings.HasSuffix(name, e.text)
	case prefix:
		return strings.HasPrefix(name, e.text)
	case anyName:
		return true
	}
	return len(name) >= len(e.head)+len(e.tail) && strings.HasPrefix(name, e.head) && strings.HasSuffix(name, e.tail) &&
		doublestar.MatchUnvalidated(e.text, name)
}

// compiled is a parsed rule.
type compiled struct {
	*Rule
	elems   []elem
	dirOnly bool
}

// compile parses a rule.
func compile(r *Rule, fold bool) (*compiled, error) {
	text := strings.TrimPrefix(r.Text, "!")
	switch {
	case len(r.Text) > MaxLength:
		return nil, fmt.Errorf("the pattern is longer than %d bytes", MaxLength)
	case strings.ContainsAny(text, "\x00\n"):
		return nil, errors.New("the pattern has a NUL byte or a line break")
	case strings.HasPrefix(r.Text, "#"):
		return nil, errors.New(`the pattern is a comment; write \# for a name that begins with #`)
	}
	c := &compiled{Rule: r}
	if t := strings.TrimSuffix(text, "/"); t != text {
		c.dirOnly, text = true, t
	}
	anchored := strings.Contains(text, "/")
	text = strings.TrimPrefix(text, "/")
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("the pattern names nothing; write a name or a path as in .gitignore")
	}
	elems, err := split(text, !anchored, fold)
	if err != nil {
		return nil, err
	}
	for base := r.Base; base != ""; {
		// From the innermost directory outwards.
		i := strings.LastIndexByte(base, '/')
		elems = append([]elem{{kind: literal, text: foldedName(base[i+1:], fold)}}, elems...)
		base = base[:max(i, 0)]
	}
	c.elems = elems
	return c, nil
}

// split splits a pattern into its names.
func split(text string, floating, fold bool) ([]elem, error) {
	words := strings.Split(text, "/")
	if len(words) > MaxElements {
		return nil, fmt.Errorf("the pattern has more than %d names between slashes", MaxElements)
	}
	if last := len(words) - 1; words[last] == "**" {
		// Match names below the directory, not the directory itself: at least one name.
		words = append(words, "*")
	}
	elems := make([]elem, 0, len(words))
	sticky := floating
	for _, w := range words {
		switch w {
		case "**":
			sticky = true
			continue
		case "":
			return nil, errors.New("the pattern has two slashes in a row")
		case ".", "..":
			return nil, fmt.Errorf("the pattern has the name %q, which no file has", w)
		}
		e, err := parseElem(w, fold)
		if err != nil {
			return nil, err
		}
		e.sticky, sticky = sticky, false
		elems = append(elems, e)
	}
	return elems, nil
}

func folded(s string, fold bool) string {
	if fold {
		return foldText(s)
	}
	return s
}

func foldedName(s string, fold bool) string {
	if fold {
		return Fold(s)
	}
	return s
}

// ParseIgnore reads the rules of a .gitignore. file is its name for messages, base the
// directory it lies in, below the root. As with git, a malformed line is left out.
func ParseIgnore(doc, file, base string) []Rule {
	var out []Rule
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(doc, "\ufeff")) {
		n++
		text := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		text = trimSpaces(text)
		if text == "" || text[0] == '#' {
			continue
		}
		r := Rule{List: Ignore, Text: text, File: file, Line: n, Base: base}
		if _, err := compile(&r, false); err == nil {
			out = append(out, r)
		}
	}
	return out
}

// trimSpaces drops the spaces at the end of a line, except one after a backslash that is not
// escaped itself.
func trimSpaces(s string) string {
	t := strings.TrimRight(s, " ")
	if n := len(t); n < len(s) && strings.HasSuffix(t, `\`) && (n-len(strings.TrimRight(t, `\`)))%2 == 1 {
		return t + " "
	}
	return t
}
