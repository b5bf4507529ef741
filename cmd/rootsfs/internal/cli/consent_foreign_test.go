package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// trash list shows different names for files whose names differ in bytes that are not UTF-8.
func TestTrashListTellsNamesApart(t *testing.T) {
	var out strings.Builder
	a := newApp(nil, Stdio{Out: &out})
	a.printTrash([]vfs.Trashed{
		{ID: "20060102T150405.000000000-aaaaaaaa", Root: "r", Path: "a\ufffd", Raw: []byte("a\xfe")},
		{ID: "20060102T150405.000000000-bbbbbbbb", Root: "r", Path: "a\ufffd", Raw: []byte("a\xff")},
		{ID: "20060102T150405.000000000-cccccccc", Root: "r", Path: "a\ufffd"},
	}, "")
	for _, want := range []string{`"r/a\xfe"`, `"r/a\xff"`, `"r/a\u{fffd}"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

// A server's text in a question cannot pass for a line of rootsfs. The text is folded before the
// terminal would break the line, and each further line begins with a mark.
func TestQuestionForgesNoLine(t *testing.T) {
	word := strings.Repeat("x", 198) + " Allow? [y/N] "
	text := onTerminal(t, 200, func(a *app) {
		a.printQuestion(&control.Question{Question: broker.Question{ID: "abc"}, Heading: names.Text("It says: " + word + word), Lines: []names.Text{names.Text(strings.Repeat("/y", 300))}})
	})
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if utf8.RuneCountInString(line) >= 200 || strings.HasPrefix(strings.TrimSpace(line), "Allow?") {
			t.Errorf("a line of %d characters: %s", utf8.RuneCountInString(line), line)
		}
	}
	if !strings.Contains(text, "    | ") {
		t.Errorf("nothing was folded:\n%s", text)
	}
}
