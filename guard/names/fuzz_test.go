package names

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"testing"
)

// FuzzParseURI checks that each accepted URI yields an absolute, clean path without NUL, and that
// ParseURI reads the FormatURI of this path as the same path (R109, R201, R222).
func FuzzParseURI(f *testing.F) {
	for _, c := range uriCases {
		f.Add(c.uri)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseURI(s)
		if err != nil {
			if p != "" || !errors.Is(err, Invalid) {
				t.Fatalf("ParseURI(%q) = %q, %v; want Invalid and no path", s, p, err)
			}
			checkShown(t, err.Error())
			return
		}
		if !path.IsAbs(p) || path.Clean(p) != p || strings.IndexByte(p, 0) >= 0 {
			t.Fatalf("ParseURI(%q) = %q: not absolute, clean and without NUL", s, p)
		}
		uri := FormatURI(p)
		again, err := ParseURI(uri)
		if err != nil || again != p {
			t.Fatalf("ParseURI(%q) = %q, but its URI %q gives %q, %v", s, p, uri, again, err)
		}
	})
}

// FuzzParsePath checks that each accepted path has clean elements only. Parsing the path's String,
// and joining its elements, must give the same path. Has must distinguish the path from its parent,
// and from a name that begins with the path's last element (R130, R158).
func FuzzParsePath(f *testing.F) {
	for _, s := range []string{
		"", "a", "a/", "a//b/./c/", "..", "a/..", "/a", "a/b\x00", "a/\xff", "a/" + elem255, "a/" + elem255 + "e",
		"-a", "a:b", "front/front-evil", "a/...", "\u202e/x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePath(s)
		if err != nil {
			if p != (Path{}) || !errors.Is(err, Invalid) && !errors.Is(err, TooLong) {
				t.Fatalf("ParsePath(%q) = %q, %v; want Invalid or TooLong and no path", s, p, err)
			}
			checkShown(t, err.Error())
			return
		}
		if _, err := ParseRootName(string(p.Root)); err != nil {
			t.Fatalf("ParsePath(%q) has the root %q: %v", s, p.Root, err)
		}
		if q, err := ParsePath(p.String()); err != nil || q != p {
			t.Fatalf("ParsePath(%q) = %q, which parses to %q, %v", s, p, q, err)
		}
		top, joined := Path{Root: p.Root}, Path{Root: p.Root}
		if !p.IsRoot() {
			for _, e := range strings.Split(p.Rel(), "/") {
				if e == "" || e == "." || e == ".." || len(e) > NameMax || strings.IndexByte(e, 0) >= 0 {
					t.Fatalf("ParsePath(%q) has the element %q", s, e)
				}
				if joined, err = joined.Join(e); err != nil {
					t.Fatal(err)
				}
			}
		}
		if joined != p || !top.Has(p) || !p.Has(p) {
			t.Fatalf("%q: joined %q, top.Has %v, Has itself %v", p, joined, top.Has(p), p.Has(p))
		}
		if dir, base := p.Split(); base != "" {
			sibling, err := dir.Join(base + "-")
			if !dir.Has(p) || p.Has(dir) || err == nil && (p.Has(sibling) || sibling.Has(p)) {
				t.Fatalf("%q: Has confuses it with its parent or with %q", p, sibling)
			}
		}
	})
}

// FuzzQuote checks that a quoted text is one printable line and can be read back, so that
// different inputs have different texts.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{
		"", "plain", "a\nb", `a\nb`, `"`, `\`, `\\"`, "\xff", `\xff`, "\ufffd", "\u202e", `\u{202e}`, "\u200b", "\x00",
		"\x1b[2J", "\u2028", "\xed\xa0\x80", "\U0010ffff", "🙂\u200d", "\u00a0", "a   b", `\{3 spaces}`, "e\u0301\u0301\u0301", "\u0338", "a \u0301",
		"proj\u2800", "\u3164", "\u180b", "\U0001d159", "}\u0744",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := Escape(s)
		checkShown(t, e)
		if own := EscapeQuoted(e); own != e {
			t.Fatalf("EscapeQuoted(%q) = %s", e, own)
		}
		if q := Quote(s); q != `"`+e+`"` {
			t.Fatalf("Quote(%q) = %s, Escape gives %s", s, q, e)
		}
		if back, ok := unescapeShown(e); !ok || back != s {
			t.Fatalf("Escape(%q) = %s, which reads back as %q, %v", s, e, back, ok)
		}
	})
}

// unescapeShown undoes Escape. Escape is injective, because this function undoes it for every
// input. unescapeShown reports false for a text that Escape cannot have made, such as one with
// a bare quotation mark, which would end the quoted text early.
func unescapeShown(s string) (string, bool) {
	var b strings.Builder
	for s != "" {
		switch {
		case s[0] == '"':
			return "", false
		case s[0] != '\\':
			b.WriteByte(s[0])
			s = s[1:]
		case len(s) < 2:
			return "", false
		case s[1] == '\\' || s[1] == '"':
			b.WriteByte(s[1])
			s = s[2:]
		case s[1] == 'n' || s[1] == 't':
			b.WriteByte(map[byte]byte{'n': '\n', 't': '\t'}[s[1]])
			s = s[2:]
		case s[1] == 'x' && len(s) >= 4:
			c, err := strconv.ParseUint(s[2:4], 16, 8)
			if err != nil {
				return "", false
			}
			b.WriteByte(byte(c))
			s = s[4:]
		case strings.HasPrefix(s, `\{`):
			count, rest, ok := strings.Cut(s[2:], " spaces}")
			n, err := strconv.Atoi(count)
			if !ok || err != nil || n < 2 {
				return "", false
			}
			b.WriteString(strings.Repeat(" ", n))
			s = rest
		case strings.HasPrefix(s, `\u{`):
			digits, rest, ok := strings.Cut(s[3:], "}")
			r, err := strconv.ParseUint(digits, 16, 32)
			if !ok || err != nil {
				return "", false
			}
			b.WriteRune(rune(r))
			s = rest
		default:
			return "", false
		}
	}
	return b.String(), true
}
