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
	"golang.org/x/term"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
)

// All output of the commands passes through this file. Its rules:
//
//   - The results of a command go to standard output: text for people, or with --json one JSON
//     value (for streams, one on each line).
//   - An error is one line on standard error: "rootsfs: ", the reason, and then a remedy.
//   - Characters of names and paths that a person does not see are escaped (names.Escape), in
//     JSON, too (names.JSON): a file's name cannot forge a line.
//   - A command that takes more than a second says so on standard error, if that is a terminal.
//   - An error of writing to standard output makes the command fail, with a message.
//   - No colours.

// Stdio has the standard streams of a command.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// app is the state that all commands share.
type app struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Args           []string  // the command line, without the program's name
	JSON           bool      // --json
	Session        string    // --session
	tty            bool      // standard error is a terminal
	fleet          FleetWork // nil: the program rootsfs-fleet does the work

	mu        sync.Mutex // guards the field below
	outputErr error      // the first error of writing results: see noteOutput
}

func newApp(args []string, io Stdio) *app {
	return &app{Stdin: io.In, Stdout: io.Out, Stderr: io.Err, Args: args, tty: isTerminal(io.Err)}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Write writes results to standard output. An error shows in the exit code of the command.
// Write is safe for concurrent use.
func (a *app) Write(p []byte) (int, error) {
	n, err := a.Stdout.Write(p)
	a.noteOutput(err)
	return n, err
}

// noteOutput notes the first error of writing results. Write calls it, and so does `run` for the
// standard output and error of its command. A nil error is ignored.
func (a *app) noteOutput(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outputErr = cmp.Or(a.outputErr, err)
}

// outputError returns the first error of writing results, or nil.
func (a *app) outputError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.outputErr
}

// withOutputError adds the error of writing results to a command's error.
func (a *app) withOutputError(err error) error {
	lost := a.outputError()
	if lost == nil {
		return err
	}
	stream := "standard output"
	if pe := (*fs.PathError)(nil); errors.As(lost, &pe) && pe.Path == "/dev/stderr" {
		stream = "standard error"
	}
	writeErr := fmt.Errorf("%s cannot be written: %w; the output is lost", stream, cause(lost))
	if err == nil || errors.Is(err, lost) {
		return writeErr
	}
	return errors.Join(err, writeErr)
}

// say prints a line for people. Quoted texts in it are folded: see foldQuoted.
func (a *app) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	_, _ = io.WriteString(a, foldQuoted(line, columns(a.Stdout))+"\n") // Write notes an error
}

// warn prints a line on standard error, with "rootsfs: " before it. It folds quoted texts as say
// does.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintln(a.Stderr, foldQuoted("rootsfs: "+fmt.Sprintf(format, args...), columns(a.Stderr)))
}

// columns returns the width of the terminal behind w, or a huge number if w is no terminal.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return math.MaxInt32
}

// report prints v as JSON with --json, and otherwise calls human.
func (a *app) report(v any, human func()) error {
	if !a.JSON {
		human()
		return nil
	}
	return a.encode(v, "  ")
}

// line prints v as one line of JSON, for streams.
func (a *app) line(v any) error { return a.encode(v, "") }

// lineOr prints v as one line of JSON with --json, and otherwise calls human. It returns an
// error of standard output, so that a stream ends when its reader is gone.
func (a *app) lineOr(v any, human func()) error {
	if a.JSON {
		return a.line(v)
	}
	human()
	return a.outputError()
}

// encode prints v as JSON, and escapes the characters that a person does not see: see names.JSON.
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

// fold prints a line whose foreign texts are escaped already. It breaks a long line itself, so that
// the terminal does not break the line: see names.Fold.
func (a *app) fold(line string) { a.foldAt("  ", line) }

// foldAt is fold for a line that begins with indent.
func (a *app) foldAt(indent, line string) {
	_, _ = io.WriteString(a, names.Fold(line, indent, columns(a.Stdout))+"\n") // Write notes an error
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

// fail prints an error as one line. It escapes cobra's errors, which repeat flags as written.
func (a *app) fail(err error) {
	if text := oneLine(err); text != "" {
		a.warn("%s", names.EscapeQuoted(text))
	}
}

// oneLine joins the lines of an error. It escapes nothing.
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

// maxParts bounds how many lines of an error are shown.
const maxParts = 8

// waiting says on standard error, if that is a terminal, what the command waits for: after one
// second, and then every ten seconds, until the returned function is called.
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
	if e := names.Escape(s); e == string(s) && isOneWord(e) {
		return e
	}
	return names.Quote(s)
}

// quoteEscaped is quoteIfNeeded for a text that is escaped already.
func quoteEscaped(s names.Text) string {
	if shown := s.String(); isOneWord(shown) {
		return shown
	}
	return fmt.Sprintf("%q", s)
}

func isOneWord(s string) bool { return s != "" && !strings.ContainsAny(s, " \t'") }

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

// confirm shows the intended action and asks for consent. It uses the terminal itself, because
// standard input and output may lead elsewhere. It discards input that was typed before the
// question.
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

// StderrLog returns a log on standard error, for code that runs before a command.
func StderrLog() *slog.Logger { return newLog(os.Stderr, slog.LevelInfo, logAttr) }

// newLog makes every log of the commands.
func newLog(w io.Writer, level slog.Level, attr func([]string, slog.Attr) slog.Attr) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: attr}))
}

// logAttr escapes characters that a terminal would obey or not show. The log handler's own quoting
// does not escape blank and combining characters.
func logAttr(_ []string, at slog.Attr) slog.Attr {
	if text := at.Value.String(); !names.Shows(text) {
		at.Value = slog.StringValue(names.EscapeQuoted(text))
	}
	return at
}

// dropTime is logAttr for lines without a time: the reader of standard error knows or records
// the time.
func dropTime(groups []string, at slog.Attr) slog.Attr {
	if len(groups) == 0 && at.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return logAttr(groups, at)
}

// logsToJournal reports whether standard error goes to systemd's journal. systemd's variable
// JOURNAL_STREAM identifies the stream of the journal. Its presence is not enough, because every
// process started from a unit inherits the variable.
func logsToJournal() bool {
	var dev, ino uint64
	if _, err := fmt.Sscanf(os.Getenv("JOURNAL_STREAM"), "%d:%d", &dev, &ino); err != nil {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(2, &st) == nil && st.Dev == dev && st.Ino == ino
}
