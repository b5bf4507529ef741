package showcmd

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli/clitest"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Long names do not make a terminal break a line of ours. Issue 36.
func TestForeignLinesAreFolded(t *testing.T) {
	now := time.Now()
	clitest.CheckFolded(t, map[string]func(a *cli.App, name string){
		"table": func(a *cli.App, name string) {
			(&app{a}).printRootFigures([]control.Root{{Name: name, Path: "/srv/" + name}})
		},
		"recent": func(a *cli.App, name string) {
			(&app{a}).printRecent([]control.Operation{{Time: now, Op: "open", Path: names.Escape("r/" + name), Verdict: "ok"}})
		},
		"event": func(a *cli.App, name string) {
			(&app{a}).printEvent(control.Event{Time: now, Kind: "refusal", Op: "open", Path: names.Escape("r/" + name), Reason: "Hidden"})
		},
		"root": func(a *cli.App, name string) {
			(&app{a}).printEvent(control.Event{Time: now, Kind: "added", Root: "r", Detail: "ro /srv/" + name})
		},
		"run": func(a *cli.App, name string) {
			(&app{a}).printConfined(&control.Confined{Command: []string{"sh", name}})
		},
		"record": func(a *cli.App, name string) {
			_, _ = a.Write((&app{a}).auditLine(&audit.Entry{Time: now, Verdict: "refused", Op: "open", Root: "r", Path: name, Detail: "of " + names.Quote(name)}, true, ""))
		},
		"files": func(a *cli.App, name string) {
			(&app{a}).printServers([]broker.Stats{{Subject: name, Server: names.Escape(name)}})
		},
	})
}
