package deps

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// These constants tell where the text of a printed field comes from. A field whose type escapes
// itself when it is printed, such as names.Foreign (printsItself), needs no constant. Every other
// text field that a command can print has one in the list printed. Such a field may not hold text
// that a server, a file or a host chose.
const (
	ours     = "ours"     // a word, a number or an address that rootsfs or the system makes
	owners   = "owners"   // the owner's own: a flag, the configuration, the machine
	sentence = "sentence" // a sentence of the program, in which names are quoted
)

// printed lists the text fields of values that commands print or take texts from, with the origin
// of the text. Commands print these values for people, or as JSON, in which names.JSON escapes
// every text. Fields whose types escape themselves are not listed.
var printed = map[string]string{
	// The session, its roots, questions and policies.
	"audit.Report.Session": owners, "broker.Item.Mode": ours, "broker.Question.ID": ours, "broker.Question.Kind": ours, "broker.Stats.Revision": ours,
	"broker.Stats.SharedBy": ours, "control.AnswerAnswer.Saved": owners, "control.Answered.ID": ours, "control.CheckAnswer.Lacks": ours, "control.CheckAnswer.Op": owners, "control.CheckAnswer.Reason": ours,
	"control.Confined.Confinement": ours, "control.Confined.Hosts": owners, "control.Confined.Map": ours, "control.Confined.Secrets": owners, "control.Denial.ID": ours,
	"control.Ended.State": ours, "control.Event.Kind": ours, "control.Event.Op": ours, "control.Event.Reason": ours, "control.Layer.Name": ours, "control.Layer.State": ours,
	"control.NetAdded.Added": owners, "control.NetConnection.Address": ours, "control.NetConnection.PermittedBy": owners, "control.NetRemoved.Removed": owners,
	"control.NetState.Hosts": owners, "control.NetState.Reach": ours, "control.NetState.Secrets": owners, "control.OfSession.Session": owners, "control.SecretUse.Secret": owners,
	"control.Operation.Op": ours, "control.Operation.Reason": ours, "control.Operation.Verdict": ours, "control.Operation.Via": ours, "control.PolicyRule.Effect": ours,
	"control.PolicyRule.Reason": owners, "control.PolicyRule.When": ours, "control.ProfileAnswer.Added": owners, "control.ProfileAnswer.Changed": owners,
	"control.Paused.Cause": ours, "control.ProfileAnswer.Profile": owners, "control.ProfileAnswer.Removed": owners, "control.Refusal.Mode": ours, "control.Refusal.Op": ours, "control.Refusal.Reason": ours,
	"control.Refusal.Remedy": ours, "control.Root.FSType": ours, "control.Root.Mode": ours, "control.Root.Once": ours, "control.Root.Origin": owners, "control.Root.Perm": ours,
	"control.Root.SharedBy": ours, "control.Root.State": ours, "control.RootPolicy.Mode": ours, "control.Socket.Inside": owners, "control.Socket.Name": owners,
	"control.Socket.Path": owners, "control.Status.Audit": owners, "control.Status.Cache": ours, "control.Status.Config": owners, "control.Status.Locks": ours,
	"control.Status.Posix": ours, "control.Status.Profile": owners, "control.Status.Session": owners, "control.Status.Transport": ours, "control.Status.Version": ours,
	"rules.Grant.Origin": owners, "trash.Entry.ID": ours, "trash.Entry.Type": ours, "trash.Entry.Via": ours,
	// These texts come from the owner, the machine or rootsfs only.
	"cli.addResult.Saved": owners, "cli.ceilingBound.Key": ours, "cli.ceilingBound.Most": ours, "cli.check.Detail": sentence, "cli.check.Name": ours, "cli.check.Path": owners, "cli.check.Remedy": sentence, "cli.check.Status": ours,
	"cli.configProblem.Error": sentence, "cli.configProblem.Key": owners, "cli.configReport.File": owners, "cli.configReport.Resolved": owners, "cli.configSet.Profile": owners,
	"cli.consoleMessage.URL": ours, "cli.diagnosis.Verdict": ours, "cli.endedPause.Session": owners, "cli.explanation.Confinement": ours, "cli.explanation.Limit": ours, "cli.explanation.LimitValue": ours,
	"cli.explanation.Mode": ours, "cli.pauseResult.Session": owners, "cli.questionEvent.Event": ours, "cli.readyMessage.Error": sentence, "cli.readyMessage.Line": sentence, "cli.readyMessage.Log": owners,
	"cli.readyMessage.Point": owners, "cli.readyMessage.Session": owners, "cli.rootTrial.Lifted": sentence, "cli.rootTrial.Mode": ours, "cli.rootTrial.Name": owners,
	"cli.rootTrial.Path": owners, "cli.rootTrial.Problem": sentence, "cli.rootTrial.Resolved": owners, "cli.rootTrial.Subject": owners, "cli.servingMessage.Issuer": owners,
	"cli.servingMessage.Session": owners, "cli.servingMessage.TokenFile": owners, "cli.servingMessage.URL": ours, "cli.setupHost.Host": ours, "cli.setupHost.Problem": sentence,
	"cli.setupResult.Agents": ours, "cli.stageDiffEntry.Change": ours, "cli.stageDiffEntry.Mode": ours, "cli.stageDiffEntry.OldMode": ours, "cli.undoChange.Change": ours, "cli.unmountResult.Point": owners,
	"cli.unmountResult.Session": owners, "cli.versionInfo.Date": ours, "cli.versionInfo.Go": ours, "cli.versionInfo.Platform": ours, "cli.versionInfo.Revision": ours,
	"cli.versionInfo.Version": ours, "cli.wrapResult.Backup": owners, "cli.wrapResult.File": owners, "cli.wrapResult.Format": ours, "cli.wrapResult.Target": owners,
	"cli.wrapServer.Fetcher": ours, "cli.wrapServer.Home": owners, "cli.wrapServer.State": ours,
}

