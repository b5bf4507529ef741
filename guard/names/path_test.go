package names

import (
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var (
	name128 = strings.Repeat("r", MaxRootName)
	elem255 = strings.Repeat("e", NameMax)
)

// R130, R109: ParsePath refuses NUL, names that are too long, "..", and a root's name that is not
// UTF-8. It drops "." elements below the root.
func TestParsePath_R130_R109(t *testing.T) {
	for _, c := range []struct {
		name, in  string
		root, rel string
		kind      Kind // Other: accepted
	}{
		{"root", "a", "a", "", Other},
		{"root with a slash", "a/", "a", "", Other},
		{"root with a dot", "a/.", "a", "", Other},
		{"file", "a/b", "a", "b", Other},
		{"untidy", "a//b/./c/", "a", "b/c", Other},
		{"only slashes and dots", "a//././/", "a", "", Other},
		{"space inside", "my root/my file", "my root", "my file", Other},
		{"name not UTF-8", "a/\xff\xfe", "a", "\xff\xfe", Other},
		{"newline in a name", "a/x\ny", "a", "x\ny", Other},
		{"backslash", `a/b\..\c`, "a", `b\..\c`, Other},
		{"three dots", "a/...", "a", "...", Other},
		{"dot file", "a/.git/config", "a", ".git/config", Other},
		{"percent is no escape here", "a/%2e%2e/b", "a", "%2e%2e/b", Other},
		{"element of 255 bytes", "a/" + elem255 + "/b", "a", elem255 + "/b", Other},
		{"element of 256 bytes", "a/b/" + elem255 + "e", "", "", TooLong},
		{"255 bytes, not 255 runes", "a/" + strings.Repeat("ä", 128), "", "", TooLong},
		{"longer than PATH_MAX", "a" + strings.Repeat("/"+elem255, 40), "a",
			strings.TrimPrefix(strings.Repeat("/"+elem255, 40), "/"), Other},
		{"root of 128 bytes", name128 + "/b", name128, "b", Other},
		{"root of 129 bytes", name128 + "r/b", "", "", TooLong},

		{"empty", "", "", "", Invalid},
		{"absolute", "/a/b", "", "", Invalid},
		{"slash", "/", "", "", Invalid},
		{"..", "..", "", "", Invalid},
		{".", ".", "", "", Invalid},
		{".. as root", "../a", "", "", Invalid},
		{". as root", "./a", "", "", Invalid},
		{".. inside", "a/b/../c", "", "", Invalid},
		{".. at the end", "a/..", "", "", Invalid},
		{".. after a slash", "a//../b", "", "", Invalid},
		{"NUL in a name", "a/b\x00c", "", "", Invalid},
		{"NUL in the root", "a\x00/b", "", "", Invalid},
		{"URI", "file:///a", "", "", Invalid},
		{"root not UTF-8", "\xff/b", "", "", Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := ParsePath(c.in)
			if c.kind != Other {
				if p != (Path{}) || !errors.Is(err, c.kind) {
					t.Fatalf("ParsePath(%q) = %q, %v; want %v", c.in, p, err, c.kind)
				}
				if code := Reason(err).Code(); code != InvalidPath { // R051
					t.Errorf("code %s, want %s", code, InvalidPath)
				}
				checkShown(t, err.Error())
				return
			}
			if err != nil || string(p.Root) != c.root || p.Rel() != c.rel {
				t.Fatalf("ParsePath(%q) = %q + %q, %v; want %q + %q", c.in, p.Root, p.Rel(), err, c.root, c.rel)
			}
			if p.IsRoot() != (c.rel == "") {
				t.Errorf("IsRoot() = %v for %q", p.IsRoot(), p)
			}
			want := c.root
			if c.rel != "" {
				want += "/" + c.rel
			}
			if p.String() != want {
				t.Errorf("String() = %q, want %q", p, want)
			}
		})
	}
}

func TestParseRootName(t *testing.T) {
	for _, c := range []struct {
		in   string
		kind Kind // Other: accepted
	}{
		{"project", Other}, {"a b", Other}, {"日本", Other}, {"a-b", Other}, {".git", Other}, {"...", Other},
		{name128, Other}, {name128 + "r", TooLong},
		{"", Invalid}, {".", Invalid}, {"..", Invalid}, {"-x", Invalid}, {" a", Invalid}, {"a ", Invalid},
		{"\u3000a", Invalid}, {"a\u00a0", Invalid},
		{"a/b", Invalid}, {"a:b", Invalid}, {"a=b", Invalid}, {"a,b", Invalid}, {"a\x00b", Invalid},
		{"a\nb", Invalid}, {"a\tb", Invalid}, {"a\x7fb", Invalid}, {"a\u0085b", Invalid}, {"a\xffb", Invalid},
		{"a\u202eb", Invalid}, {"a\u200bb", Invalid}, {"a\ufeffb", Invalid}, {"a\u2028b", Invalid},
	} {
		got, err := ParseRootName(c.in)
		if c.kind == Other {
			if err != nil || string(got) != c.in {
				t.Errorf("ParseRootName(%q) = %q, %v", c.in, got, err)
			}
			continue
		}
		if got != "" || !errors.Is(err, c.kind) {
			t.Errorf("ParseRootName(%q) = %q, %v; want %v", c.in, got, err, c.kind)
			continue
		}
		checkShown(t, err.Error())
	}
}

