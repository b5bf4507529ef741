package deps

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The rules by which a text reaches a person. Each field of text that a command can print
// has one.
const (
	ours    = "ours"    // a word, a number or an address that rootsfs or the system makes
	owners  = "owners"  // the owner's own: a flag, the configuration, the machine
	shown   = "shown"   // a server, file or host may have chosen it: it is a names.Foreign, or is printed by a function that escapes
	escaped = "escaped" // the same, and it is filled with a result of names.Escape or names.Quote
	said    = "said"    // a sentence of the program, in which names are quoted
)

// printed are the text fields of types that commands print, in JSON (where names.JSON
// escapes all of it) or for people, and of types that they take the text from.
var printed = map[string]string{
	// The session and its roots. A root that consent made has a name and a path that a server chose.
	"control.Root.Name": shown, "control.Root.Path": shown, "control.Root.Resolved": shown, "control.Root.Mode": ours, "control.Root.State": ours,
	"control.Root.Why": said, "control.Root.FSType": ours, "control.Root.Perm": ours, "control.Root.Origin": owners, "control.Root.Subject": shown,
	"control.Root.SharedBy": ours, "control.UnmountAnswer.HeldBy": escaped, "control.Stage.Store": shown, "control.Stage.Damaged": shown, "control.Root.Nested": shown, "control.Root.Repos": shown, "control.Root.Lifted": said, "control.Root.Once": ours,
	"control.Status.Session": owners, "control.Status.Version": ours, "control.Status.Point": shown, "control.Status.Cache": ours, "control.Status.Locks": ours,
	"control.Status.Transport": ours, "control.Status.NoRings": said, "control.Status.Posix": ours, "control.Status.Profile": owners, "control.Status.Config": owners, "control.Status.ConfigError": shown,
	"control.Status.Audit": owners, "control.Status.Unwatched": shown, "control.Status.PathsPolled": said, "control.Quota.Subject": shown, "control.Suspended.Subject": shown, "control.Suspended.Why": shown,
	"control.Confined.Command": shown, "control.Confined.Confinement": ours, "control.Confined.Holes": said, "control.Confined.Hosts": owners, "control.Confined.Secrets": owners, "control.Confined.Map": ours, "control.Confined.Notes": said,
	"control.Confined.Follows": shown, "control.Confined.Closed": shown, "control.Confined.Fixed": shown, "control.Confined.Interpreters": shown,
	"control.NetRequest.Hosts": owners, "control.NetAdded.Added": owners, "control.NetRemoved.Removed": owners, "control.NetState.Hosts": owners, "control.NetState.Secrets": owners, "control.NetState.Reach": ours, "control.NetConnection.Host": escaped, "control.NetConnection.Address": ours, "control.NetConnection.ServerNames": escaped, "control.NetConnection.PermittedBy": owners, "control.NetUnapproved.Host": escaped,
	"control.Layer.Name": ours, "control.Layer.State": ours, "control.Layer.Detail": said, "control.Socket.Name": owners, "control.Socket.Path": owners,
	"control.Socket.Inside": owners, "control.Operation.Op": ours, "control.Operation.Path": escaped, "control.Operation.Via": ours, "control.Operation.Verdict": ours,
	"control.Operation.Reason": ours, "control.Operation.Detail": said, "control.OfSession.Session": owners, "control.Event.Kind": ours, "control.Event.Root": shown, "control.Event.Detail": shown,
	"control.Event.Op": ours, "control.Event.Path": escaped, "control.Event.Reason": ours, "control.Ended.Root": shown, "control.Ended.State": ours, "control.Ended.Error": said,
	"control.ResumeAnswer.Resumed": shown, "control.ProfileAnswer.Profile": owners, "control.ProfileAnswer.Added": owners, "control.ProfileAnswer.Removed": owners,
	"control.ProfileAnswer.Changed": owners, "control.Refusal.Op": ours, "control.Refusal.Path": escaped, "control.Refusal.Reason": ours, "control.Refusal.Remedy": ours,
	"guard.Grant.Root": shown, "guard.Grant.Dir": shown, "guard.Grant.Subject": shown, "guard.Grant.Origin": owners,
	"guard.Pattern.Text": shown, "guard.Pattern.File": shown,
	"control.Refusal.Root": shown, "control.Refusal.Mode": ours, "control.Refusal.Dir": shown,
	"broker.Stats.Subject": shown, "broker.Stats.SharedBy": ours, "broker.Stats.Server": escaped, "broker.Stats.Revision": ours,
	// Questions and denials.
	"broker.Question.Kind": ours, "broker.Host.Name": shown, "broker.Host.Program": shown, "broker.Reached.Host": shown,
	"broker.Question.ID": ours, "broker.Question.Subject": shown, "broker.Question.Server": shown, "broker.Question.Message": shown, "broker.Item.Requested": shown,
	"broker.Item.Resolved": shown, "broker.Item.Mode": ours, "broker.Item.Problem": shown, "control.Question.Heading": said, "control.Question.Lines": said,
	"cli.questionEvent.Event": ours, "control.Answered.ID": ours, "control.Answered.Allowed": escaped, "control.Answered.Denied": escaped,
	"control.Denial.ID": ours, "control.Denial.Subject": shown, "control.Denial.Path": shown, "control.Denial.Host": shown,
	// Policies: a .gitignore of a repository that was cloned makes rules.
	"control.PolicyRule.Effect": ours, "control.PolicyRule.Pattern": shown, "control.PolicyRule.From": shown, "control.PolicyRule.Dir": shown, "control.PolicyRule.When": ours,
	"control.PolicyRule.Reason": owners, "control.RootPolicy.Root": shown, "control.RootPolicy.Mode": ours, "control.RootPolicy.Lifted": said, "control.RootPolicy.Repos": shown,
	"control.CheckAnswer.Path": shown, "control.CheckAnswer.At": shown, "control.Link.At": shown, "control.Link.Target": shown, "control.CheckAnswer.Op": owners, "control.CheckAnswer.Reason": ours, "control.CheckAnswer.Lacks": ours, "control.CheckAnswer.Root": shown,
	// The trash and the audit log: names of a server's files.
	"vfs.Trashed.ID": ours, "vfs.Trashed.Root": shown, "vfs.Trashed.Path": shown, "vfs.Trashed.Op": shown, "vfs.Trashed.Type": ours, "vfs.Trashed.Subject": shown, "vfs.Trashed.Via": ours,
	"control.RestoreAnswer.Root": shown, "control.RestoreAnswer.Path": escaped, "audit.Report.Session": owners, "audit.Report.Problem": shown,
	"audit.Entry.Session": shown, "audit.Entry.Verdict": shown, "audit.Entry.Op": shown, "audit.Entry.Root": shown, "audit.Entry.Root2": shown,
	"audit.Entry.Path": shown, "audit.Entry.Path2": shown, "audit.Entry.PathHash": shown, "audit.Entry.Path2Hash": shown, "audit.Entry.Kind": shown, "audit.Entry.Errno": shown,
	"audit.Entry.Rights": shown, "audit.Entry.Via": shown, "audit.Entry.Subject": shown, "audit.Entry.Detail": shown,
	// Stages: names and contents of a server's files.
	"cli.stageEntry.Stage": shown, "cli.stageEntry.Root": shown, "cli.stageEntry.Path": shown, "cli.stageEntry.Subject": shown, "cli.stageEntry.HeldBy": shown,
	"cli.stageEntry.Store": shown, "cli.stageEntry.Damaged": shown, "cli.stageResult.Root": shown, "cli.stageResult.Path": shown,
	"cli.stageDiffEntry.Path": shown, "cli.stageDiffEntry.From": shown, "cli.stageDiffEntry.Patch": shown, "cli.stageDiffEntry.Why": shown,
	"cli.stageDiffEntry.Change": ours, "cli.stageDiffEntry.Mode": ours, "cli.stageDiffEntry.OldMode": ours,
	"vfs.StageChange.Path": shown, "vfs.StageChange.Why": shown,
	// wrap: a repository's .mcp.json.
	"hostconfig.Server.Name": shown, "hostconfig.Server.Project": shown, "hostconfig.Server.Type": shown, "hostconfig.Server.Command": shown, "hostconfig.Server.Args": shown,
	"hostconfig.Server.Env": shown, "hostconfig.Server.EnvFile": shown, "hostconfig.Server.Dir": shown, "cli.wrapResult.File": owners, "cli.wrapResult.Target": owners,
	"cli.wrapResult.Format": ours, "cli.wrapResult.Backup": owners, "cli.wrapResult.Diff": escaped, "cli.wrapServer.Name": shown, "cli.wrapServer.Project": shown,
	"cli.wrapServer.State": ours, "cli.wrapRoot.Spec": shown, "cli.wrapRoot.From": said, "cli.wrapRoot.Resolved": shown, "cli.wrapServer.Env": shown,
	"cli.wrapServer.Home": owners, "cli.wrapServer.Fetcher": ours, "cli.wrapServer.Notes": said, "cli.wrapServer.Broad": shown,
	"cli.setupHost.Host": ours, "cli.setupHost.Problem": said, "cli.setupResult.Agents": ours,
	// why: names of a server's files, and of records.
	"cli.explanation.Detail": escaped, "cli.explanation.Session": shown, "cli.explanation.RootPath": shown, "cli.explanation.Mode": ours,
	"cli.explanation.Confinement": ours, "cli.explanation.Limit": ours, "cli.explanation.LimitValue": ours, "cli.explanation.Since": shown, "cli.explanation.Allow": said, "cli.explanation.Advice": said,
	"cli.linkFound.At": shown, "cli.linkFound.Target": shown,
	"cli.refusedLink.at": shown, "cli.refusedLink.text": shown, "cli.refusedLink.dest": shown,
	// What only the owner and the machine decide.
	"cli.configReport.File": owners, "cli.configReport.Resolved": owners, "cli.configProblem.Key": owners, "cli.configProblem.Error": said, "cli.configSet.Profile": owners,
	"cli.rootTrial.Name": owners, "cli.rootTrial.Path": owners, "cli.rootTrial.Resolved": owners, "cli.rootTrial.Mode": ours, "cli.rootTrial.Subject": owners,
	"cli.rootTrial.Lifted": said, "cli.rootTrial.Problem": said, "cli.consoleMessage.URL": ours, "cli.readyMessage.Session": owners, "cli.readyMessage.Point": owners,
	"cli.readyMessage.Line": said, "cli.readyMessage.Log": owners, "cli.readyMessage.Error": said, "cli.check.Name": ours, "cli.check.Path": owners,
	"cli.check.Status": ours, "cli.check.Detail": said, "cli.check.Remedy": said, "cli.diagnosis.Verdict": ours, "cli.addResult.Saved": owners,
	"cli.servingMessage.URL": ours, "cli.servingMessage.Session": owners, "cli.servingMessage.TokenFile": owners, "cli.servingMessage.Issuer": owners,
	"cli.unmountResult.Session": owners, "cli.unmountResult.Point": owners, "cli.versionInfo.Version": ours, "cli.versionInfo.Revision": ours, "cli.versionInfo.Go": ours,
	"cli.versionInfo.Platform": ours, "cli.versionInfo.Date": ours,
}

