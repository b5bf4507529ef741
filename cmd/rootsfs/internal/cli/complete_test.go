package cli

import (
	"bytes"
	"io"
	"testing"
)

// Completion offers no word that a shell would have to quote, no flag where the user has begun
// none, and no word twice. Descriptions have no hidden characters. The last line, which the
// shells' scripts evaluate as a number, is always printed.
func TestCompletionWriter(t *testing.T) {
	const all = "plain\tsays de\u2800sc\na$(id)1\tx\na;id\nit's\na b\n~root\n=ls\n--yes\tx\na,b\n{a,b}\n\u202ea\nmüller@x:/y+z=1\nplain\tagain\n:4\tx\n:4\n"
	for typed, want := range map[string]string{
		"":   "plain\tsays de\\u{2800}sc\nmüller@x:/y+z=1\n:4\tx\n:4\n",
		"--": "plain\tsays de\\u{2800}sc\n--yes\tx\nmüller@x:/y+z=1\n:4\tx\n:4\n",
	} {
		var out bytes.Buffer
		o := completionWriter{newApp([]string{"__complete", "revoke", typed}, Stdio{Out: &out}), map[string]bool{}}
		if n, err := io.WriteString(o, all); n != len(all) || err != nil || out.String() != want {
			t.Errorf("%q: offered %q (%d, %v), want %q", typed, out.String(), n, err, want)
		}
	}
}
