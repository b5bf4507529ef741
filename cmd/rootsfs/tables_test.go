package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/agents"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/cli"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/secret"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/session"
	"github.com/rootsfs/rootsfs/guard/builtin"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

var writeTables = flag.Bool("write", false, "TestTopicTables writes the tables of help/*.md instead of comparing them")

var generated = regexp.MustCompile(`(?s)(<!-- generated: ([a-z ]+) -->\n\n)(.*?)(\n<!-- end -->)`)

// The generated tables in help/*.md are the tables that the code yields, and each table is in a
// topic.
func TestTopicTables(t *testing.T) {
	makers := map[string]func(*testing.T) string{
		"exit codes": exitTable, "configuration keys": keyTable, "ceiling keys": ceilingTable, "rules": ruleTable,
		"json fields": fieldTables, "metrics": metricTable, "agents": agentTable, "secrets": secretTable, "limits": limitTable, "net limits": netLimitTable,
	}
	files, err := filepath.Glob("help/*.md")
	if err != nil {
		t.Fatal(err)
	}
	present := map[string]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := generated.ReplaceAllStringFunc(string(data), func(old string) string {
			m := generated.FindStringSubmatch(old)
			if makers[m[2]] == nil {
				t.Fatalf("%s: no table is called %q", file, m[2])
			}
			present[m[2]] = true
			return m[1] + makers[m[2]](t) + m[4]
		})
		switch {
		case text == string(data):
		case *writeTables:
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s has tables that differ from those of the code: run go generate ./cmd/rootsfs", file)
		}
	}
	for name := range makers {
		if !present[name] {
			t.Errorf("no topic has the table %q", name)
		}
	}
}

// row returns a row of a table.
func row(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// agentTable returns the table of the presets of `run --for`.
func agentTable(*testing.T) string {
	out := "| agent | command | variables | copied from your HOME | cannot change | hosts |\n|---|---|---|---|---|---|\n"
	code := func(list []string) string {
		if len(list) == 0 {
			return ""
		}
		return "`" + strings.Join(list, "`, `") + "`"
	}
	for _, a := range agents.All() {
		env := slices.DeleteFunc(slices.Concat(a.Env, a.Set), func(v string) bool { return strings.HasSuffix(strings.ToUpper(v), "_PROXY") })
		out += row(fmt.Sprintf("[%s](%s)", a.Name, a.Docs), "`"+a.Command+"`", code(env), code(a.Home), code(a.Protect), code(a.Hosts))
	}
	return out
}

// secretTable returns the table of the secrets for programs that have no preset.
func secretTable(*testing.T) string {
	out := "| key | is for | base URL | header |\n|---|---|---|---|\n"
	for _, s := range agents.Secrets() {
		out += row("`"+s.Name+"`", "`"+s.URL+"`", "`"+s.Variable+"`", "`"+cmp.Or(s.Header, secret.DefaultHeader)+"`")
	}
	return out
}

// limitTable returns the table of the limits that --limit takes.
func limitTable(*testing.T) string { return limitRows(config.Limits()) }

// netLimitTable returns the table of the limits that --net-limit takes.
func netLimitTable(*testing.T) string { return limitRows(config.NetLimits()) }

func limitRows[T any](limits []config.Key[T]) string {
	out := "| limit | meaning |\n|---|---|\n"
	for _, l := range limits {
		out += row("`"+l.Name()+"`", l.Meaning())
	}
	return out
}

func exitTable(*testing.T) string {
	out := "| code | meaning |\n|---|---|\n"
	for code, meaning := range cli.ExitTexts {
		out += row(fmt.Sprint(code), meaning)
	}
	return out
}

// keyTable returns the table of the configuration's keys, from the JSON Schema.
func keyTable(t *testing.T) string {
	data, err := config.SchemaJSON()
	return schemaTable(t, data, err)
}

// ceilingTable returns the table of a ceiling's keys.
func ceilingTable(t *testing.T) string {
	data, err := config.CeilingSchemaJSON()
	return schemaTable(t, data, err)
}

func schemaTable(t *testing.T, data []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(strings.NewReader(string(data)))
	var top shape
	if err := dec.Decode(&top); err != nil {
		t.Fatal(err)
	}
	out := "| key | value | meaning |\n|---|---|---|\n"
	var walk func(path string, s *shape)
	walk = func(path string, s *shape) {
		for _, p := range s.Properties {
			at := strings.TrimPrefix(path+"."+p.name, ".")
			switch one := p.shape; {
			case at == "root.limits" || at == "root.policy" || at == "root.trash":
				out += row("`"+at+"`", "table", one.Description)
			case one.Items != nil && len(one.Items.Properties) > 0:
				out += row("`[["+at+"]]`", "block", one.Description)
				walk(at, one.Items)
			case one.Type == "object" && len(one.Properties) == 0: // profile
				out += row("`["+at+".NAME]`", "table", one.Description)
				var inner shape
				if err := json.Unmarshal(one.AdditionalProperties, &inner); err != nil {
					t.Fatal(err)
				}
				walk(at+".NAME", &inner)
			case one.Type == "object":
				out += row("`["+at+"]`", "table", one.Description)
				walk(at, one)
			default:
				out += row("`"+at+"`", one.value(), one.Description)
			}
		}
	}
	walk("", &top)
	return out
}

// shape has the parts of a JSON Schema that the table shows.
type shape struct {
	Type                 string          `json:"type"`
	Description          string          `json:"description"`
	Format               string          `json:"format"`
	Enum                 []string        `json:"enum"`
	AnyOf                []shape         `json:"anyOf"`
	Properties           properties      `json:"properties"`
	Items                *shape          `json:"items"`
	AdditionalProperties json.RawMessage `json:"additionalProperties"`
}

// value describes the values that a key takes.
func (s *shape) value() string {
	switch {
	case len(s.Enum) > 0:
		return "`\"" + strings.Join(s.Enum, "\"`, `\"") + "\"`"
	case len(s.AnyOf) > 0:
		return "size, as `\"10M\"`"
	case s.Type == "boolean":
		return "`true`, `false`"
	case s.Type == "array" && s.Items.Type == "integer":
		return "list of numbers"
	case s.Type == "array":
		return "list of texts"
	case s.Format == "date-time":
		return "time"
	case strings.Contains(s.Description, "; from "):
		return "duration, as `\"30m\"`"
	case s.Type == "string":
		return "text"
	}
	return "number"
}

// properties are the members of a JSON object, in the order of the object.
type properties []struct {
	name  string
	shape *shape
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *properties) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		one := &shape{}
		if err := dec.Decode(one); err != nil {
			return err
		}
		*p = append(*p, struct {
			name  string
			shape *shape
		}{name.(string), one})
	}
	return nil
}

