package names

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// The vectors are those of the console's page, too, which shows the same characters as
// the same escapes.
func TestShowableVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/showable.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ What, Text, Shown string }
	if err := json.Unmarshal(data, &vectors); err != nil || len(vectors) < 40 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for _, v := range vectors {
		if got := Escape(v.Text); got != v.Shown {
			t.Errorf("%s: Escape(%+q) = %s, want %s", v.What, v.Text, got, v.Shown)
		}
		if Shows(v.Text) != (v.Text == v.Shown) {
			t.Errorf("%s: Shows(%+q) = %v", v.What, v.Text, Shows(v.Text))
		}
		checkShown(t, v.Shown)
	}
}

// Whatever prints a Foreign without asking for its raw text prints it escaped.
func TestForeignPrints(t *testing.T) {
	const evil = Foreign("a\x1b[2J\u202e\u2800\"\\  b")
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q", "%d", "%x", "%20s", "%-3.9s"} {
		checkShown(t, strings.ReplaceAll(fmt.Sprintf(verb, evil), "  ", " "))
		checkShown(t, strings.ReplaceAll(fmt.Sprintf(verb, struct{ F []Foreign }{[]Foreign{evil}}), "  ", " "))
	}
	if got := fmt.Sprintf("%s %q", evil, evil); got != Escape(evil.Raw())+" "+Quote(evil.Raw()) {
		t.Errorf("printed as %s", got)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "name", evil)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "name", evil)
	if strings.ContainsAny(log.String(), "\x1b\u202e\u2800") {
		t.Errorf("logged as %q", log.String())
	}
}

// JSON keeps what a text means, and holds nothing that a terminal obeys or hides.
func TestForeignJSON(t *testing.T) {
	const evil = "a\x1b\x7f\u0085\u009b31m\u202e\u2800\u034f\U000e0041 ä 🙂\n"
	for _, v := range []any{Foreign(evil), struct{ A []Foreign }{[]Foreign{evil}}} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		checkShown(t, string(text))
		if !strings.Contains(string(text), `\ud`) || !strings.Contains(string(text), "ä 🙂") {
			t.Errorf("%s: what is seen stays, and what is beyond 16 bits is a pair", text)
		}
	}
	text, _ := json.Marshal(evil)
	var back string
	if err := json.Unmarshal(JSON(text), &back); err != nil || back != evil {
		t.Errorf("%s reads back as %q, %v", JSON(text), back, err)
	}
}

func TestSafeName(t *testing.T) {
	for in, want := range map[string]string{
		"proj": "proj", "a.b_c-1": "a.b_c-1", "a$(id>PWNED)1": "a-id-PWNED-1", "proj\u2800": "proj", "-rf": "rf", ".ssh": "ssh",
		"": "root", "..": "root", "日本": "root", "müller": "m-ller", "a\xffb": "a-b", "a b\n": "a-b", strings.Repeat("x", 300): strings.Repeat("x", MaxRootName),
	} {
		got := SafeName(in)
		if _, err := ParseRootName(got); got != want || err != nil || !IsShellWord(got) {
			t.Errorf("SafeName(%q) = %q, want %q (%v)", in, got, want, err)
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"": "''", "/srv/a-b_c.d:ro": "/srv/a-b_c.d:ro", "müller": "müller", "=ls": "'=ls'", "a=b": "a=b", "a,b": "a,b", ",": "','", "~": "'~'",
		"a b": "'a b'", "it's": `'it'\''s'`, `a\b`: `'a'\\'b'`, "''": `\'\'`, "$(id)": "'$(id)'",
		"a\u202e": `"$(printf 'a\342\200\256')"`, "a  b%s-": `"$(printf 'a\040\040b\045s\055')"`, "a\xff": `"$(printf 'a\377')"`, "a\n": "''", "a\x00": "''",
	} {
		if got := ShellWord(in); got != want {
			t.Errorf("ShellWord(%q) = %s, want %s", in, got, want)
		}
	}
}

// Lines of a foreign text are never ours: each begins with the indent and a mark, none is
// broken by the terminal, and a long text is cut.
func TestMessageIsFolded(t *testing.T) {
	for _, in := range []string{
		"", "short", strings.Repeat(" ", 300) + "Allow? [y/N]", strings.Repeat("x", 10_000), "a\nb\r\x1b[A", strings.Repeat("日本 ", 90), strings.Repeat("e\u0301", 400), "\xff\xfe",
		strings.Repeat("word ", 80), strings.Repeat("\u202e", 499), strings.Repeat("a "+strings.Repeat("y", 79)+" ", 5),
	} {
		reason := Message(in)
		checkShown(t, reason)
		if cut := utf8.RuneCountInString(in) > maxReason; strings.HasSuffix(reason, " characters more)") != cut || !cut && reason != Escape(in) {
			t.Errorf("Message(%.20q…) ends in %q", in, reason[max(0, len(reason)-30):])
		}
		for _, columns := range []int{0, 40, 80} {
			got := Fold(reason, "  ", columns)
			for i, line := range strings.Split(got, "\n") {
				if !strings.HasPrefix(line, "  ") || i > 0 && !strings.HasPrefix(line, "    | ") || Columns(line) >= max(columns, 30) {
					t.Errorf("Fold(%.20q…) for %d columns has the line %q", in, columns, line)
				}
			}
			if whole := strings.ReplaceAll(strings.TrimPrefix(got, "  "), "\n    | ", ""); whole != reason {
				t.Errorf("Fold has changed %q into %q", reason, whole)
			}
		}
	}
	if got := Message(strings.Repeat("x", 507)); !strings.HasSuffix(got, "x… (7 characters more)") {
		t.Errorf("%q", got)
	}
}
