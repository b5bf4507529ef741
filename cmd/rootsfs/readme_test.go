package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/guard/pattern"
)

// The README's tables name every JSON field and every configuration key there
// is, and every command is shown.
func TestReadmeIsComplete(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	row := func(begin string) string {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "| "+begin) {
				return line
			}
		}
		t.Fatalf("no row begins with %s", begin)
		return ""
	}
	for begin, typ := range map[string]reflect.Type{
		"`status --json`": reflect.TypeFor[control.Status](), "`roots list --json`": reflect.TypeFor[control.Root](),
		"`audit show --json`": reflect.TypeFor[audit.Entry](), "`process` of": reflect.TypeFor[control.Process](),
		"`consent denials --json`": reflect.TypeFor[control.Denial](), "`files` of": reflect.TypeFor[broker.Stats](), "`items` of questions": reflect.TypeFor[broker.Item](),
		"`server` of": reflect.TypeFor[control.Confined](), "`wrap --json`": reflect.TypeFor[wrapResult](), "`servers` of": reflect.TypeFor[wrapServer](),
	} {
		cells := row(begin)
		var fields []string
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			fields = append(fields, name)
			if !strings.Contains(cells, "`"+name+"`") {
				t.Errorf("%s: %s is not named", begin, name)
			}
		}
		for _, m := range regexp.MustCompile("`([a-z0-9_]+)`").FindAllStringSubmatch(cells, -1) {
			if !slices.Contains(fields, m[1]) && !strings.HasPrefix(begin, "`"+m[1]) && !slices.Contains([]string{"roots", "spec", "from"}, m[1]) {
				t.Errorf("%s: there is no %s", begin, m[1])
			}
		}
	}
	for code, meaning := range exitTexts {
		if want := fmt.Sprintf("| %d | %s |\n", code, meaning); !strings.Contains(text, want) {
			t.Errorf("the README lacks %q", want)
		}
	}
	// The example in internal/config's package comment has every key once.
	doc, err := os.ReadFile("internal/config/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	example, _, _ := strings.Cut(string(doc), "# Promises")
	table := ""
	for _, m := range regexp.MustCompile(`(?m)^//\t(?:\[\[?([a-z.]+)[^\n]*|([a-z_]+) = .*)$`).FindAllStringSubmatch(example, -1) {
		if m[1] != "" {
			table, _, _ = strings.Cut(m[1], "profile.")
			if table == "" {
				table = "profile"
			}
			continue
		}
		key := table + "." + m[2]
		if table == "profile" {
			key = "profile.NAME." + m[2]
		}
		if !strings.Contains(text, "`"+key+"`") {
			t.Errorf("no configuration key %s", key)
		}
	}
	if table != "profile" {
		t.Errorf("the example in internal/config/doc.go was not understood: it ends in %q", table)
	}
	for _, c := range newRootCmd(newApp(nil, stdio{})).Commands() {
		if c.Name() != "help" && !c.Hidden && !strings.Contains(text, "rootsfs "+c.Name()) {
			t.Errorf("no command %s", c.Name())
		}
		for _, sub := range c.Commands() {
			if !regexp.MustCompile(`(?m)^    rootsfs ` + c.Name() + ` .*\b` + sub.Name() + `\b`).MatchString(text) {
				t.Errorf("the list of commands lacks %s", sub.CommandPath())
			}
		}
	}
}

// The README's table is the list of the built-in rules: effect, pattern, where it
// holds and why, no more and no fewer.
func TestReadmeHasTheBuiltinRules(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(data), "| effect | patterns | where | why |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 4 || strings.HasPrefix(line, "|--") {
			continue
		}
		for text := range strings.FieldsSeq(cells[1]) {
			listed[strings.Join([]string{strings.TrimSpace(cells[0]), strings.Trim(text, "`"), cells[2], strings.TrimSpace(cells[3])}, " | ")] = true
		}
	}
	places := map[pattern.Condition]string{
		pattern.Always: "anywhere", pattern.AtTop: "at the root and at the top of repositories",
		pattern.Control: "unless the root's users made the repository", pattern.Tokens: "while it holds a token",
		pattern.GitDir: "in a directory with `HEAD`, `objects` and `refs`, unless the root's users made it",
		pattern.SvnDir: "in a directory with `format`, `db` and `locks`, unless the root's users made it",
	}
	built := map[string]bool{}
	for _, r := range pattern.Builtin() {
		effect, place := r.List.Effect().String(), places[r.Condition]
		if r.List == pattern.Except {
			effect = "except"
		}
		if strings.HasPrefix(r.Text, "/") { // its twin holds at the top of repositories
			place = places[pattern.AtTop]
		}
		row := strings.Join([]string{effect, strings.TrimPrefix(strings.TrimPrefix(r.Text, "**/"), "/"), place, r.Reason}, " | ")
		if built[row] = true; !listed[row] {
			t.Errorf("not in the README: %s", row)
		}
	}
	for row := range listed {
		if !built[row] {
			t.Errorf("in the README, and no built-in rule: %s", row)
		}
	}
}