// media are the other ways out, and the one function in which each escapes.
var media = map[string]string{
	"JSON of every command":        "cmd/rootsfs/internal/cli/output.go: func (a *app) encode(",
	"records with --json":          "cmd/rootsfs/internal/cli/cmd_audit.go: names.JSON(e.Line)",
	"errors":                       "cmd/rootsfs/internal/cli/output.go: names.EscapeQuoted(text)",
	"logs":                         "cmd/rootsfs/internal/cli/output.go: func logAttr(",
	"completion":                   "cmd/rootsfs/internal/cli/complete.go: func (o offered) Write(",
	"commands to type":             "guard/names/foreign.go: func ShellWord[",
	"notifications":                "cmd/rootsfs/internal/notify/notify.go: names.EscapeQuoted(s)",
	"labels of metrics":            "cmd/rootsfs/internal/session/metrics.go: names.Escape(st.Subject)",
	"the patch of a stage":         "cmd/rootsfs/internal/cli/stage_diff.go: func visibleText(",
	"records for people":           "cmd/rootsfs/internal/cli/cmd_audit.go: func auditDetails(",
	"the console's page":           "cmd/rootsfs/internal/console/web/dom.js: export function visible(",
	"the change that wrap shows":   "cmd/rootsfs/internal/cli/wrap_report.go: func visibleLine(",
	"questions on a terminal":      "broker/terminal.go: func Heading(",
	"questions in consent list":    "cmd/rootsfs/internal/cli/output.go: func (a *app) fold(",
	"roots and rights of --learn":  "cmd/rootsfs/internal/cli/run_learn.go: func (p *learnedFlags) add(",
	"help: nobody else chooses it": "cmd/rootsfs/internal/cli/app.go: func newRootCmd(",
}

