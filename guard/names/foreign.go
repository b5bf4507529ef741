package names

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Foreign is text that was chosen by a server, a client, a host or a cloned repository, and not
// by the person who reads it. Packages fmt and log/slog print it escaped, also in errors, lists
// and exported fields of structs. In JSON it is the text itself. Raw returns the text itself,
// to compare it, to open it or to send it on. The result of Raw must never be printed.
//
// Package fmt does not call the methods of an unexported field of a struct, or of an argument
// with a wrong type for its verb (which go vet reports). Print the parts of such a value
// instead.
type Foreign string

// Raw returns the text unescaped.
func (f Foreign) Raw() string { return string(f) }

// String is the text for a terminal: see Escape.
func (f Foreign) String() string { return Escape(string(f)) }

// Format implements fmt.Formatter: %q is Quote, and every other verb prints String.
func (f Foreign) Format(s fmt.State, verb rune) {
	if verb == 'q' {
		_, _ = io.WriteString(s, Quote(string(f))) // fmt reports an error of the writer
		return
	}
	formatEscaped(s, f.String())
}

// LogValue implements slog.LogValuer: a log shows the result of String.
func (f Foreign) LogValue() slog.Value { return slog.StringValue(f.String()) }

// Text is a sentence of this program in which foreign names are escaped already, by Escape, by
// Quote or because a Foreign was printed. It is printed as it is, except for characters that a
// terminal would obey or not show: see EscapeQuoted. In JSON it is the text itself.
type Text string

// Textf formats like fmt.Sprintf. The caller has to pass each foreign name in args as a Foreign, or
// escaped already.
func Textf(format string, args ...any) Text { return Text(fmt.Sprintf(format, args...)) }

// Raw returns the text itself, without the escapes that String adds.
func (t Text) Raw() string { return string(t) }

// String is the text for a terminal: see EscapeQuoted.
func (t Text) String() string { return EscapeQuoted(string(t)) }

// Format implements fmt.Formatter: every verb prints String, and %q puts quotation marks around
// it.
func (t Text) Format(s fmt.State, verb rune) {
	if verb == 'q' {
		_, _ = io.WriteString(s, `"`+t.String()+`"`) // fmt reports an error of the writer
		return
	}
	formatEscaped(s, t.String())
}

// LogValue implements slog.LogValuer: a log shows the result of String.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

// List converts a list of texts to a list of another type of text.
func List[To, From ~string](list []From) []To {
	if list == nil {
		return nil // which JSON writes as null
	}
	out := make([]To, len(list))
	for i, one := range list {
		out[i] = To(one)
	}
	return out
}

// Join joins texts, each as fmt prints it.
func Join[S interface{ Foreign | Text }](list []S, sep string) string {
	out := make([]string, len(list))
	for i, one := range list {
		out[i] = fmt.Sprint(one)
	}
	return EscapeQuoted(strings.Join(out, sep))
}

// formatEscaped prints an escaped text, with the width and the precision of s.
func formatEscaped(s fmt.State, escaped string) {
	_, _ = fmt.Fprintf(s, fmt.FormatString(s, 's'), escaped)
}

// JSON replaces characters in the strings of a JSON text by \u escapes, which mean the same.
// It does so for characters that a terminal would obey or not show: DEL, the controls U+0080 to
// U+009F, and bidirectional, invisible and blank characters. (encoding/json has escaped the
// controls below U+0020 already.)
func JSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r < 0x7f || showable(r):
			out = append(out, text[:n]...)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
		text = text[n:]
	}
	return out
}

// Message is Escape for a text of foreign origin that may be long, such as a reason. It is
// cut after 500 characters, and then ends with the number of further characters.
func Message[S ~string](text S) string {
	s := string(text)
	count := 0
	for at := range s {
		if count++; count > maxReason {
			return fmt.Sprintf("%s… (%d characters more)", Escape(s[:at]), utf8.RuneCountInString(s[at:]))
		}
	}
	return Escape(s)
}

