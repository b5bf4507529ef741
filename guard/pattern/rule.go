package pattern

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// Effect is what a rule does to the names it matches, the strictest last.
type Effect uint8

// The effects.
const (
	None    Effect = iota
	Protect        // can be read, never changed, moved, removed or linked
	Deny           // can be seen, not opened
	Hide           // is not there
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
	Allow  // takes the built-in lists and Ignore back
	OwnHide
	OwnDeny
	OwnProtect
	// Except are directories in which the built-in lists do not hold, but for
	// the rules with the condition Control.
	Except
	// ReservedHide: names that are hidden whatever the owner writes, see package guard.
	ReservedHide
	lists
)

// Effect is what the rules of the list do.
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

// liftable reports whether Allow takes the list back.
func (l List) liftable() bool { return l == BuiltinHide || l == BuiltinProtect || l == Ignore }

// Condition is what has to hold, besides the match, for a built-in rule.
type Condition uint8

// The conditions.
const (
	Always Condition = iota
	// AtTop: the matched name lies in the top directory of a repository.
	AtTop
	// Control: the name belongs to a repository that the root's users did not
	// make themselves.
	Control
	// Tokens: the file holds credentials.
	Tokens
)

// Rule is one pattern and where it comes from.
type Rule struct {
	List List
	Text string // as written, a leading ! included
	// File and Line are where it stands; no File: the command line, or the
	// list that is built in.
	File string
	Line int
	// Base is the directory the pattern is written for, "" for the root.
	Base      string
	Reason    string // why it is built in
	Condition Condition
	// Self: the match says nothing of what lies below.
	Self bool
}

// Negated reports whether the rule takes back others of its list.
func (r *Rule) Negated() bool { return strings.HasPrefix(r.Text, "!") }

// Builtin reports whether the rule is one of the built-in ones.
func (r *Rule) Builtin() bool { return r.Reason != "" }

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
	return doublestar.MatchUnvalidated(e.text, name)
}

// compiled is a rule taken apart.
type compiled struct {
	*Rule
	elems   []elem
	dirOnly bool
}

// Check reports what is wrong with a pattern, nil if nothing is.
func Check(text string) error {
	_, err := compile(&Rule{Text: text}, false)
	return err
}

// compile takes a rule apart.
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

// split takes the names of a pattern apart.
func split(text string, floating, fold bool) ([]elem, error) {
	words := strings.Split(text, "/")
	if len(words) > MaxElements {
		return nil, fmt.Errorf("the pattern has more than %d names between slashes", MaxElements)
	}
	if last := len(words) - 1; words[last] == "**" {
		// What lies below, not the directory itself: at least one name.
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

// parseElem compiles one name of a pattern; most are plain text, or have one star
// at an end, and need no matcher.
func parseElem(w string, fold bool) (elem, error) {
	if !utf8.ValidString(w) && strings.ContainsAny(w, `*?[`) {
		return elem{}, errors.New("the pattern is not UTF-8, which only a plain name may be")
	}
	if text, plain := unescape(w); plain {
		return elem{kind: literal, text: foldedName(text, fold)}, nil
	}
	for strings.Contains(w, "**") {
		w = strings.ReplaceAll(w, "**", "*")
	}
	if w == "*" {
		return elem{kind: anyName}, nil
	}
	if text, plain := unescape(w[1:]); plain && w[0] == '*' {
		return elem{kind: suffix, text: folded(text, fold)}, nil
	}
	if head := w[:len(w)-1]; w[len(w)-1] == '*' && !strings.HasSuffix(head, `\`) {
		if text, plain := unescape(head); plain {
			return elem{kind: prefix, text: folded(text, fold)}, nil
		}
	}
	text, err := translate(w)
	if err != nil {
		return elem{}, err
	}
	text = folded(text, fold)
	if !doublestar.ValidatePattern(text) {
		return elem{}, errBad
	}
	return elem{kind: glob, text: text}, nil
}

var errBad = errors.New(`the pattern is not one of .gitignore: look at its [ ] and \`)

// unescape returns the text that a part without wildcards stands for.
func unescape(w string) (text string, plain bool) {
	if !strings.ContainsAny(w, `*?[\`) {
		return w, true
	}
	var b strings.Builder
	for i := 0; i < len(w); i++ {
		switch w[i] {
		case '*', '?', '[':
			return "", false
		case '\\':
			if i++; i == len(w) {
				return "", false
			}
		}
		b.WriteByte(w[i])
	}
	return b.String(), true
}

// classes are the POSIX classes of characters that .gitignore knows, in ASCII, as
// git has them.
var classes = map[string]string{
	"alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": " \t", "cntrl": "\x01-\x1f\x7f", "digit": "0-9",
	"graph": "!-~", "lower": "a-z", "print": " -~", "punct": `!-.:-@\[-` + "`{-~", "space": " \t-\r", "upper": "A-Z",
	"xdigit": "0-9A-Fa-f",
}

// translate writes a name of .gitignore for doublestar: braces mean themselves,
// and in [ ] a leading ] and the POSIX classes are spelled out.
func translate(w string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(w); i++ {
		switch c := w[i]; c {
		case '{', '}':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\\':
			if i+1 == len(w) {
				return "", errBad
			}
			i++
			b.WriteByte('\\')
			b.WriteByte(w[i])
		case '[':
			n, err := class(&b, w[i:])
			if err != nil {
				return "", err
			}
			i += n - 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

// class translates the [ ] that w begins with and returns its length.
func class(b *strings.Builder, w string) (n int, err error) {
	b.WriteByte('[')
	i := 1
	if i < len(w) && (w[i] == '!' || w[i] == '^') {
		b.WriteByte('^')
		i++
	}
	for first := true; i < len(w); first = false {
		switch c := w[i]; {
		case c == ']' && !first:
			b.WriteByte(']')
			return i + 1, nil
		case c == ']' || c == '-' && first:
			b.WriteByte('\\')
			b.WriteByte(c)
			i++
		case strings.HasPrefix(w[i:], "[:"):
			name, _, ok := strings.Cut(w[i+2:], ":]")
			chars, known := classes[name]
			if !ok || !known {
				return 0, errBad
			}
			if first && chars[0] == '!' {
				b.WriteByte('\\') // else it would negate
			}
			b.WriteString(chars)
			i += len(name) + 4
		case c == '\\':
			if i+1 == len(w) {
				return 0, errBad
			}
			b.WriteString(w[i : i+2])
			i += 2
		default:
			b.WriteByte(c)
			i++
		}
	}
	return 0, errBad
}
