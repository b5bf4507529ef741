package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/rootsfs/rootsfs/guard/names"
)

// Terminal is an Asker that asks on a terminal, one question at a time. Open opens the
// terminal, never the protocol's own stdin. It is called for each question, and again to
// print that a question has ended. Closing the terminal must end a Read that waits. Input typed
// before a prompt is not an answer: FlushInput drops it, if the terminal is an *os.File.
type Terminal struct {
	Open func() (io.ReadWriteCloser, error)
	once sync.Once
	busy chan struct{} // has an element while a question is on the terminal
}

// Ask implements Asker. Without a terminal the question is unanswered. The end of ctx
// also ends a question that waits for its turn.
func (t *Terminal) Ask(ctx context.Context, q *Question) (Answer, error) {
	t.once.Do(func() { t.busy = make(chan struct{}, 1) })
	select {
	case t.busy <- struct{}{}:
		defer func() { <-t.busy }()
	case <-ctx.Done():
		return Answer{}, ErrUnanswered
	}
	if ctx.Err() != nil {
		return Answer{}, ErrUnanswered
	}
	tty, err := t.Open()
	if err != nil {
		return Answer{}, fmt.Errorf("%w: no terminal: %w", ErrUnanswered, err)
	}
	shut := sync.OnceFunc(func() { _ = tty.Close() })
	defer shut()
	defer context.AfterFunc(ctx, shut)()
	p := &prompt{tty: tty, columns: columnsOf(tty), id: q.ID[:min(len(q.ID), 4)]}
	a := p.ask(q)
	if err := ctx.Err(); err != nil {
		what := "was withdrawn"
		if errors.Is(err, context.DeadlineExceeded) {
			what = "has ended: nobody answered in time"
		}
		t.tell("question " + p.id + " " + what)
		return Answer{}, ErrUnanswered
	}
	if p.err != nil {
		return Answer{}, ErrUnanswered
	}
	return a, nil
}

// tell writes a line about a question that has ended. It opens the terminal again, because the
// question's terminal was closed to end the Read. A stopped terminal (Ctrl-S) delays the caller
// by a second at most.
func (t *Terminal) tell(line string) {
	tty, err := t.Open()
	if err != nil {
		return
	}
	shut := sync.OnceFunc(func() { _ = tty.Close() })
	defer shut()
	defer time.AfterFunc(time.Second, shut).Stop()
	_, _ = fmt.Fprintf(tty, "\n%s\n", line)
}

// FlushInput drops the unread input of a terminal. It does nothing to other files.
func FlushInput(tty any) {
	withFD(tty, func(fd int) { _ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) })
}

// columnsOf returns the width of a terminal, 80 if that is unknown.
func columnsOf(tty any) int {
	columns := 80
	withFD(tty, func(fd int) {
		if width, _, err := term.GetSize(fd); err == nil && width > 0 {
			columns = width
		}
	})
	return columns
}

// withFD calls f with the descriptor of an *os.File. For anything else it does nothing.
func withFD(file any, f func(fd int)) {
	if file, ok := file.(*os.File); ok {
		if c, err := file.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}

// prompt is the dialogue about one question.
type prompt struct {
	tty     io.ReadWriter
	columns int
	id      string // first characters of the question's id
	err     error
}

func (p *prompt) say(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.tty, format, args...)
	}
}

// line shows a prompt and returns the line that the person types. It uses a new reader each
// time and so drops input beyond the line, which was typed before the next prompt.
func (p *prompt) line(format string, args ...any) string {
	FlushInput(p.tty)
	p.say(format, args...)
	if p.err != nil {
		return ""
	}
	s, err := bufio.NewReader(p.tty).ReadString('\n')
	p.err = err
	return strings.TrimSpace(s)
}

