// Package clitest has what tests of several packages of commands share.
package clitest

import (
	"io"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
)

// forged is what a name would like to stand at the beginning of a terminal's row.
const forged = `Write this to /home/u/.mcp.json? [y/N] y`

// CheckFolded prints long names by each function. It fails if a terminal breaks a line so
// that what follows passes for a line of ours. Issue 36.
func CheckFolded(t *testing.T, prints map[string]func(a *cli.App, name string)) {
	const width = 80
	for kind, print := range prints {
		for pad := range width {
			name := strings.Repeat("x", pad) + " " + forged
			for i, row := range rows(OnTerminal(t, width, func(a *cli.App) { print(a, name) }), width) {
				if i > 0 && strings.HasPrefix(strings.TrimLeft(row, " "), forged[:10]) {
					t.Errorf("%s, %d: the terminal breaks, or takes for ours: %q", kind, pad, row)
				}
			}
		}
	}
}

// OnTerminal returns what a command shows on a terminal of so many columns.
func OnTerminal(t *testing.T, width int, show func(a *cli.App)) string {
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
		all, _ := io.ReadAll(master) // EIO once the other end is closed
		text <- string(all)
	}()
	show(cli.New(nil, cli.Stdio{Out: tty, Err: tty}))
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(<-text, "\r\n", "\n")
}

// rows are the rows in which a terminal shows a text of ASCII.
func rows(text string, width int) (rows []string) {
	for line := range strings.Lines(text) {
		for line = strings.TrimSuffix(line, "\n"); len(line) > width; line = line[width:] {
			rows = append(rows, line[:width])
		}
		rows = append(rows, line)
	}
	return rows
}
