package cli

import (
	"bytes"
	"io"
	"testing"
)

// Whichever function offers a word, none passes that a shell would have to quote, or that
// is a flag where none was begun, or any word twice; what is said of a word hides nothing.
// The last line, which the shells' scripts take for a number and evaluate, always comes.
func TestOffered(t *testing.T) {
	const all = "plain\tsays de\u2800sc\na$(id)1\tx\na;id\nit's\na b\n~root\n=ls\n--yes\tx\na,b\n{a,b}\n\u202ea\nmüller@x:/y+z=1\nplain\tagain\n:4\tx\n:4\n"
	for typed, want := range map[string]string{
		"":   "plain\tsays de\\u{2800}sc\nmüller@x:/y+z=1\n:4\tx\n:4\n",
		"--": "plain\tsays de\\u{2800}sc\n--yes\tx\nmüller@x:/y+z=1\n:4\tx\n:4\n",
	} {
		var out bytes.Buffer
		o := offered{newApp([]string{"__complete", "revoke", typed}, Stdio{Out: &out}), map[string]bool{}}
		if n, err := io.WriteString(o, all); n != len(all) || err != nil || out.String() != want {
			t.Errorf("%q: offered %q (%d, %v), want %q", typed, out.String(), n, err, want)
		}
	}
}