// asTheyAre are the files that take the raw text of a names.Foreign, and why.
var asTheyAre = map[string]string{
	"cmd/rootsfs/internal/hostconfig/propose.go": "the directory that a server's paths begin at",
	"cmd/rootsfs/internal/cli/cmd_wrap.go":       "compares with --server, and makes the name of a directory; completion filters",
	"cmd/rootsfs/internal/cli/why_explain.go":    "compares with the name of a file, and joins a path",
	"cmd/rootsfs/internal/cli/texts.go":          "joins a path, which QuoteIfNeeded escapes",
}

// notPrinted are the places that only look like printing, and why.
var notPrinted = map[string]string{
	"cmd/rootsfs/internal/top/keys.go: control.Root.Name":             "an argument of a request",
	"cmd/rootsfs/internal/cli/run_places.go: guard.Grant.Dir":         "collects paths",
	"cmd/rootsfs/internal/consent/consent.go: control.Denial.Subject": "a record's detail, which is escaped when it is shown",
}

// Every text field that a command prints is on the list, and no function prints text that
// others choose unescaped.
func TestForeignTextIsShown(t *testing.T) {
	seen := map[string]types.Type{}
	for _, c := range load(t) {
		for _, f := range c.files {
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"report", "line"}, sel.Sel.Name) {
					c.texts(c.info.Types[call.Args[0]].Type, seen)
				}
				return true
			})
		}
		for _, name := range []string{"Refusal", "Server", "Event", "Status"} { // beside what report prints
			if obj := c.pkg.Scope().Lookup(name); obj != nil && slices.Contains([]string{"control", "hostconfig"}, c.pkg.Name()) {
				c.texts(obj.Type(), seen)
			}
		}
	}
	for name := range seen {
		if printed[name] == "" && !strings.HasPrefix(name, "sandbox.") {
			t.Errorf("%s is text that a command can print: put it on the list, with the rule by which it is printed", name)
		}
	}
	used := map[string]bool{}
	for _, c := range load(t) {
		for _, where := range c.rawPrints(func(f string) bool { return printed[f] == shown }) {
			file, field, _ := strings.Cut(strings.TrimPrefix(where, c.top()), ":")
			field = field[strings.LastIndex(field, " ")+1:]
			used[file+": "+field] = true
			if notPrinted[file+": "+field] == "" {
				t.Errorf("%s is printed as it is, and somebody else may have chosen it: make it a names.Foreign, or call names.Quote, QuoteIfNeeded, …", where)
			}
		}
	}
	for key := range notPrinted {
		if !used[key] {
			t.Errorf("%s is an exception that nothing needs", key)
		}
	}
	for what, where := range media {
		file, has, _ := strings.Cut(where, ": ")
		if data, err := os.ReadFile(filepath.Join("../..", file)); err != nil || !bytes.Contains(data, []byte(has)) {
			t.Errorf("%s: %s does not hold %q any more (%v): where is it escaped?", what, file, has, err)
		}
	}
}

