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

	"github.com/rootsfs/rootsfs/guard"
)

// screen is a terminal as the person in front of it has it.
type screen struct {
	t      *testing.T
	master *os.File
	read   chan byte // what is shown
	shown  strings.Builder
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
				return // nobody has the terminal open any more
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

// until reads what is shown up to text; the bound only ends a failed test.
func (s *screen) until(text string) string {
	s.t.Helper()
	late := time.After(enough)
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

// answer is what Ask returned.
type answered struct {
	Answer
	err error
}

func (s *screen) ask(ctx context.Context, id string) <-chan answered {
	done := make(chan answered, 1)
	go func() {
		a, err := s.term.Ask(ctx, &Question{ID: id, Items: []Item{{Requested: "/f", Resolved: "/f", Mode: "ro", Rights: guard.ReadOnly}}})
		done <- answered{a, err}
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

// What was typed for a question that is withdrawn does not answer the next one, be it
// half a line, and the person is told.
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