// media lists the other ways in which a text reaches a person, each with the file and the code in
// it that escapes the text there.
var media = map[string]string{
	"JSON of every command":        "cmd/rootsfs/internal/cli/output.go: func (a *app) encode(",
	"records with --json":          "cmd/rootsfs/internal/cli/cmd_audit.go: names.JSON(e.Line)",
	"errors":                       "cmd/rootsfs/internal/cli/output.go: names.EscapeQuoted(text)",
	"logs":                         "cmd/rootsfs/internal/cli/output.go: func logAttr(",
	"completion":                   "cmd/rootsfs/internal/cli/complete.go: func (o completionWriter) Write(",
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

// rawExceptions lists the files in which a raw text looks printed and is not, with the reason.
var rawExceptions = map[string]string{
	"cmd/rootsfs/internal/config/save.go":     "a list of texts that are checked",
	"cmd/rootsfs/internal/top/keys.go":        "an argument of a request",
	"cmd/rootsfs/internal/cli/run_roots.go":   "a list of paths that are not printed",
	"cmd/rootsfs/internal/consent/consent.go": "a record's detail, which is escaped when it is shown",
}

// Every text field that a command prints has a type that escapes itself (printsItself), or is on
// the list printed. Fields of package sandbox are exempt.
func TestForeignTextIsEscaped(t *testing.T) {
	seen := map[string]types.Type{}
	for _, c := range load(t) {
		for _, f := range c.files {
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"report", "line", "lineOr", "encode"}, sel.Sel.Name) {
					c.addTexts(c.info.Types[call.Args[0]].Type, seen)
				}
				return true
			})
		}
		for name, instance := range c.info.Instances { // do and show print the answer of a session
			for i := 0; i < instance.TypeArgs.Len() && c.pkg.Name() == "cli" && (name.Name == "do" || name.Name == "show"); i++ {
				if t := instance.TypeArgs.At(i); !strings.HasSuffix(t.String(), "Request") {
					c.addTexts(t, seen)
				}
			}
		}
		for _, name := range []string{"Refusal", "Server", "Event", "Status"} { // printed by other functions
			if obj := c.pkg.Scope().Lookup(name); obj != nil && slices.Contains([]string{"control", "hostconfig"}, c.pkg.Name()) {
				c.addTexts(obj.Type(), seen)
			}
		}
	}
	for name, typ := range seen {
		switch row := printed[name]; {
		case printsItself(typ) && row != "":
			t.Errorf("%s is on the list, and its type prints itself: remove the row", name)
		case !printsItself(typ) && row == "" && !strings.HasPrefix(name, "sandbox."):
			t.Errorf("%s is text that a command can print: if a server, a file or a host may have chosen it, make it a names.Foreign or names.Text; if not, put it on the list", name)
		}
	}
	for name := range printed {
		if seen[name] == nil {
			t.Errorf("%s is on the list, and no command prints it: remove the row", name)
		}
	}
	for what, where := range media {
		file, has, _ := strings.Cut(where, ": ")
		if data, err := os.ReadFile(filepath.Join("../..", file)); err != nil || !bytes.Contains(data, []byte(has)) {
			t.Errorf("%s: %s does not hold %q any more (%v): where is it escaped?", what, file, has, err)
		}
	}
}

