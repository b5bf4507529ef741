package pattern

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// parseElem compiles one name of a pattern. Most names are plain text, or have one star
// at the beginning or the end, and are compared without a matcher.
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
	e := elem{kind: glob, text: text}
	e.head, e.tail = ends(text)
	return e, nil
}

var errBad = errors.New(`the pattern has a [ without ], an unknown [:class:] or a \ at its end; write \[ or \\ for the character itself`)

// unescape returns the text that a name without wildcards matches. plain is false if the
// name has wildcards, or ends in a single backslash.
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

// classes are the POSIX character classes of .gitignore. They hold ASCII characters only,
// as in git.
var classes = map[string]string{
	"alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": " \t", "cntrl": "\x01-\x1f\x7f", "digit": "0-9",
	"graph": "!-~", "lower": "a-z", "print": " -~", "punct": `!-.:-@\[-` + "`{-~", "space": " \t-\r", "upper": "A-Z",
	"xdigit": "0-9A-Fa-f",
}

// translate turns a name of a .gitignore pattern into a doublestar pattern. It escapes
// braces, which .gitignore takes literally. In [ ] it escapes a leading ] or -, and replaces
// the POSIX classes, which doublestar does not know, by their characters.
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
			n, err := translateClass(&b, w[i:])
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

// translateClass translates the bracket expression that w begins with, and returns its
// length in w.
func translateClass(b *strings.Builder, w string) (n int, err error) {
	b.WriteByte('[')
	i := 1
	if i < len(w) && (w[i] == '!' || w[i] == '^') {
		b.WriteByte('^')
		i++
	}
	from := b.Len()
	for first := true; i < len(w); first = false {
		switch c := w[i]; {
		case c == ']' && !first:
			if lo, hi, ok := reversedRange(b.String()[from:]); ok {
				return 0, fmt.Errorf("the pattern has the range %c-%c, which no character is in: write %c-%c", lo, hi, hi, lo)
			}
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

// reversedRange returns the first range, such as z-a, whose end is below its beginning.
// chars is the translated text between [ and ].
func reversedRange(chars string) (lo, hi rune, ok bool) {
	next := func() rune {
		chars = strings.TrimPrefix(chars, `\`)
		r, n := utf8.DecodeRuneInString(chars)
		chars = chars[n:]
		return r
	}
	for chars != "" {
		lo = next()
		if len(chars) > 1 && chars[0] == '-' {
			chars = chars[1:]
			if hi = next(); hi < lo {
				return lo, hi, true
			}
		}
	}
	return 0, 0, false
}

// ends returns the literal text at the beginning and at the end of a doublestar pattern:
// every name that matches begins with head and ends with tail. U+FFFD is not taken as
// literal text, because it also matches bytes that are not UTF-8.
func ends(text string) (head, tail string) {
	if first := strings.IndexAny(text, `*?[\`); first >= 0 {
		head, tail = text[:first], text[strings.LastIndexAny(text, `*?]\`)+1:]
	}
	if i := strings.IndexRune(head, utf8.RuneError); i >= 0 {
		head = head[:i]
	}
	if i := strings.LastIndex(tail, string(utf8.RuneError)); i >= 0 {
		tail = tail[i+len(string(utf8.RuneError)):]
	}
	return head, tail
}