// Heading returns the first lines of a question, for every approver that shows text: who
// asks, and why. Nothing in them can pass for the program's own text, as long as the caller
// uses names.Fold to break lines that are too long for the display.
func Heading(q *Question) string {
	if q.Host != nil {
		return hostHeading(q)
	}
	who := "A server"
	if q.Server != "" {
		who = "The server that calls itself " + short(names.Quote(q.Server))
	}
	if q.Subject != "" {
		who += " (" + short(names.Escape(string(q.Subject))) + ")"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks for access to files.\n", who)
	if q.Message == "" {
		b.WriteString("It gives no reason.\n")
	} else {
		fmt.Fprintf(&b, "Its reason, in its own words: \"%s\"\n", names.Message(q.Message))
	}
	return b.String()
}

// Lines returns a line for each item of a question, or one line for its host. As in Heading,
// nothing in the lines can pass for the program's own text if the caller folds long lines.
func Lines(q *Question) []string {
	if q.Host != nil {
		return []string{fmt.Sprintf("%s port %d", names.Quote(q.Host.Name), q.Host.Port)}
	}
	var lines []string
	for i := range q.Items {
		lines = append(lines, describe(&q.Items[i]))
	}
	return lines
}

// describe returns the line of one item.
func describe(it *Item) string {
	if it.Problem != "" {
		return fmt.Sprintf("%s: cannot be granted: %s", short(names.Quote(it.Requested)), shortReason(names.Escape(it.Problem)))
	}
	kind := "directory, with everything below"
	if it.File {
		kind = "one file"
	}
	s := fmt.Sprintf("%s (%s), %s", names.Quote(it.Resolved), kind, modeWords(it.Mode))
	if it.Requested != it.Resolved {
		s += ", asked for as " + short(names.Quote(it.Requested))
	}
	return s
}

// short shortens an escaped text that is not a path to be granted.
func short(shown string) string {
	const longest = 200
	if r := []rune(shown); len(r) > longest {
		return string(r[:longest]) + "…"
	}
	return shown
}

// shortReason shortens a reason in the middle. It keeps the end, which says where to read on,
// such as the file and the line.
func shortReason(shown string) string {
	const head, tail = 150, 120
	if r := []rune(shown); len(r) > head+tail {
		return string(r[:head]) + "…" + string(r[len(r)-tail:])
	}
	return shown
}

func modeWords(mode string) string {
	switch mode {
	case "ro":
		return "read only"
	case "rw":
		return "read and WRITE"
	case "stage":
		return "read and write; what it writes is staged until you apply it"
	}
	return "rights: " + names.Escape(mode)
}

// fold breaks a line with foreign text, so that the terminal does not break it (see names.Fold).
func (p *prompt) fold(line, indent string) string { return names.Fold(line, indent, p.columns) }

func (p *prompt) ask(q *Question) Answer {
	p.say("\n")
	for line := range strings.Lines(Heading(q)) {
		p.say("%s\n", p.fold(strings.TrimSuffix(line, "\n"), ""))
	}
	a := Answer{By: "terminal", Decisions: q.Decisions()}
	if q.Host != nil {
		p.say("\n%s\n", p.fold(Lines(q)[0], "  "))
		a.Decisions[0] = p.decide(nil)
		return a
	}
	for i := range q.Items {
		it := &q.Items[i]
		p.say("\n%s\n", p.fold(describe(it), "  "))
		if it.Problem == "" {
			a.Decisions[i] = p.decide(it)
			continue
		}
		// Wait as for any other item, so that the time of the answer reveals nothing to the
		// server.
		p.line("  Enter to go on: ")
	}
	return a
}

// decide asks about the item it or, if the item is nil, about the question's host.
func (p *prompt) decide(it *Item) Decision {
	choices := "[y/N], for a [t]ime"
	if it != nil {
		choices = "[y/N], read [o]nly, for a [t]ime, a [s]ubdirectory only"
	}
	d := Decision{Allow: true}
	for p.err == nil {
		switch answer := strings.ToLower(p.line("  approve %s? %s: ", p.id, choices)); {
		case answer == "y", answer == "yes":
			return d
		case answer == "", answer == "n", answer == "no":
			return Decision{}
		case answer == "t", answer == "time":
			d.For = p.askDuration(d.For)
		case it == nil:
		case answer == "o", answer == "only":
			if mode, ok := ReadOnlyMode(it); ok {
				d.Mode = mode
				return d
			}
			p.say("  It does not ask to read.\n")
		case answer == "s", answer == "sub":
			if sub := strings.Trim(p.line("%s/", p.fold("Which one? "+names.Escape(it.Resolved), "  ")), "/"); sub != "" {
				d.Path = it.Resolved.Raw() + "/" + sub
				p.say("%s\n", p.fold("Then "+names.Quote(d.Path)+".", "  "))
			}
		}
	}
	return Decision{}
}

// askDuration asks for a length of time, and returns previous if the answer is not one.
func (p *prompt) askDuration(previous time.Duration) time.Duration {
	if v, err := time.ParseDuration(p.line("  For how long (such as 30m or 2h)? ")); err == nil && v > 0 {
		return v
	}
	p.say("  That is no length of time.\n")
	return previous
}
