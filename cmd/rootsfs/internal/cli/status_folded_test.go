package cli

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Long names do not make a terminal break a line.
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
