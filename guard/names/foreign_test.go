package names

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// Escape and Shows give the results in testdata/showable.json. The page of the console is tested
// with the same file, because the page escapes the same characters in the same way.
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

// sample is a struct with a Foreign, a Text and a RootName, for fmt and logs to print.
type sample struct {
	F    Foreign
	T    Text
	Root RootName
	List []Foreign
	ByID map[Foreign]Text
}

// However a Foreign, a Text or a RootName is printed, the output has no character that a
// terminal obeys or hides.
func TestForeignPrints(t *testing.T) {
	for _, evil := range []string{
		"a\x1b[2J\u202e\u2800\"\\  b", "\u009b31m\u009d0;t\u0007", "a\r\nroot: yes", "\xff\xfe\xc3", "\u2028\u2066x\u2069\u200b", "", strings.Repeat("\x1b]0;x\a", 100),
	} {
		f, text := Foreign(evil), Text(evil)
		values := []any{f, text, RootName(f), &f, &text, []Foreign{f}, []RootName{RootName(f)}, []Text{text}, [1]any{f}, map[string]any{"k": text}, map[Foreign]Text{f: text}, error(foreignError{f}),
			sample{F: f, T: text, Root: RootName(f), List: []Foreign{f}, ByID: map[Foreign]Text{f: text}}}
		for _, verb := range []string{"%s", "%v", "%+v", "%q", "%x", "%X", "%U", "%d", "%t", "%20s", "%-3.9s", "%!"} {
			for _, v := range values {
				checkPrinted(t, verb, fmt.Sprintf(verb, v))
			}
		}
		for _, v := range []any{f, text, RootName(f)} {
			checkPrinted(t, "%#v", fmt.Sprintf("%#v", v))
			checkPrinted(t, "Sprint", fmt.Sprint(v)+fmt.Sprintln(v)[:len(fmt.Sprintln(v))-1])
			checkPrinted(t, "Errorf", fmt.Errorf("a %s %w", v, errors.Join(foreignError{f})).Error())
			var log strings.Builder
			slog.New(slog.NewTextHandler(&log, nil)).Info("m", "name", v, "g", slog.GroupValue(slog.Any("n", v)))
			slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "name", v)
			for line := range strings.Lines(log.String()) {
				checkPrinted(t, "log", strings.TrimSuffix(line, "\n"))
			}
		}
	}
	long := strings.Repeat("\x1b]0;x\a\u202e", 10_000)
	checkPrinted(t, "a long text", fmt.Sprint(Foreign(long), Text(long)))
	if got := fmt.Sprintf("%s|%q|%5s|%-5s|%.1s", Foreign(`a"`), Foreign(`a"`), Foreign("b"), Foreign("b"), Foreign("bc")); got != `a\"|"a\""|    b|b    |b` {
		t.Errorf("a Foreign is printed as %s", got)
	}
	if got := fmt.Sprintf("%s|%q|%3s", Text(`is "a\"" there`), Text("b"), Text("c")); got != `is "a\"" there|"b"|  c` {
		t.Errorf("a Text is printed as %s", got)
	}
}

// foreignError is an error with a foreign text in it.
type foreignError struct{ Name Foreign }

func (e foreignError) Error() string { return fmt.Sprintf("no %s", e.Name) }

// checkPrinted checks the output of fmt or a log. It accepts runs of spaces, because they may come
// from the width of a verb.
func checkPrinted(t *testing.T, how, text string) {
	t.Helper()
	for strings.Contains(text, "  ") {
		text = strings.ReplaceAll(text, "  ", " ")
	}
	if !Shows(text) {
		t.Errorf("%s prints %.200q", how, text)
	}
}

// In JSON a Foreign and a Text are their plain text, whatever an encoder does with HTML. The function
// JSON does not change the value, and its output has no character that a terminal obeys or hides.
func TestForeignJSON(t *testing.T) {
	const evil = "a\x1b\x7f\u0085\u009b31m\u202e\u2800\u034f\U000e0041 ä 🙂\n<&>\xff"
	for _, html := range []bool{false, true} {
		var texts []string
		for _, v := range []any{[]string{evil}, []Foreign{evil}, []Text{evil}} {
			var b strings.Builder
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(html)
			if err := enc.Encode(v); err != nil {
				t.Fatal(err)
			}
			texts = append(texts, b.String())
		}
		if texts[0] != texts[1] || texts[0] != texts[2] {
			t.Errorf("a string is encoded as %s, a Foreign as %s, a Text as %s", texts[0], texts[1], texts[2])
		}
		shown := string(JSON([]byte(texts[0])))
		checkShown(t, strings.TrimSpace(shown))
		if !strings.Contains(shown, `\ud`) || !strings.Contains(shown, "ä 🙂") {
			t.Errorf("%s: visible characters must stay, and invisible ones beyond 16 bits must be surrogate pairs", shown)
		}
		var back, same []Foreign
		if err := errors.Join(json.Unmarshal([]byte(shown), &back), json.Unmarshal([]byte(texts[0]), &same)); err != nil || back[0] != same[0] {
			t.Errorf("%s reads back as %q, %v", shown, back, err)
		}
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

// No line of a foreign text can be taken for a line of rootsfs: each further line begins with the
// indent and a mark, the terminal breaks none of them, and a long text is cut.
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