// NewPath accepts only clean elements: it refuses paths that ParsePath would clean.
func TestNewPath_R130(t *testing.T) {
	for _, rel := range []string{"", "a", "a/b", "a/.../.b", "\xff", elem255 + "/" + elem255} {
		if p, err := NewPath("r", rel); err != nil || p.Rel() != rel || p.Root != "r" {
			t.Errorf("NewPath(%q) = %q, %v", rel, p, err)
		}
	}
	for rel, kind := range map[string]Kind{
		"/": Invalid, "/a": Invalid, "a/": Invalid, "a//b": Invalid, ".": Invalid, "..": Invalid,
		"a/.": Invalid, "a/./b": Invalid, "../a": Invalid, "a/../b": Invalid, "a/..": Invalid,
		"a\x00": Invalid, "a/\x00/b": Invalid, elem255 + "e": TooLong, "a/" + elem255 + "e/b": TooLong,
	} {
		if p, err := NewPath("r", rel); p != (Path{}) || !errors.Is(err, kind) {
			t.Errorf("NewPath(%q) = %q, %v; want %v", rel, p, err, kind)
		}
	}
}

func TestJoinSplit_R130(t *testing.T) {
	root := mustPath(t, "r")
	for _, dir := range []Path{root, mustPath(t, "r/a"), mustPath(t, "r/a/b")} {
		for _, name := range []string{"x", "...", ".x", `a\b`, "\xff", "a:b", " ", "~", elem255} {
			p, err := dir.Join(name)
			if err != nil || p.String() != dir.String()+"/"+name {
				t.Errorf("%q.Join(%q) = %q, %v", dir, name, p, err)
			}
			if d, base := p.Split(); d != dir || base != name {
				t.Errorf("%q.Split() = %q, %q; want %q, %q", p, d, base, dir, name)
			}
		}
		for name, kind := range map[string]Kind{
			"": Invalid, ".": Invalid, "..": Invalid, "/": Invalid, "a/b": Invalid, "/a": Invalid, "a/": Invalid,
			"../x": Invalid, "a\x00": Invalid, elem255 + "e": TooLong,
		} {
			if p, err := dir.Join(name); p != (Path{}) || !errors.Is(err, kind) {
				t.Errorf("%q.Join(%q) = %q, %v; want %v", dir, name, p, err, kind)
			}
		}
	}
	if d, base := root.Split(); d != root || base != "" {
		t.Errorf("a root splits into %q, %q; want itself and nothing", d, base)
	}
}

// R158: elements are compared, not a prefix of the text.
func TestPathHas_R158(t *testing.T) {
	for _, c := range []struct {
		p, q string
		want bool
	}{
		{"r", "r", true}, {"r", "r/a", true}, {"r", "r/a/b", true},
		{"r/front", "r/front", true}, {"r/front", "r/front/src", true}, {"r/front", "r/front/a/b", true},
		{"r/front", "r/front-evil", false}, {"r/front", "r/frontend", false}, {"r/front", "r/front-evil/src", false},
		{"r/front", "r", false}, {"r/front", "r/fron", false}, {"r/front/src", "r/front", false},
		{"r/front", "r/Front", false}, {"r/front", "r/a/front", false},
		{"front", "front-evil", false}, {"front", "front-evil/a", false}, {"r", "s/a", false}, {"r/a", "s/a", false},
	} {
		if got := mustPath(t, c.p).Has(mustPath(t, c.q)); got != c.want {
			t.Errorf("%q.Has(%q) = %v", c.p, c.q, got)
		}
	}
}

