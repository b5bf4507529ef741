package console

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// screen is rootsfs top in a terminal of tmux.
type screen struct {
	*lab
	server string // the socket of tmux
	last   string // the text that was on the screen last
}

func (l *lab) top() *screen {
	l.t.Helper()
	s := &screen{lab: l, server: filepath.Join(l.work, "tmux")}
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "40", binary+" top; echo left with $?; sleep 60")
	l.t.Cleanup(func() { s.tmux("kill-server") })
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-u", "-S", s.server}, args...)...)
	cmd.Env = append(s.env, "TERM=xterm-256color", "LANG=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// press sends keys as a person would.
func (s *screen) press(keys ...string) {
	s.t.Helper()
	s.tmux(append([]string{"send-keys"}, keys...)...)
}

// waitFor waits until all texts are on the screen.
func (s *screen) waitFor(texts ...string) {
	s.t.Helper()
	missing := ""
	if !testkit.Eventually(func() bool {
		s.last = s.tmux("capture-pane", "-p")
		unfolded := strings.ReplaceAll(s.last, "\n| ", " ")
		missing = ""
		for _, x := range texts {
			if !strings.Contains(unfolded, x) {
				missing = x
			}
		}
		return missing == ""
	}) {
		s.t.Fatalf("never shown: %q\n%s", missing, s.last)
	}
}

// answer presses a key until the text is on the screen. A question takes no answer in its first
// moment, nor soon after a key that came too early.
func (s *screen) answer(key, text string) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(800 * time.Millisecond) {
		s.press(key)
		time.Sleep(200 * time.Millisecond)
		if s.last = s.tmux("capture-pane", "-p"); strings.Contains(s.last, text) {
			return
		}
	}
	s.t.Fatalf("after the key %s the screen never showed %q\n%s", key, text, s.last)
}

// The terminal view shows sessions, refusals, questions, denials and records, and its keys answer
// questions and revoke roots, as on the console's page (R090, R087, R088, R089, R094, R136, R146).
func TestTop(t *testing.T) {
	t.Parallel()
	need(t, "tmux", "python3")
	l := newLab(t)
	l.startSessions()
	s := l.top()
	s.waitFor("rootsfs", "[1 now]", "work at "+l.work+"/mnt", "code", "ro", "live", "agent", "confined: namespaces", "written [..........] 0 of 20.0M", "nothing was refused")

	// The view shows a refusal and its reason soon after the refusal. Control characters in a name
	// are escaped, so the name cannot move the cursor.
	if err := os.WriteFile(l.work+"/mnt/code/evil\x1b[2J\u202e", nil, 0o600); err == nil {
		t.Error("written to a read-only root")
	}
	s.waitFor("create", `evil\u{1b}[2J\u{202e}`, "ReadOnly")

	// The view shows a question with the server's message, the path and the contents of the path.
	// The owner allows less than the server asked for: one directory, read-only, for an hour.
	l.ask("to index\x1b]0;owned\x07 it", "rw", l.work+"/ask/proj")
	s.waitFor("2 ask (1)")
	s.press("2")
	s.waitFor("[2 ask (1)]", `to index\u{1b}]0;owned\u{7} it`, `"`+l.work+`/ask/proj"`, "files: 2 (4B), directories below: 1", "would hide: 2", ".env", "left")
	s.press("t", "t", "n")
	s.waitFor("only this, below what is asked for: " + l.work + "/ask/proj_")
	s.press("-l", "/docs")
	s.press("Enter")
	s.waitFor("for: 1h0m0s", `only: "`+l.work+`/ask/proj/docs"`)
	s.answer("r", `allowed "`+l.work+`/ask/proj/docs" (ro)`)
	if got := l.awaitAnswer(); !strings.Contains(got, `"granted":true`) || !strings.Contains(got, `ask/proj/docs"`) || !strings.Contains(got, `"mode":"ro"`) {
		t.Errorf("the server was told %s", got)
	}
	s.waitFor("nobody asks")

	// The owner denies a question for good. The server's next request, for a file in the same
	// directory, is denied without a question.
	l.ask("please", "ro", l.work+"/ask/other")
	s.waitFor("please")
	s.answer("D", "and remembered")
	if got := l.awaitAnswer(); !strings.Contains(got, `"granted":false`) {
		t.Errorf("the server was told %s", got)
	}
	l.ask("please again", "ro", l.work+"/ask/other/c")
	if got := l.awaitAnswer(); !strings.Contains(got, `"granted":false`) {
		t.Errorf("the server was told %s", got)
	}
	// The owner lets the server ask again about the directory.
	s.waitFor("denied without a question, there and below (1)", "1. ", `in agent: "`+l.work+`/ask/other"`)
	s.press("f")
	s.waitFor("with the number: _")
	s.press("1", "Enter")
	s.waitFor("may ask again about")
	l.ask("and again", "ro", l.work+"/ask/other/c")
	s.waitFor("and again")
	s.answer("d", "denied ")
	if got := l.awaitAnswer(); !strings.Contains(got, `"granted":false`) {
		t.Errorf("the server was told %s", got)
	}

	// The owner searches the records and verifies them.
	s.press("3")
	s.waitFor("[3 history]", "all records", "refused")
	s.press("/")
	s.press("-l", "evil*")
	s.press("Enter")
	s.waitFor(`records of "evil*": 1`)
	s.press("v")
	s.waitFor("records: whole")

	s.revokeEverything()
	s.press("q")
	s.waitFor("left with 0")
}

// revokeEverything presses the key that changes the mode of one root, and then revokes every root
// while a file is open.
func (s *screen) revokeEverything() {
	s.t.Helper()
	open, err := os.Open(s.work + "/mnt/code/README.md")
	if err != nil {
		s.t.Fatal(err)
	}
	defer open.Close()
	s.press("1")
	s.waitFor("[1 now]")
	// The view lists the roots in the order of the sessions: the agent's first.
	s.press("m") // changes the mode of the agent's first root, or shows why it cannot be changed
	s.press("E")
	s.waitFor("revoke every root of every session?")
	s.press("n")
	if _, err := open.ReadAt(make([]byte, 1), 0); err != nil {
		s.t.Errorf("revoked without a yes: %v", err)
	}
	s.press("E", "y")
	s.waitFor("code revoked in", "out revoked in", "box revoked in")
	if _, err := open.ReadAt(make([]byte, 1), 0); err == nil {
		s.t.Error("an open file can still be read after the revocation")
	}
}
