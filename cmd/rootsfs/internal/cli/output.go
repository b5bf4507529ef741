package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// All output of the commands passes through this file. Its rules:
//
//   - What a command did or found goes to standard output, for people, or, with
//     --json, as one JSON value (a line each for streams).
//   - An error is one line on standard error: "rootsfs: " and what happened, then
//     what to do next.
//   - Names and paths are shown with what a person does not see escaped
//     (names.Escape), in JSON, too (names.JSON): a file's name cannot forge a line.
//   - Whatever takes more than a second says that it is still at it, on standard
//     error, if that is a terminal.
//   - What could not be written to standard output is a failure, and said.
//   - No colours.

// Stdio is where a run reads and writes.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// app is what commands share.
type app struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Args           []string // the command line, without the program's name
	JSON           bool     // --json
	Session        string   // --session
	tty            bool     // standard error is a terminal

	mu        sync.Mutex // guards the field below
	outputErr error      // the first that standard output answered with
}

func newApp(args []string, io Stdio) *app {
	return &app{Stdin: io.In, Stdout: io.Out, Stderr: io.Err, Args: args, tty: isTerminal(io.Err)}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Write writes to standard output, for everything that prints results: what is wrong
// with it then shows in the exit code. Safe for concurrent use.
func (a *app) Write(p []byte) (int, error) {
	n, err := a.Stdout.Write(p)
	a.noteOutput(err)
	return n, err
}

// noteOutput notes an error of standard output or error, for what is written there past
// Write: the output of a command of run's. Nil is none.
func (a *app) noteOutput(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outputErr = cmp.Or(a.outputErr, err)
}

// outputError is what was wrong when results could not be written, nil if all were.
func (a *app) outputError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.outputErr
}

// withOutputError adds to a command's error that results could not be written.
func (a *app) withOutputError(err error) error {
	lost := a.outputError()
	if lost == nil {
		return err
	}
	stream := "standard output"
	if pe := (*fs.PathError)(nil); errors.As(lost, &pe) && pe.Path == "/dev/stderr" {
		stream = "standard error"
	}
	said := fmt.Errorf("%s cannot be written: %w; the output is lost", stream, cause(lost))
	if err == nil || errors.Is(err, lost) {
		return said
	}
	return errors.Join(err, said)
}

// say prints a line for people. What is quoted in it is folded: see foldQuoted.
func (a *app) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	_, _ = io.WriteString(a, foldQuoted(line, columns(a.Stdout))+"\n") // Write remembers what is wrong
}

// warn prints a line on standard error, as say does.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintln(a.Stderr, foldQuoted("rootsfs: "+fmt.Sprintf(format, args...), columns(a.Stderr)))
}

// columns is how wide the terminal is that w leads to, and without end if it is none.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return int(size.Col)
		}
	}
	return math.MaxInt32
}

// report prints v as JSON if that was asked for, and otherwise calls human.
func (a *app) report(v any, human func()) error {
	if !a.JSON {
		human()
		return nil
	}
	return a.encode(v, "  ")
}

// line prints v as one line of JSON, for streams.
func (a *app) line(v any) error { return a.encode(v, "") }

// lineOr prints v as one line of JSON if that was asked for, and otherwise calls human.
// The error is that of standard output: a stream ends with its reader.
func (a *app) lineOr(v any, human func()) error {
	if a.JSON {
		return a.line(v)
	}
	human()
	return a.outputError()
}

// encode prints every JSON value of every command: see names.JSON.
func (a *app) encode(v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := a.Write(names.JSON(b.Bytes()))
	return err
}

// fold prints a line that holds foreign text, escaped, so that a terminal does not break
// it: see names.Fold.
func (a *app) fold(line string) { a.foldAt("  ", line) }

// foldAt is fold for a line that begins with indent.
func (a *app) foldAt(indent, line string) {
	_, _ = io.WriteString(a, names.Fold(line, indent, columns(a.Stdout))+"\n") // Write remembers what is wrong
}

// table prints aligned columns; the first row is the heading.
func (a *app) table(rows [][]string) {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	_ = tw.Flush() // a Builder takes everything
	for line := range strings.Lines(b.String()) {
		a.say("%s", strings.TrimSuffix(line, "\n"))
	}
}

