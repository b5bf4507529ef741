package broker

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// screen is a terminal as a person sees and uses it.
type screen struct {
	t      *testing.T
	master *os.File
	read   chan byte       // each byte that the terminal shows
	shown  strings.Builder // what was shown since the last until
	term   *Terminal
}

func newScreen(t *testing.T, columns int) *screen {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, master: master, read: make(chan byte, 1<<20), term: &Terminal{Open: func() (io.ReadWriteCloser, error) {
		return os.OpenFile(tty.Name(), os.O_RDWR, 0)
	}}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 1); ; s.read <- b[0] {
			if _, err := master.Read(b); err != nil {
				return // the terminal is closed
			}
		}
	}()
	t.Cleanup(func() {
		_ = tty.Close()
		<-ended
		_ = master.Close()
	})
	return s
}

func (s *screen) types(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// until reads the screen until text appears, and returns all that was shown since the last until.
// testTimeout only ends a test that fails.
func (s *screen) until(text string) string {
	s.t.Helper()
	late := time.After(testTimeout)
	for !strings.HasSuffix(s.shown.String(), text) {
		select {
		case b := <-s.read:
			s.shown.WriteByte(b)
		case <-late:
			s.t.Fatalf("%q was never shown:\n%s", text, &s.shown)
		}
	}
	shown := s.shown.String()
	s.shown.Reset()
	return shown
}

// askResult holds the results of Ask.
type askResult struct {
	Answer
	err error
}

func (s *screen) ask(ctx context.Context, id string) <-chan askResult {
	done := make(chan askResult, 1)
	go func() {
		a, err := s.term.Ask(ctx, &Question{ID: id, Items: []Item{{Requested: "/f", Resolved: "/f", Mode: "ro", Rights: guard.ReadOnly}}})
		done <- askResult{a, err}
	}()
	return done
}

const lastOfPrompt = "only: "

// A line that was typed before a question is shown does not answer it.
func TestTerminalTypedAhead(t *testing.T) {
	s := newScreen(t, 80)
	s.types("y\ny\n")
	s.until("y\r\ny\r\n") // the echo: the lines wait to be read
	done := s.ask(t.Context(), "3f2a4kq2")
	if shown := s.until(lastOfPrompt); !strings.Contains(shown, "approve 3f2a? [y/N]") {
		t.Errorf("the prompt does not name the question: %q", shown)
	}
	s.types("n\n")
	if a := <-done; a.err != nil || a.Decisions[0].Allow {
		t.Errorf("a line that was typed ahead approved the question: %+v", a)
	}
}

// Input that was typed for a withdrawn question does not answer the next one, even if it is
// half a line. The person is told that the question was withdrawn.
func TestTerminalWithdrawn(t *testing.T) {
	for _, typed := range []string{"y", "y\n"} {
		s := newScreen(t, 80)
		ctx, cancel := context.WithCancel(t.Context())
		first := s.ask(ctx, "aaaa1111")
		s.until(lastOfPrompt)
		cancel()
		if a := <-first; !errors.Is(a.err, ErrUnanswered) {
			t.Errorf("the question that was withdrawn: %+v", a)
		}
		s.types(typed)
		s.until(strings.ReplaceAll(typed, "\n", "\r\n"))
		second := s.ask(t.Context(), "bbbb2222")
		s.until(lastOfPrompt)
		s.types("\n")
		if a := <-second; a.err != nil || a.Decisions[0].Allow {
			t.Errorf("%q, typed for a question that was withdrawn, approved the next: %+v", typed, a)
		}
	}
	s := newScreen(t, 80)
	ctx, cancel := context.WithCancel(t.Context())
	done := s.ask(ctx, "aaaa1111")
	s.until(lastOfPrompt)
	cancel()
	s.until("question aaaa was withdrawn\r\n")
	<-done
}

// forged returns a server's text that looks like a question and its answer. On a terminal with
// this number of columns, the forged question and the forged answer each begin a line.
func forged(columns int) string {
	line := func(s string) string { return s + strings.Repeat(" ", columns-len(s)%columns) }
	return line("forged") + line("forged question 9999") + line("  approve 9999? [y/N] y forged") + strings.Repeat("forged.", 200) +
		strings.Repeat("\u3000forged", 20) + "\n\r\x1b[2Jforged\n  approve 9999?"
}

// A server's text never fills a line of its own: each row that holds it begins with this
// program's words or with a bar. No row but the prompt is wider than the terminal.
func TestTerminalRows(t *testing.T) {
	for _, columns := range []int{80, 40} {
		s := newScreen(t, columns)
		text := forged(columns)
		q := &Question{ID: "3f2a4kq2", Server: names.Foreign(text), Subject: guard.Subject(text), Message: names.Foreign(text), Items: []Item{
			{Requested: names.Foreign("/" + text), Resolved: names.Foreign("/" + text[:400] + " forged"), Mode: "ro", Rights: guard.ReadOnly},
			{Requested: names.Foreign("/" + text), Problem: names.Foreign(text)},
		}}
		done := make(chan struct{})
		go func() { defer close(done); _, _ = s.term.Ask(t.Context(), q) }()
		shown := s.until(lastOfPrompt)
		s.types("s\n")
		shown += s.until("d/")
		s.types("forged\n")
		shown += s.until(lastOfPrompt)
		s.types("n\n")
		shown += s.until("Enter to go on: ")
		s.types("\n")
		<-done
		for row := range strings.SplitSeq(shown, "\r\n") {
			for i := columns; len(row) > i && !strings.HasPrefix(row, "  approve 3f2a? [y/N]"); i += columns {
				t.Errorf("%d columns: the terminal breaks the row %q", columns, row)
			}
			ours := strings.HasPrefix(row, "  | ") || strings.HasPrefix(row, "    | ")
			for _, begin := range []string{"The server that calls itself ", "Its reason, in its own words: ", `  "/`, "  Which one? ", `  Then "/`} {
				ours = ours || strings.HasPrefix(row, begin)
			}
			if strings.Contains(row, "forged") && !ours {
				t.Errorf("%d columns: a row of the server's: %q", columns, row)
			}
		}
		if strings.Count(shown, "approve 3f2a?") != 2 || !strings.Contains(shown, "characters more)") {
			t.Errorf("%d columns:\n%s", columns, shown)
		}
	}
}

// A question is short, even if its message and its paths, which cannot be granted, are long. A
// request with too many bytes of paths is refused.
func TestQuestionIsShort(t *testing.T) {
	u := &Queue{}
	l := newLab(t, func(c *Config) { c.Asker, c.AskFor, c.Limits.Consents = u, time.Hour, -1 })
	p := l.connect("alice")
	long := make([]string, maxRequested)
	for i := range long {
		long[i] = "/" + strings.Repeat("\x1b", maxPathsSize/maxRequested-1)
	}
	for range 5 {
		p.send("files/consent", obj{"message": strings.Repeat("\x1b", maxMessage), "requestedPaths": long})
	}
	awaitQuestions(t, u, 5)
	shown := 0
	for _, q := range u.List() {
		shown += len(Heading(&q))
		for i := range q.Items {
			shown += len(describe(&q.Items[i]))
		}
	}
	if shown > 100<<10 {
		t.Errorf("five questions show %d bytes", shown)
	}
	long[0] += "more"
	if e, _ := p.fails("files/consent", obj{"message": "m", "requestedPaths": long}); e.Code != wire.CodeInvalidParams || !strings.Contains(e.Message, "ask for fewer at a time") {
		t.Errorf("%+v", e)
	}
	p.s.Close()
}

// A host that renders a form as Markdown or HTML finds no markup and no link in a server's text.
// Each line of this text begins with this program's words, a number or a bar.
func TestElicitForm(t *testing.T) {
	const evil = "<img src=x onerror=a>&lt;b&gt; ![i](http://e.example/i) [l](https://e.example) **b** _e_ `c` ~~s~~ www.e.example <https://e.example> a_b \\*c\\* \\[d"
	q := &Question{Server: evil, Message: names.Foreign(evil + strings.Repeat(" long", 200)), Items: []Item{
		{Requested: "/a", Resolved: names.Foreign("/" + evil[:60]), Mode: "ro", Rights: guard.ReadOnly}, {Requested: "/" + evil, Problem: evil},
	}}
	_, err := Elicit{elicitor(func(p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
		title := p.RequestedSchema.(map[string]any)["properties"].(map[string]any)["path1"].(map[string]any)["title"].(string)
		for _, text := range []string{p.Message, title} {
			active := strings.NewReplacer(`\\`, "", `\<`, "", `\*`, "", `\_`, "", "\\`", "", `\~`, "", `\[`, "", `\]`, "", `\:`, "", `\.`, "", "a_b", "").Replace(text)
			if strings.ContainsAny(active, "<&*_`~[]") || strings.Contains(active, "://") || strings.Contains(active, "www.") {
				t.Errorf("a host would obey %q\nin %q", active, text)
			}
		}
		if !strings.Contains(p.Message, `\u{3c}img src=x`) || !strings.Contains(p.Message, "a_b") || !strings.Contains(p.Message, "characters more)") {
			t.Errorf("%s", p.Message)
		}
		for i, line := range strings.Split(strings.TrimSuffix(p.Message, "\n"), "\n") {
			if len(line) > 100 || i > 0 && !strings.HasPrefix(line, "  | ") && !strings.HasPrefix(line, "Its reason") && line[1] != '.' {
				t.Errorf("a line of the server's: %q", line)
			}
		}
		return &mcp.ElicitResult{Action: "decline"}, nil
	})}.Ask(t.Context(), q)
	if err != nil {
		t.Error(err)
	}
}
