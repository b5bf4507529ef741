package names

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxQuoted = 200  // bytes that QuoteShort shows, before escaping
	maxBrief  = 2048 // bytes of a text that Brief keeps
	maxReason = 500  // characters that Message shows
	maxMarks  = 2    // combining marks that are shown on one character
)

// Quote makes untrusted text safe to show on one line: it returns Escape of the text in double
// quotes. A file name that is shown in this way can neither forge a line, nor reverse the direction
// of the text, nor have invisible characters.
func Quote[S ~string](s S) string { return `"` + Escape(s) + `"` }

// QuoteShort is Quote for a text of a peer that may be long: QuoteShort quotes at most the first
// maxQuoted bytes, and adds "…" if the text is longer. QuoteShort is for errors, which must not be
// as long as the request.
func QuoteShort[S ~string](s S) string {
	if len(s) <= maxQuoted {
		return Quote(s)
	}
	return Quote(beginning(string(s), maxQuoted)) + "…"
}

// Brief returns a text, or at most the first maxBrief bytes of a longer one with "…" after them.
func Brief(text string) string {
	if len(text) <= maxBrief {
		return text
	}
	return beginning(text, maxBrief) + "…"
}

// beginning returns at most the first n bytes of s, and cuts no character in two. s must be longer
// than n bytes.
func beginning(s string, n int) string {
	end := n
	for end > n-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// Escape makes text of foreign origin safe to show on one line of a terminal. These become
// escapes:
//   - control characters, bidirectional controls, and separators other than the space
//   - private-use and unassigned characters
//   - characters that are invisible or blank
//   - bytes that are not UTF-8, and U+FFFD, which other programs show for such bytes
//   - combining marks with no character before them, and the marks after the second one on a
//     character
//   - runs of spaces, with their number: \{3 spaces}
//   - backslashes and double quotation marks, so that no text looks like the escapes of another
func Escape[S ~string](s S) string { return escape(string(s), true) }

// EscapeQuoted is Escape for a text of this program, in which foreign names have been quoted
// already: backslashes and quotation marks stay as they are.
func EscapeQuoted[S ~string](s S) string { return escape(string(s), false) }

// Shows reports whether a text is UTF-8 of which a person sees every character, so that
// Escape changes at most backslashes and quotation marks.
func Shows[S ~string](s S) bool { return EscapeQuoted(s) == string(s) }

// escape is Escape, or EscapeQuoted if foreign is false.
func escape(s string, foreign bool) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	// marks is how many combining marks the last character has. At the beginning, and after an
	// escape, a space or a quotation mark, it is maxMarks, so that no mark is shown.
	marks := maxMarks
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		spaces := len(s[i:]) - len(strings.TrimLeft(s[i:], " "))
		mark, before := unicode.Is(unicode.M, r), marks
		marks = maxMarks
		switch {
		case spaces > 1:
			n = spaces
			b.WriteString(`\{` + strconv.Itoa(n) + ` spaces}`)
		case r == utf8.RuneError && n == 1:
			const hex = "0123456789abcdef"
			b.Write([]byte{'\\', 'x', hex[s[i]>>4], hex[s[i]&15]})
		case r == '\\' || r == '"':
			if foreign {
				b.WriteByte('\\')
			}
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case !showable(r) || mark && before >= maxMarks:
			b.WriteString(`\u{` + strconv.FormatInt(int64(r), 16) + `}`)
		default:
			b.WriteString(s[i : i+n])
			if mark {
				marks = before + 1
			} else if r != ' ' {
				marks = 0
			}
		}
		i += n
	}
	return b.String()
}

// plain reports whether a text has only printable ASCII that Escape does not change.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\\' || c == '"' || c == ' ' && i > 0 && s[i-1] == ' ' {
			return false
		}
	}
	return true
}

// blank has characters that look blank, although Unicode puts them in no class of blank
// characters: one each of Braille, Khitan small script and music.
const blank = "\u2800\U00016fe4\U0001d159"

// showable reports whether a person sees the character. Not showable are control, private-use and
// unassigned characters; separators other than the space; format characters (category Cf, with the
// bidirectional controls and zero-width characters); characters that fonts leave out
// (default-ignorable: fillers, variation selectors); blank ones; and U+FFFD.
func showable(r rune) bool {
	return r == ' ' || unicode.IsPrint(r) && r != utf8.RuneError && !strings.ContainsRune(blank, r) &&
		!unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