// fail prints an error as the one line it is allowed. cobra's own repeat flags as they
// were written.
func (a *app) fail(err error) {
	if text := oneLine(err); text != "" {
		a.warn("%s", names.EscapeQuoted(text))
	}
}

// oneLine joins the lines of an error, whose texts have escaped their names
// already.
func oneLine(err error) string {
	lines := strings.FieldsFunc(control.Text(err), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimSpace(lines[i]), "rootsfs: ")
	}
	if more := len(lines) - maxParts; more > 0 {
		lines = append(lines[:maxParts], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}

// maxParts bounds an error made of many.
const maxParts = 8

// waiting says what is still going on once a second has passed, and every ten
// seconds after, until the returned function is called.
func (a *app) waiting(what string) (done func()) {
	if !a.tty {
		return func() {}
	}
	stop := make(chan struct{})
	go func() {
		start := time.Now()
		t := time.NewTimer(time.Second)
		defer t.Stop()
		for {
			select {
			case <-stop:
				return
			case <-t.C:
				a.warn("still %s (%v)", what, time.Since(start).Round(time.Second))
				t.Reset(10 * time.Second)
			}
		}
	}()
	return func() { close(stop) }
}

// quoteIfNeeded makes a name or path safe to print, and quotes it if it would not read
// as one word.
func quoteIfNeeded[S ~string](s S) string {
	if e := names.Escape(s); e == string(s) && word(e) {
		return e
	}
	return names.Quote(s)
}

// quoteEscaped is shown for what has been escaped already.
func quoteEscaped(s names.Text) string {
	if shown := s.String(); word(shown) {
		return shown
	}
	return fmt.Sprintf("%q", s)
}

func word(s string) bool { return s != "" && !strings.ContainsAny(s, " \t'") }

// sizeText shows a number of bytes.
func sizeText(n int64) string { return config.FormatSize(n) }

// plural shows a count with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// durationText shows a duration as people write it: 30m, not 30m0s.
func durationText(d time.Duration) string {
	if d >= time.Second {
		d = d.Round(time.Second)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func localTime(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func withPrefix[S ~string](prefix string, s S) string {
	if s == "" {
		return ""
	}
	return prefix + quoteIfNeeded(s)
}

// confirm shows what is to be done and asks, on the terminal itself: standard input
// and output may be anything. What was typed before the question answers nothing.
func confirm(what, question string) error {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return &exitError{Code: exitNotApproved, Err: errors.New("not approved: there is no terminal to ask on; use --yes if this is meant")}
	}
	defer tty.Close()
	broker.FlushInput(tty)
	width := columns(tty)
	for line := range strings.Lines(what) {
		fmt.Fprintln(tty, names.Fold(strings.TrimSuffix(line, "\n"), "", width))
	}
	fmt.Fprint(tty, foldQuoted(question, width)+" [y/N] ")
	line, err := bufio.NewReader(tty).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err == nil && (answer == "y" || answer == "yes") {
		return nil
	}
	return &exitError{Code: exitNotApproved, Err: fmt.Errorf("not approved (answer: %s)", names.Quote(strings.TrimSpace(line)))}
}

// StderrLog returns a log on standard error, for what runs before a command.
func StderrLog() *slog.Logger { return newLog(os.Stderr, slog.LevelInfo, logAttr) }

// newLog makes every log of the commands.
func newLog(w io.Writer, level slog.Level, attr func([]string, slog.Attr) slog.Attr) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: attr}))
}

// logAttr escapes what a terminal would obey or not show: the handler quotes, and takes
// for seen what is blank or changes the character before it.
func logAttr(_ []string, at slog.Attr) slog.Attr {
	if text := at.Value.String(); !names.Shows(text) {
		at.Value = slog.StringValue(names.EscapeQuoted(text))
	}
	return at
}

// dropTime is logAttr for lines without their time: who reads standard error knows it, or
// records it.
func dropTime(groups []string, at slog.Attr) slog.Attr {
	if len(groups) == 0 && at.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return logAttr(groups, at)
}

// toJournal reports whether standard error goes to systemd's journal: the manager
// says which stream it made, because the variable alone is inherited by
// everything that is started from a unit.
func toJournal() bool {
	var dev, ino uint64
	if _, err := fmt.Sscanf(os.Getenv("JOURNAL_STREAM"), "%d:%d", &dev, &ino); err != nil {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(2, &st) == nil && st.Dev == dev && st.Ino == ino
}
