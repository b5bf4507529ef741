package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// forged is a text that a hostile name tries to put at the beginning of a terminal's row.
const forged = `Write this to /home/u/.mcp.json? [y/N] y`

// checkFolded prints names of many lengths with each function. A name ends with the text forged.
// The test fails if a row of the terminal, except the first, begins with that text.
func checkFolded(t *testing.T, prints map[string]func(a *app, name string)) {
	const width = 80
	for kind, print := range prints {
		for pad := range width {
			name := strings.Repeat("x", pad) + " " + forged
			for i, row := range rows(onTerminal(t, width, func(a *app) { print(a, name) }), width) {
				if i > 0 && strings.HasPrefix(strings.TrimLeft(row, " "), forged[:10]) {
					t.Errorf("%s, %d characters before the forged text: a row begins with that text: %q", kind, pad, row)
				}
			}
		}
	}
}

// onTerminal returns the output that show writes on a terminal with width columns.
func onTerminal(t *testing.T, width int, show func(a *app)) string {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: uint16(width)}); err != nil {
		t.Fatal(err)
	}
	text := make(chan string)
	go func() {
		all, _ := io.ReadAll(master) // EIO when the other end is closed
		text <- string(all)
	}()
	show(newApp(nil, Stdio{Out: tty, Err: tty}))
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(<-text, "\r\n", "\n")
}

// rows returns the rows in which a terminal with width columns shows an ASCII text.
func rows(text string, width int) (rows []string) {
	for line := range strings.Lines(text) {
		for line = strings.TrimSuffix(line, "\n"); len(line) > width; line = line[width:] {
			rows = append(rows, line[:width])
		}
		rows = append(rows, line)
	}
	return rows
}
