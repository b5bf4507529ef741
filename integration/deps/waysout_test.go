package deps

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// waysOut lists the ways by which text leaves the program, as "FILE KIND" with a kind of wayOut.
// Each has the rule that makes foreign text safe there. A way out that is not listed fails
// TestWaysOutAreKnown. TestForeignTextIsEscaped checks the texts that fmt prints.
var waysOut = map[string]string{
	// Metrics and logs.
	"cmd/rootsfs/internal/session/metrics.go label": "names.Escape of subjects; roots have checked names",
	"cmd/rootsfs/internal/cli/output.go handler":    "ReplaceAttr: logAttr",
	// An encoder of JSON escapes quotes, so that a text cannot end its string. The rule tells who
	// reads the JSON, or which function escapes the rest.
	"broker/internal/jsonline/append.go encoder":       "frames for a peer",
	"cmd/rootsfs/internal/cli/mount_daemon.go encoder": "our own other process",
	"cmd/rootsfs/internal/console/server.go encoder":   "the page, which shows texts by visible of dom.js",
	"cmd/rootsfs/internal/control/server.go encoder":   "the command, which prints by its own rules",
	"cmd/rootsfs/internal/control/verb.go encoder":     "the command, which prints by its own rules",
	"cmd/rootsfs/internal/cli/output.go encoder":       "names.JSON",
	// HTTP clients read the text of http.Error.
	"broker/client/http.go error":    "sentences of ours",
	"broker/tools/http.go error":     "sentences of ours",
	"broker/tools/messages.go error": "sentences of ours",
	// The standard streams.
	"broker/client/lines.go stream":                    "frames of the protocol",
	"cmd/rootsfs/internal/cli/mount_daemon.go stream":  "is handed to our own other process",
	"cmd/rootsfs/internal/cleanup/clean.go stream":     "a sentence of ours",
	"cmd/rootsfs/internal/cleanup/cleaner.go stream":   "is handed to our own other process",
	"cmd/rootsfs/internal/export/ocsf.go stream":       "names.JSON",
	"cmd/rootsfs/main.go stream":                       "the app's writers, which output.go uses; a sentence of ours",
	"cmd/rootsfs/rootsfs-fleet/main.go stream":         "the app's writers, which output.go uses",
	"cmd/rootsfs/internal/cli/run_runner.go stream":    "is handed to the program that run starts",
	"cmd/rootsfs/internal/fleetcli/with.go stream":     "is handed to our own other process",
	"cmd/rootsfs/internal/cli/output.go stream":        "the log, see handler",
	"cmd/rootsfs/internal/cli/flags_session.go stream": "the log, see handler",
	"cmd/rootsfs/internal/cli/signals.go stream":       "the stacks of our own goroutines",
	"cmd/rootsfs/internal/secret/source.go stream":     "is handed to a command of the owner's",
}

// wayOut returns the kind of the way out that a node is, such as "stream". It returns "" if the
// node is no way out.
func wayOut(n ast.Node) string {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	from := ""
	if x, ok := sel.X.(*ast.Ident); ok {
		from = x.Name
	}
	switch name := sel.Sel.Name; {
	case from == "slog" && strings.HasSuffix(name, "Handler") && strings.HasPrefix(name, "New"):
		return "handler"
	case from == "prometheus" && strings.HasPrefix(name, "MustNew"):
		return "label"
	case name == "NewEncoder" && from != "hex" && from != "base64":
		return "encoder"
	case from == "http" && name == "Error":
		return "error"
	case from == "os" && (name == "Stdout" || name == "Stderr"):
		return "stream"
	}
	return ""
}

// Every way out that wayOut finds in cmd and broker is in waysOut, with a rule.
func TestWaysOutAreKnown(t *testing.T) {
	used := map[string]bool{}
	for _, dir := range []string{"cmd", "broker"} {
		for _, s := range sources(t, dir) {
			ast.Inspect(s.file, func(n ast.Node) bool {
				way := wayOut(n)
				if way == "" {
					return true
				}
				key := s.rel + " " + way
				if used[key] = true; waysOut[key] == "" {
					t.Errorf("%s: a way out (%s) that is not on the list: put it there with the rule by which foreign text is safe", s.fset.Position(n.Pos()), way)
				}
				return true
			})
		}
	}
	for key := range waysOut {
		file, _, _ := strings.Cut(key, " ")
		if _, err := os.Stat(filepath.Join(top(t), file)); err == nil && !used[key] {
			t.Errorf("%s is on the list, and nothing needs it", key)
		}
	}
}

// Each handler of a log has a function ReplaceAttr, which escapes values that the handler may not
// quote.
func TestLogsEscape(t *testing.T) {
	for _, dir := range []string{"cmd", "broker"} {
		for _, s := range sources(t, dir) {
			ast.Inspect(s.file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || wayOut(call.Fun) != "handler" {
					return true
				}
				escapes := false
				ast.Inspect(call, func(n ast.Node) bool {
					kv, ok := n.(*ast.KeyValueExpr)
					if ok {
						key, _ := kv.Key.(*ast.Ident)
						escapes = escapes || key != nil && key.Name == "ReplaceAttr"
					}
					return true
				})
				if !escapes {
					t.Errorf("%s: a handler without ReplaceAttr", s.fset.Position(call.Pos()))
				}
				return true
			})
		}
	}
}

// The scripts of the console's page use no property or function that takes a text as HTML or
// script.
func TestPageMakesNoHTML(t *testing.T) {
	sinks := regexp.MustCompile(`\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|eval|setHTMLUnsafe|createContextualFragment|DOMParser|new Function)\b`)
	files, err := filepath.Glob("../../cmd/rootsfs/internal/console/web/*.js")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range slices.Collect(strings.Lines(string(text))) {
			if sinks.MatchString(line) && !strings.HasPrefix(strings.TrimSpace(line), "//") {
				t.Errorf("%s:%d: %s", f, i+1, strings.TrimSpace(line))
			}
		}
	}
}