// No code prints the raw text of a names.Foreign or names.Text. Code may compare the raw text, open
// it as a path, or send it on.
func TestRawTextIsNotPrinted(t *testing.T) {
	used := map[string]bool{}
	for _, c := range load(t) {
		for _, f := range c.files {
			for _, at := range c.printedRaws(f) {
				where := strings.TrimPrefix(c.fset.Position(at.Pos()).String(), c.top())
				file, _, _ := strings.Cut(where, ":")
				if used[file] = true; rawExceptions[file] == "" {
					t.Errorf("%s prints the raw text of a names.Foreign or names.Text: print the text itself", where)
				}
			}
		}
	}
	for file := range rawExceptions {
		if !used[file] {
			t.Errorf("%s is an exception that nothing needs", file)
		}
	}
}

// plant type-checks code as if it were package names, so that printsItself takes its
// type Foreign for names.Foreign.
func plant(t *testing.T, code string) *typedPackage {
	t.Helper()
	_, fset, imports, err := compilePackages("fmt")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(fset, "p.go", code, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	c := &typedPackage{fset: fset, files: []*ast.File{file}, info: newInfo()}
	conf := types.Config{Importer: imports}
	if c.pkg, err = conf.Check(module+"/guard/names", fset, c.files, c.info); err != nil {
		t.Fatal(err)
	}
	return c
}

// The text fields of a value are found wherever the value holds them, also behind an alias.
// printsItself recognizes types that escape themselves, also under an alias.
func TestTextFieldsAreFound(t *testing.T) {
	c := plant(t, `package names
type Foreign string
type Own = Foreign
type Inner struct { Plain string; Shown Own; Names []Own; Skipped string `+"`json:\"-\"`"+`; own string; Number int }
type Alias = Inner
type Embedded struct { Text string }
type Other = Embedded
type List = []*Deep
type Deep struct { ByID map[string]string }
type Answer struct { *Other; A Alias; L List; Kind Word }
type Word string
`)
	seen := map[string]types.Type{}
	c.addTexts(c.pkg.Scope().Lookup("Answer").Type(), seen)
	got := map[string]bool{}
	for name, typ := range seen {
		got[name] = printsItself(typ)
	}
	want := map[string]bool{
		"names.Inner.Plain": false, "names.Inner.Shown": true, "names.Inner.Names": true,
		"names.Embedded.Text": false, "names.Deep.ByID": false, "names.Answer.Kind": false,
	}
	if !maps.Equal(got, want) {
		t.Errorf("found, and whether it prints itself: %v; want %v", got, want)
	}
}

// printedRaws finds raw texts that are printed or put into a list of strings. It does not find raw
// texts that another function takes or that are compared.
func TestRawForeignIsFound(t *testing.T) {
	c := plant(t, `package names
import "fmt"
type Foreign string
func (f Foreign) Raw() string { return string(f) }
type T struct{ Own Foreign }
func say(string, ...any) {}
func quote(s string) string { return s }
func f(t *T) {
	say("%s", t.Own)
	say("%s", t.Own.Raw())
	say("%s", "x" + string(t.Own))
	_ = []string{t.Own.Raw()}
	fmt.Println("x" + t.Own.Raw())
	say("%s", quote(t.Own.Raw()))
	_ = t.Own.Raw() == "x"
}`)
	var lines []int
	for _, at := range c.printedRaws(c.files[0]) {
		lines = append(lines, c.fset.Position(at.Pos()).Line)
	}
	if want := []int{10, 11, 12, 13}; !slices.Equal(lines, want) {
		t.Errorf("raw texts are found in the lines %v, want %v", lines, want)
	}
}
