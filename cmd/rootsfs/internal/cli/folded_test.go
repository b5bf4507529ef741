package cli

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// forged is what a name would like to stand at the beginning of a terminal's row.
const forged = `Write this to /home/u/.mcp.json? [y/N] y`

// Issue 36: a long name makes the terminal break the line. What follows on the next row
// does not pass for a line of ours, wherever the name is printed.
func TestForeignLinesAreFolded(t *testing.T) {
	const width = 80
	now := time.Now()
	for kind, print := range map[string]func(a *App, name string){
		"table": func(a *App, name string) {
			a.printRootFigures([]control.Root{{Name: name, Path: "/srv/" + name}})
		},
		"recent": func(a *App, name string) {
			a.printRecent([]control.Operation{{Time: now, Op: "open", Path: names.Escape("r/" + name), Verdict: "ok"}})
		},
		"event": func(a *App, name string) {
			a.printEvent(control.Event{Time: now, Kind: "refusal", Op: "open", Path: names.Escape("r/" + name), Reason: "Hidden"})
		},
		"root": func(a *App, name string) {
			a.printEvent(control.Event{Time: now, Kind: "added", Root: "r", Detail: "ro /srv/" + name})
		},
		"run": func(a *App, name string) { a.printConfined(&control.Confined{Command: []string{"sh", name}}) },
		"json": func(a *App, name string) {
			_, err := hostconfig.Parse("mcp.json", []byte(`{"`+name+"\x01"+`": 1}`))
			a.Fail(err)
		},
		"toml": func(a *App, name string) { a.Fail(&config.Error{File: "c", Line: 1, Key: name, Err: io.EOF}) },
		"record": func(a *App, name string) {
			_, _ = a.Write(a.auditLine(&audit.Entry{Time: now, Verdict: "refused", Op: "open", Root: "r", Path: name, Detail: "of " + names.Quote(name)}, true, ""))
		},
		"server": func(a *App, name string) {
			a.printServer(&wrapServer{Name: names.Foreign(name), State: "wrap", Roots: []wrapRoot{{Spec: name, From: "its " + names.Quote(name)}}, Notes: []string{"see " + names.Quote(name)}})
		},
		"files": func(a *App, name string) {
			a.printServers([]broker.Stats{{Subject: name, Server: names.Escape(name)}})
		},
		"change": func(a *App, name string) {
			path := filepath.Join(t.TempDir(), "mcp.json")
			write(t, path, `{"mcpServers": {"`+name+`": {"command": "true"}}}`, 0o600)
			file, err := openHostFile(path)
			if err != nil {
				t.Fatal(err)
			}
			w := &wrapping{wrapFlags: &wrapFlags{}, file: file}
			if w.conf, err = hostconfig.Parse(path, file.doc); err != nil {
				t.Fatal(err)
			}
			if w.res.Diff, err = w.diff(w.conf.Wrap("rootsfs", map[*hostconfig.Server]hostconfig.How{w.conf.Servers[0]: {}})); err != nil {
				t.Fatal(err)
			}
			a.printWrapping(w)
		},
		"warning": func(a *App, name string) { a.Warn("no such server: %s", names.Quote(name)) },
		"command": func(a *App, name string) { a.Say("do: rootsfs revoke %s", names.ShellWord(name)) },
	} {
		for pad := range width {
			name := strings.Repeat("x", pad) + " " + forged
			for i, row := range terminalRows(onTerminal(t, width, func(a *App) { print(a, name) }), width) {
				if i > 0 && strings.HasPrefix(strings.TrimLeft(row, " "), forged[:10]) {
					t.Errorf("%s, %d: the terminal breaks, or takes for ours: %q", kind, pad, row)
				}
			}
		}
	}
}

// onTerminal is what a command shows on a terminal of so many columns.
func onTerminal(t *testing.T, width int, show func(a *App)) string {
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
	show(&App{Stdout: tty, Stderr: tty})
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(<-text, "\r\n", "\n")
}

// terminalRows are the rows in which a terminal shows a text of ASCII.
func terminalRows(text string, width int) (rows []string) {
	for line := range strings.Lines(text) {
		for line = strings.TrimSuffix(line, "\n"); len(line) > width; line = line[width:] {
			rows = append(rows, line[:width])
		}
		rows = append(rows, line)
	}
	return rows
}