// ruleTable lists the built-in rules. Rules with the same effect, place and reason share a row.
func ruleTable(t *testing.T) string {
	places := map[pattern.Condition]string{
		pattern.Always: "anywhere", pattern.AtTop: "at the root and at the top of repositories",
		pattern.Control: "unless the root's users made the repository", pattern.Tokens: "while it holds a token",
		pattern.GitDir: "in a directory with `HEAD`, `objects` and `refs`, unless the root's users made it",
		pattern.SvnDir: "in a directory with `format`, `db` and `locks`, unless the root's users made it",
	}
	type key struct{ effect, place, why string }
	var order []key
	patterns := map[key][]string{}
	seen := map[string]bool{}
	for _, r := range builtin.Rules() {
		k := key{r.List.Effect().String(), places[r.Condition], r.Reason}
		if k.place == "" {
			t.Fatalf("places has no text for the condition of the rule %s", r.Text)
		}
		if r.List == pattern.Except {
			k.effect = "except"
		}
		if strings.HasPrefix(r.Text, "/") { // another rule with the same pattern holds at the top of repositories
			k.place = places[pattern.AtTop]
		}
		text := "`" + strings.TrimPrefix(strings.TrimPrefix(r.Text, "**/"), "/") + "`"
		id := fmt.Sprint(k, text)
		if seen[id] {
			continue
		}
		seen[id] = true
		if patterns[k] == nil {
			order = append(order, k)
		}
		patterns[k] = append(patterns[k], text)
	}
	out := "| effect | patterns | where | why |\n|---|---|---|---|\n"
	for _, k := range order {
		out += row(k.effect, strings.Join(patterns[k], " "), k.place, k.why)
	}
	return out
}

// metricTable lists the metrics that a session's registry describes.
func metricTable(t *testing.T) string {
	ch := make(chan *prometheus.Desc)
	go func() {
		new(session.Session).Metrics().(prometheus.Collector).Describe(ch)
		close(ch)
	}()
	parts := regexp.MustCompile(`fqName: "([^"]*)", help: "([^"]*)",(?: unit: "[^"]*",)? constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}`)
	var rows []string
	for d := range ch {
		m := parts.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("the pattern does not match the description of a metric: %s", d)
		}
		labels := ""
		if m[3] != "" {
			labels = "`" + strings.ReplaceAll(m[3], ",", "` `") + "`"
		}
		rows = append(rows, row("`"+m[1]+"`", labels, strings.TrimSuffix(m[2], ".")))
	}
	slices.Sort(rows)
	return "| metric | labels | meaning |\n|---|---|---|\n" + strings.Join(rows, "")
}

