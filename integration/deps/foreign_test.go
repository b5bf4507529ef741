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

// The rules by which a text reaches a person. A field of type names.Foreign or names.Text prints
// itself; each field of another type of text that a command can print has a rule.
const (
	ours    = "ours"    // a word, a number or an address that rootsfs or the system makes
	owners  = "owners"  // the owner's own: a flag, the configuration, the machine
	shown   = "shown"   // a server, file or host may have chosen it: it is printed by a function that escapes
	escaped = "escaped" // the same, and it is filled with a result of names.Escape or names.Quote
	said    = "said"    // a sentence of the program, in which names are quoted
)

// printed are the text fields, of other types than names.Foreign and names.Text, of values that
// commands print, in JSON (where names.JSON escapes all of it) or for people, or take texts from.
var printed = map[string]string{
	// A grant, a rule, a removed file and a server of a host have texts that somebody else chose.
	"broker.Question.Subject": shown, "cli.stageDiffEntry.Patch": shown, "cli.wrapResult.Diff": escaped, "rules.Grant.Root": shown,
	"rules.Grant.Subject": shown,
	"apply.Change.Path":   shown,
	"apply.Change.Why":    shown, "apply.Change.Output": shown, "trash.Entry.Subject": shown,
	// The session, its roots, questions and policies.
	"audit.Report.Session": owners, "broker.Item.Mode": ours, "broker.Question.ID": ours, "broker.Question.Kind": ours, "broker.Stats.Revision": ours,
	"broker.Stats.SharedBy": ours, "control.Answered.ID": ours, "control.CheckAnswer.Lacks": ours, "control.CheckAnswer.Op": owners, "control.CheckAnswer.Reason": ours,
	"control.Confined.Confinement": ours, "control.Confined.Hosts": owners, "control.Confined.Map": ours, "control.Confined.Secrets": owners, "control.Denial.ID": ours,
	"control.Ended.State": ours, "control.Event.Kind": ours, "control.Event.Op": ours, "control.Event.Reason": ours, "control.Layer.Name": ours, "control.Layer.State": ours,
	"control.NetAdded.Added": owners, "control.NetConnection.Address": ours, "control.NetConnection.PermittedBy": owners, "control.NetRemoved.Removed": owners,
	"control.NetRequest.Hosts": owners, "control.NetState.Hosts": owners, "control.NetState.Reach": ours, "control.NetState.Secrets": owners, "control.OfSession.Session": owners,
	"control.Operation.Op": ours, "control.Operation.Reason": ours, "control.Operation.Verdict": ours, "control.Operation.Via": ours, "control.PolicyRule.Effect": ours,
	"control.PolicyRule.Reason": owners, "control.PolicyRule.When": ours, "control.ProfileAnswer.Added": owners, "control.ProfileAnswer.Changed": owners,
	"control.Paused.Cause": ours, "control.ProfileAnswer.Profile": owners, "control.ProfileAnswer.Removed": owners, "control.Refusal.Mode": ours, "control.Refusal.Op": ours, "control.Refusal.Reason": ours,
	"control.Refusal.Remedy": ours, "control.Root.FSType": ours, "control.Root.Mode": ours, "control.Root.Once": ours, "control.Root.Origin": owners, "control.Root.Perm": ours,
	"control.Root.SharedBy": ours, "control.Root.State": ours, "control.RootPolicy.Mode": ours, "control.Socket.Inside": owners, "control.Socket.Name": owners,
	"control.Socket.Path": owners, "control.Status.Audit": owners, "control.Status.Cache": ours, "control.Status.Config": owners, "control.Status.Locks": ours,
	"control.Status.Posix": ours, "control.Status.Profile": owners, "control.Status.Session": owners, "control.Status.Transport": ours, "control.Status.Version": ours,
	"rules.Grant.Origin": owners, "trash.Entry.ID": ours, "trash.Entry.Type": ours, "trash.Entry.Via": ours,
	// What only the owner, the machine and rootsfs decide.
	"cli.addResult.Saved": owners, "cli.check.Detail": said, "cli.check.Name": ours, "cli.check.Path": owners, "cli.check.Remedy": said, "cli.check.Status": ours,
	"cli.configProblem.Error": said, "cli.configProblem.Key": owners, "cli.configReport.File": owners, "cli.configReport.Resolved": owners, "cli.configSet.Profile": owners,
	"cli.consoleMessage.URL": ours, "cli.diagnosis.Verdict": ours, "cli.endedPause.Session": owners, "cli.explanation.Confinement": ours, "cli.explanation.Limit": ours, "cli.explanation.LimitValue": ours,
	"cli.explanation.Mode": ours, "cli.pauseResult.Session": owners, "cli.questionEvent.Event": ours, "cli.readyMessage.Error": said, "cli.readyMessage.Line": said, "cli.readyMessage.Log": owners,
	"cli.readyMessage.Point": owners, "cli.readyMessage.Session": owners, "cli.rootTrial.Lifted": said, "cli.rootTrial.Mode": ours, "cli.rootTrial.Name": owners,
	"cli.rootTrial.Path": owners, "cli.rootTrial.Problem": said, "cli.rootTrial.Resolved": owners, "cli.rootTrial.Subject": owners, "cli.servingMessage.Issuer": owners,
	"cli.servingMessage.Session": owners, "cli.servingMessage.TokenFile": owners, "cli.servingMessage.URL": ours, "cli.setupHost.Host": ours, "cli.setupHost.Problem": said,
	"cli.setupResult.Agents": ours, "cli.stageDiffEntry.Change": ours, "cli.stageDiffEntry.Mode": ours, "cli.stageDiffEntry.OldMode": ours, "cli.undoChange.Change": ours, "cli.unmountResult.Point": owners,
	"cli.unmountResult.Session": owners, "cli.versionInfo.Date": ours, "cli.versionInfo.Go": ours, "cli.versionInfo.Platform": ours, "cli.versionInfo.Revision": ours,
	"cli.versionInfo.Version": ours, "cli.wrapResult.Backup": owners, "cli.wrapResult.File": owners, "cli.wrapResult.Format": ours, "cli.wrapResult.Target": owners,
	"cli.wrapServer.Fetcher": ours, "cli.wrapServer.Home": owners, "cli.wrapServer.State": ours,
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

// rawUsed are the files in which a raw text only looks printed, and why.
var rawUsed = map[string]string{
	"cmd/rootsfs/internal/top/keys.go":        "an argument of a request",
	"cmd/rootsfs/internal/cli/run_places.go":  "a list of paths that are not printed",
	"cmd/rootsfs/internal/consent/consent.go": "a record's detail, which is escaped when it is shown",
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
	for name, typ := range seen {
		switch row := printed[name]; {
		case printsItself(typ) && row != "":
			t.Errorf("%s is on the list, and its type prints itself: remove the row", name)
		case !printsItself(typ) && row == "" && !strings.HasPrefix(name, "sandbox."):
			t.Errorf("%s is text that a command can print: make it a names.Foreign or names.Text, or put it on the list, with the rule by which it is printed", name)
		}
	}
	for _, c := range load(t) {
		for _, where := range c.rawPrints(func(f string) bool { return printed[f] == shown }) {
			t.Errorf("%s is printed as it is, and somebody else may have chosen it: make it a names.Foreign, or call names.Quote, QuoteIfNeeded, …", where)
		}
	}
	for what, where := range media {
		file, has, _ := strings.Cut(where, ": ")
		if data, err := os.ReadFile(filepath.Join("../..", file)); err != nil || !bytes.Contains(data, []byte(has)) {
			t.Errorf("%s: %s does not hold %q any more (%v): where is it escaped?", what, file, has, err)
		}
	}
}

// The raw text of a names.Foreign or names.Text is compared, opened or sent on, and not printed.
func TestRawTextIsNotPrinted(t *testing.T) {
	used := map[string]bool{}
	for _, c := range load(t) {
		for _, f := range c.files {
			for _, at := range c.raws(f) {
				where := strings.TrimPrefix(c.fset.Position(at.Pos()).String(), c.top())
				file, _, _ := strings.Cut(where, ":")
				if used[file] = true; rawUsed[file] == "" {
					t.Errorf("%s prints the raw text of a names.Foreign or names.Text: print the text itself", where)
				}
			}
		}
	}
	for file := range rawUsed {
		if !used[file] {
			t.Errorf("%s is an exception that nothing needs", file)
		}
	}
}

// The checks find planted errors.
func TestRawForeignIsFound(t *testing.T) {
	const code = `package names
import "fmt"
type Foreign string
func (f Foreign) Raw() string { return string(f) }
type T struct{ Name, Other string; List []string; Own Foreign }
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
	say("%s", t.Own)
	say("%s", t.Own.Raw())
	say("%s", "x" + string(t.Own))
	say("%s", quote(t.Own.Raw()))
	_ = t.Own.Raw() == "x"
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
	if _, err := conf.Check(module+"/guard/names", fset, c.files, c.info); err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, where := range c.rawPrints(func(f string) bool { return f == "names.T.Name" || f == "names.T.List" || f == "names.T.Own" }) {
		var line, column int
		if _, err := fmt.Sscanf(where, "p.go:%d:%d:", &line, &column); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if want := []int{9, 10, 11, 12, 14, 15, 16}; !slices.Equal(lines, want) {
		t.Errorf("found in the lines %v, want %v", lines, want)
	}
	lines = nil
	for _, at := range c.raws(file) {
		lines = append(lines, fset.Position(at.Pos()).Line)
	}
	if want := []int{18, 19}; !slices.Equal(lines, want) {
		t.Errorf("raw texts are found in the lines %v, want %v", lines, want)
	}
}