// Fold breaks an escaped line into parts that fit a terminal of the given width in columns, so that
// the terminal breaks none of them. A terminal that is too narrow counts as one with room for 20
// columns of text. The first part begins with indent, each further part with indent and a bar
// (foldMark). So no part of a hostile line can look like a line of rootsfs.
func Fold(line, indent string, columns int) string {
	var b strings.Builder
	b.WriteString(indent)
	room := max(columns-Columns(indent)-len(foldMark)-1, 20) // the last column stays free
	width := 0
	for _, word := range strings.SplitAfter(line, " ") {
		fits := width+Columns(word) <= room || Columns(word) > room // too long for any line
		for _, r := range word {
			w := Columns(string(r))
			if !fits || width+w > room {
				b.WriteString("\n" + indent + foldMark)
				fits, width = true, 0
			}
			b.WriteRune(r)
			width += w
		}
	}
	return b.String()
}

// foldMark begins each further line of Fold.
const foldMark = "  | "

// Columns returns the most columns of a terminal that a shown text can take: characters beyond
// Latin may be wide.
func Columns(s string) (n int) {
	for _, r := range s {
		n++
		if r >= 0x300 {
			n++
		}
	}
	return n
}

// SafeName turns a foreign name into one that no shell, terminal or reader takes for something
// else. It consists of ASCII letters, digits, ".", "_" and "-", is not empty, and does not
// begin with "." or "-". Several names may become the same: a caller that must distinguish them
// has to number them, and to show their meanings.
func SafeName[S ~string](foreign S) string {
	var b strings.Builder
	for _, r := range string(foreign) {
		if safe(r) && r != '-' {
			b.WriteRune(r)
		} else if !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	name := strings.TrimSuffix(strings.TrimLeft(b.String(), ".-"), "-")
	if name == "" {
		return "root"
	}
	return name[:min(len(name), MaxRootName)]
}

// safe reports whether no shell gives a character a meaning, and no reader takes it for
// another one.
func safe(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("._-", r)
}

// IsShellWord reports whether a word can stand in a command line of bash, zsh, fish and
// PowerShell as it is. Besides the characters of SafeName it may have "/", ":", "+", letters
// and digits of other scripts, and, except in the first place, "=" and "@".
func IsShellWord(s string) bool {
	for i, r := range s {
		other := r >= utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) && showable(r)
		if !safe(r) && !other && !strings.ContainsRune("/:+", r) && (r != '=' && r != '@' || i == 0) {
			return false
		}
	}
	return s != ""
}

// maxSpaced is the length up to which ShellWord shows a text with spaces as it is.
const maxSpaced = 40

// ShellWord returns a word for a command that is shown to be copied: sh, bash, zsh and fish
// read it as exactly the text. If the text cannot be shown, has a double quotation mark (which
// would end a quoted text), or is long and has spaces, the word is a call of printf. The word is
// an empty quoted text if no argument can be the text (a NUL byte), or if no call of printf can
// return the text (a line break at the end).
func ShellWord[S ~string](text S) string {
	s := string(text)
	var b strings.Builder
	switch {
	case IsShellWord(strings.ReplaceAll(s, ",", "")): // a comma has a meaning in PowerShell alone
		return s
	case s == "" || strings.IndexByte(s, 0) >= 0 || strings.HasSuffix(s, "\n"):
		return "''"
	case !Shows(s), strings.Contains(s, `"`), len(s) > maxSpaced && strings.Contains(s, " "): // a terminal could break it, so that a row begins with one of its words
		for _, c := range []byte(s) {
			if safe(rune(c)) && c != '-' || c == '/' || c == ':' {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		}
		return `"$(printf '` + b.String() + `')"`
	}
	// Inside single quotes, \ has a meaning for fish, and none for the other shells. So \ and '
	// are put outside of the quotes.
	for s != "" {
		n := strings.IndexAny(s, `'\`)
		if n < 0 {
			n = len(s)
		}
		if n > 0 {
			b.WriteString("'" + s[:n] + "'")
		}
		if s = s[n:]; s != "" {
			b.WriteString(`\` + s[:1])
			s = s[1:]
		}
	}
	return b.String()
}