// QuoteShort returns a text of bounded length, however long the text of a peer is.
func TestQuoteShort(t *testing.T) {
	for in, want := range map[string]string{
		"":                               `""`,
		strings.Repeat("x", maxQuoted):   `"` + strings.Repeat("x", maxQuoted) + `"`,
		strings.Repeat("x", maxQuoted+1): `"` + strings.Repeat("x", maxQuoted) + `"…`,
		"x" + strings.Repeat("ä", 1000):  `"x` + strings.Repeat("ä", (maxQuoted-1)/2) + `"…`,
		strings.Repeat("\x80", 1000):     `"` + strings.Repeat(`\x80`, maxQuoted-utf8.UTFMax) + `"…`,
	} {
		if got := QuoteShort(in); got != want {
			t.Errorf("QuoteShort(%.20q, %d bytes) = %s, want %s", in, len(in), got, want)
		}
	}
}

// A quoted text is not quoted again, and shows no character that Escape would not.
func TestEscapeQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"": "", `hide "\\[a" (command line)`: `hide "\\[a" (command line)`, "a\nb\xff": `a\nb\xff`, "\u202eä": `\u{202e}ä`,
	} {
		if got := EscapeQuoted(in); got != want || !Shows(got) {
			t.Errorf("EscapeQuoted(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"":                 "",
		"plain name.txt":   "plain name.txt",
		"ä 日本 🙂":           "ä 日本 🙂",
		"a\ufffdb":         `a\u{fffd}b`, // other programs show it for a bad byte
		"a\nb":             `a\nb`,
		"a\tb":             `a\tb`,
		"a\rb":             `a\u{d}b`,
		"\x00":             `\u{0}`,
		"\x1b[31m":         `\u{1b}[31m`,
		"\x7f":             `\u{7f}`,
		"\u0085":           `\u{85}`,
		"\u009b31m":        `\u{9b}31m`, // CSI in one character
		"\u00a0":           `\u{a0}`,
		"\u00ad":           `\u{ad}`,
		"\u061c":           `\u{61c}`,
		"\u200b\u200d":     `\u{200b}\u{200d}`,
		"\u2028\u2029":     `\u{2028}\u{2029}`,
		"a\u202egpj.exe":   `a\u{202e}gpj.exe`,
		"\u2066x\u2069":    `\u{2066}x\u{2069}`,
		"\ufeff":           `\u{feff}`,
		"\ue000":           `\u{e000}`,
		"\U000e0041":       `\u{e0041}`, // a tag character, invisible
		"\U0010ffff":       `\u{10ffff}`,
		"\xff":             `\xff`,
		"a\xc3":            `a\xc3`,
		"\xed\xa0\x80":     `\xed\xa0\x80`, // a surrogate half
		`a\b`:              `a\\b`,
		`\n`:               `\\n`,
		`\u{202e}`:         `\\u{202e}`,
		`say "hi"`:         `say \"hi\"`,
		`" approved: yes"`: `\" approved: yes\"`,
	} {
		got := Escape(in)
		if got != want {
			t.Errorf("Escape(%q) = %s, want %s", in, got, want)
		}
		if q := Quote(in); q != `"`+want+`"` {
			t.Errorf("Quote(%q) = %s", in, q)
		}
		checkShown(t, got)
		if back, ok := unescapeShown(got); !ok || back != in {
			t.Errorf("Escape(%q) = %s reads back as %q, %v", in, got, back, ok)
		}
	}
}

// Any MCP server may use broker/client, and with it this package. So the package must depend on
// the standard library only.
func TestStandardLibraryOnly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	const self = "github.com/rootsfs/rootsfs/guard/names"
	if got := strings.Fields(string(out)); len(got) != 1 || got[0] != self {
		t.Errorf("packages outside the standard library: %q; want only %s, because broker/client hands it to any MCP server", got, self)
	}
}

func mustPath(t *testing.T, s string) Path {
	t.Helper()
	p, err := ParsePath(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// invisible has characters that checkShown refuses by name: invisible and blank ones, and U+FFFD.
const invisible = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u2800\u3000\u3164\uffa0\ufffd\U00016fe4\U0001d159"

// strayMarks matches combining marks without a character below them, and more than two on one.
var strayMarks = regexp.MustCompile(`(^|[ "\\])\pM|\pM\pM\pM`)

// checkShown fails the test if a text is not safe on one line of a terminal. It uses Unicode's
// categories, and not the function showable, which it tests.
func checkShown(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) {
		t.Errorf("%q is not UTF-8", s)
	}
	for _, r := range s {
		if r != ' ' && unicode.In(r, unicode.C, unicode.Z) || !unicode.IsGraphic(r) || strings.ContainsRune(invisible, r) || r >= 0xE0000 ||
			r >= 0xFE00 && r <= 0xFE0F {
			t.Errorf("%q holds %U", s, r)
		}
	}
	if strings.Contains(s, "  ") {
		t.Errorf("%q holds a run of spaces", s)
	}
	if strayMarks.MatchString(s) {
		t.Errorf("%q holds marks with nothing, or two marks, below them", s)
	}
}
