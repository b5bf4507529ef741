package cli

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/hostconfig"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A long name cannot put forged text at the beginning of a terminal's row.
func TestForeignLinesAreFolded(t *testing.T) {
	checkFolded(t, map[string]func(a *app, name string){
		"json": func(a *app, name string) {
			_, err := hostconfig.Parse("mcp.json", []byte(`{"`+name+"\x01"+`": 1}`))
			a.fail(err)
		},
		"toml":    func(a *app, name string) { a.fail(&config.Error{File: "c", Line: 1, Key: name, Err: io.EOF}) },
		"warning": func(a *app, name string) { a.warn("no such server: %s", names.Quote(name)) },
		"command": func(a *app, name string) { a.say("do: rootsfs revoke %s", names.ShellWord(name)) },
	})
}

// A long name cannot put forged text at the beginning of a terminal's row.
func TestStatusAndAuditAreFolded(t *testing.T) {
	now := time.Now()
	checkFolded(t, map[string]func(a *app, name string){
		"table": func(a *app, name string) {
			a.printRootFigures([]control.Root{{Name: names.Foreign(name), Path: names.Foreign("/srv/" + name)}})
		},
		"recent": func(a *app, name string) {
			a.printRecent([]control.Operation{{Time: now, Op: "open", Path: names.Text(names.Escape("r/" + name)), Verdict: "ok"}})
		},
		"event": func(a *app, name string) {
			a.printEvent(control.Event{Time: now, Kind: "refusal", Op: "open", Path: names.Text(names.Escape("r/" + name)), Reason: "Hidden"})
		},
		"root": func(a *app, name string) {
			a.printEvent(control.Event{Time: now, Kind: "added", Root: "r", Detail: names.Foreign("ro /srv/" + name)})
		},
		"run": func(a *app, name string) {
			a.printConfined(&control.Confined{Command: []names.Foreign{"sh", names.Foreign(name)}})
		},
		"record": func(a *app, name string) {
			_, _ = a.Write(a.auditLine(&audit.Entry{Time: now, Verdict: "refused", Op: "open", Root: "r", Path: names.Foreign(name), Detail: names.Foreign("of " + names.Quote(name))}, true, ""))
		},
		"files": func(a *app, name string) {
			a.printServers([]broker.Stats{{Subject: names.Foreign(name), Server: names.Text(names.Escape(name))}})
		},
	})
}

// A long name cannot put forged text at the beginning of a terminal's row.
func TestWrapIsFolded(t *testing.T) {
	checkFolded(t, map[string]func(a *app, name string){
		"server": func(a *app, name string) {
			a.printServer("", &wrapServer{Name: names.Foreign(name), State: "wrap", Roots: []wrapRoot{{Spec: names.Foreign(name), From: names.Text("its " + names.Quote(name))}}, Notes: []names.Text{names.Text("see " + names.Quote(name))}})
		},
		"change": func(a *app, name string) {
			path := filepath.Join(t.TempDir(), "mcp.json")
			writeFile(t, path, `{"mcpServers": {"`+name+`": {"command": "true"}}}`, 0o600)
			file, err := openHostFile(path)
			if err != nil {
				t.Fatal(err)
			}
			w := &wrapping{wrapFlags: &wrapFlags{}, file: file}
			if w.conf, err = hostconfig.Parse(path, file.doc); err != nil {
				t.Fatal(err)
			}
			after, err := w.verify(w.conf.Wrap("rootsfs", map[*hostconfig.Server]hostconfig.RunFlags{w.conf.Servers[0]: {}}), nil)
			if err != nil {
				t.Fatal(err)
			}
			w.res.Diff = w.diff(after)
			a.printWrapping(w)
		},
	})
}