// outputs are the types that --json prints, with the file of each.
var outputs = []struct{ title, file, name string }{
	{"`status --json`: a list of sessions", "internal/control/status.go", "Status"},
	{"`roots list --json`, and `roots` of a session: a list of roots", "internal/control/status.go", "Root"},
	{"`process` of a session", "internal/control/status.go", "Process"},
	{"`server` of a session", "internal/control/status.go", "Confined"},
	{"`files` of a session: a list of connected servers", "../../broker/stats.go", "Stats"},
	{"`consent list --json`: a list of questions", "../../broker/ask.go", "Question"},
	{"`items` of a question", "../../broker/ask.go", "Item"},
	{"`host` of a question", "../../broker/hostquestion.go", "Host"},
	{"`reached` of the host of a question", "../../broker/hostquestion.go", "Reached"},
	{"`consent denials --json`: a list of denials", "internal/control/consent.go", "Denial"},
	{"`audit show --json`: a record a line, as it was written", "../../guard/audit/entry.go", "Entry"},
	{"`console --json`: a line for each link", "internal/cli/cmd_console.go", "consoleMessage"},
	{"`policy check --json`, and `why --json`", "internal/control/policy.go", "CheckAnswer"},
	{"`why --json`, besides", "internal/cli/why_explain.go", "explanation"},
	{"`stage list --json`: a list of stages", "internal/cli/cmd_stage.go", "stageEntry"},
	{"`stage` of a staged root", "internal/control/status.go", "Stage"},
	{"`stage diff --json`: a list of changes", "internal/cli/stage_diff.go", "stageDiffEntry"},
	{"`stage apply --json` and `stage discard --json`", "internal/cli/stage_apply.go", "stageResult"},
	{"`undo --json`", "internal/cli/cmd_undo.go", "undoResult"},
	{"`changes` of `undo --json`: a list", "internal/cli/cmd_undo.go", "undoChange"},
	{"`stage checkpoint --json`", "internal/control/checkpoint.go", "CheckpointAnswer"},
	{"`checkpoints` of a stage, `to` and `before` of an undo, `checkpoint`: a checkpoint", "internal/control/checkpoint.go", "Checkpoint"},
	{"`setup --json`", "internal/cli/cmd_setup.go", "setupResult"},
	{"`hosts` of `setup --json`: a list", "internal/cli/cmd_setup.go", "setupHost"},
	{"`wrap --json`", "internal/cli/wrap_report.go", "wrapResult"},
	{"`servers` of `wrap --json`: a list", "internal/cli/wrap_report.go", "wrapServer"},
}

// fieldTables returns the tables of the fields of each output. The meaning of a field is the
// comment at the end of its line.
func fieldTables(t *testing.T) string {
	var b strings.Builder
	for i, o := range outputs {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "## %s\n\n| field | type | meaning |\n|---|---|---|\n", o.title)
		b.WriteString(fieldRows(t, o.file, o.name))
		if o.name == "Question" { // control.Question has further fields
			b.WriteString(fieldRows(t, "internal/control/consent.go", o.name))
		}
	}
	return b.String()
}

func fieldRows(t *testing.T, file, name string) string {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	object := parsed.Scope.Lookup(name)
	if object == nil {
		t.Fatalf("%s has no type %s", file, name)
	}
	out := ""
	for _, f := range object.Decl.(*ast.TypeSpec).Type.(*ast.StructType).Fields.List {
		if f.Tag == nil {
			continue
		}
		field, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		if field == "-" {
			continue
		}
		if f.Comment == nil {
			t.Errorf("%s: %s.%s has no comment at the end of its line", file, name, field)
		}
		out += row("`"+field+"`", jsonType(f.Type), strings.TrimSpace(f.Comment.Text()))
	}
	return out
}

// jsonType returns the type that a table shows for a JSON field of this Go type.
func jsonType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return jsonType(e.X)
	case *ast.ArrayType:
		if id, ok := e.Elt.(*ast.Ident); ok && id.Name == "byte" {
			return "text"
		}
		return "list"
	case *ast.MapType:
		return "object"
	case *ast.SelectorExpr:
		switch e.Sel.Name {
		case "Time":
			return "time"
		case "Subject", "Foreign", "Text":
			return "text"
		}
		return "object"
	case *ast.Ident:
		switch {
		case e.Name == "bool":
			return "boolean"
		case e.Name == "string", e.Name == "Kind":
			return "text"
		case strings.Contains(e.Name, "int") || strings.HasPrefix(e.Name, "float"):
			return "number"
		}
	}
	return "object"
}
