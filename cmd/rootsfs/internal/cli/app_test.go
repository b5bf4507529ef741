package cli

import (
	"errors"
	"io"
	"testing"
)

// A command's own failure keeps its exit code even if its results cannot be written.
func TestFailureKeepsItsCode(t *testing.T) {
	full, w := io.Pipe()
	a := newApp(nil, Stdio{Out: w})
	_ = full.CloseWithError(io.ErrShortWrite)
	a.say("x")
	if got := exitCode(a.withOutputError(usage(errors.New("y")))); got != ExitUsage {
		t.Errorf("exit %d", got)
	}
}

// In a path value that is ~ or begins with ~/, the ~ stands for the home directory. Any other ~ has
// no special meaning.
func TestInHome(t *testing.T) {
	t.Setenv("HOME", "/home/x")
	for in, want := range map[string]string{"~": "/home/x", "~/a": "/home/x/a", "a/~": "a/~", "~b": "~b", "/~/": "/~/"} {
		var got string
		if err := (pathValue{&got}).Set(in); err != nil || got != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
}

// Standard error counts as the journal only if JOURNAL_STREAM identifies the stream of standard
// error. The presence of the variable is not enough.
func TestJournalIsVerified(t *testing.T) {
	for _, v := range []string{"", "8:1", "nonsense", "1"} {
		t.Setenv("JOURNAL_STREAM", v)
		if logsToJournal() {
			t.Errorf("with JOURNAL_STREAM=%s standard error counts as the journal", v)
		}
	}
}

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{"1 process": plural(1, "process"), "3 processes": plural(3, "process"), "0 roots": plural(0, "root")} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