// The raw text of a names.Foreign is taken in the files on the list only.
func TestForeignStaysForeign(t *testing.T) {
	used := map[string]bool{}
	for _, c := range load(t) {
		for _, f := range c.files {
			file := strings.TrimPrefix(c.fset.Position(f.Pos()).Filename, c.top())
			for _, at := range c.raws(f) {
				if used[file] = true; asTheyAre[file] == "" {
					t.Errorf("%s takes the raw text of a names.Foreign: print it by fmt, names.Quote or names.ShellWord, or put the file on the list with the reason", c.fset.Position(at.Pos()))
				}
			}
		}
	}
	for file := range asTheyAre {
		if !used[file] {
			t.Errorf("%s is an exception that nothing needs", file)
		}
	}
}

// The checks find planted errors.
func TestRawForeignIsFound(t *testing.T) {
	const code = `package p
import "fmt"
type Foreign string
type T struct{ Name, Other string; List []string }
func say(string, ...any) {}
func quote(s string) string { return s }
func f(t *T, q struct{ T }) {
	say("%s", t.Name)
	fmt.Println("x" + t.Name)
	_ = []string{"a", t.Name}
	for _, one := range t.List { fmt.Printf("%s", one) }
	n := t.Name
	say("%s", n)
	say("%s", q.Name)
	say("%s", string(t.Name))
	say("%s", quote(t.Name))
	say("%s", quote("x" + t.Name))
	say("%s", t.Other)
	_ = t.Name == "x"
}`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", code, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	c := checked{fset: fset, files: []*ast.File{file}, info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	if _, err := conf.Check("p", fset, c.files, c.info); err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, where := range c.rawPrints(func(f string) bool { return f == "p.T.Name" || f == "p.T.List" }) {
		var line, column int
		if _, err := fmt.Sscanf(where, "p.go:%d:%d:", &line, &column); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if want := []int{8, 9, 10, 11, 13, 14, 15}; !slices.Equal(lines, want) {
		t.Errorf("found in the lines %v, want %v", lines, want)
	}
}
