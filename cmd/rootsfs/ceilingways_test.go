package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/config"
)

// way is one way by which a session gets something that the ceiling (config.Ceiling) bounds.
type way struct {
	name string
	// keys are the keys of the ceiling that bound what the session gets by this way. "all" stands
	// for every key.
	keys string
	// verbs are the verbs of package control that serve the way.
	verbs string
}

// ceilingWays are the ways by which somebody could try to get more than the ceiling allows. For
// each way and each key of the way, a script has a line "# ceiling: KEY by WAY", or a Go test a
// line "// ceiling: KEY by WAY". The attempt is below the line.
var ceilingWays = []way{
	{"flag", "root.path root.mode grants.longest run.level run.hosts run.secrets records.paths", ""},
	{"serve", "root.path root.mode records.paths", ""},
	{"variable", "root.path run.hosts", ""},
	{"configuration", "root.path root.mode grants.longest run.level run.hosts run.secrets records.paths records.days", ""},
	{"profile", "root.path root.mode run.hosts", ""},
	{"preset", "root.path root.mode run.hosts", ""},
	{"wrap", "root.path root.mode run.hosts", ""},
	{"consent", "root.path root.mode grants.longest run.hosts", "AnswerQuestion"},
	{"roots add", "root.path root.mode grants.longest", "AddRoots"},
	{"roots set", "root.mode", "SetMode"},
	{"roots renew", "grants.longest", "RenewRoot"},
	{"roots profile", "root.path root.mode grants.longest", "SwitchProfile"},
	{"allow", "root.path root.mode grants.longest", "AddRoots SetMode"},
	{"net add", "run.hosts", "AddNet"},
	{"reload", "root.path root.mode grants.longest", ""},
	{"fleet with", "root.path root.mode", "AddRoots SetMode"},
	// A second file of the ceiling, the ceiling of a fleet, and a ceiling that changes while a
	// session runs.
	{"other file", "all", ""},
	{"fleet's ceiling", "all", ""},
	{"change", "all", "ReadCeilingNow"},
}

// unboundVerbs are the verbs by which a program gets nothing that a key of the ceiling bounds. For
// example, they show something, take access back, or change files in roots that the session has.
const unboundVerbs = `GetStatus GetRefusal Revoke Pause Resume ReadLeaseNow Unmount ListQuestions PreviewQuestion
ListDenials ForgetDenial GetPolicy CheckPolicy Why SetPatterns ListTrash RestoreTrash EmptyTrash ListStage StageContents
ApplyStage DiscardStage ListCheckpoints MakeCheckpoint UndoStage ListNet RemoveNet`

// boundFlags maps flags of rootsfs run to a key of the ceiling that bounds what the flag gives.
var boundFlags = map[string]string{
	"root": "root.path", "once": "root.path", "home": "root.path", "socket": "root.path", "stage": "root.mode",
	"for": "grants.longest", "until": "grants.longest", "level": "run.level", "unconfined": "run.level",
	"net": "run.hosts", "net-ask": "run.hosts", "secret": "run.secrets", "audit-paths": "records.paths",
	"config": "root.path", "profile": "root.path", "allow-system": "root.mode",
}

// freeFlags are the other flags of rootsfs run: no key bounds what they set.
const freeFlags = `abuse-escapes abuse-refusals abuse-suspend all allow burst bytes-in-flight cache cross-file-systems debug
deny dir env hide home-max idle learn limit links listen map max-created max-file max-stage max-written mcp
memory-max name net-any-sni net-limit no-default-policy on-revoke one-file-system ops-per-second pids-max protect
respect-gitignore timeout transport trash trash-age trash-size verbose`

// For each way in ceilingWays, a script or a test tries to exceed the bound of each key of the way.
// Each key of the ceiling is a key of some way. Scripts check the refusal, too (namesTheLine).
func TestCeilingWays(t *testing.T) {
	keys := ceilingKeys(t)
	tried := ceilingTries(t)
	bounds := map[string]bool{} // the keys that bound a way without "all"
	for _, w := range ceilingWays {
		list := strings.Fields(w.keys)
		if w.keys == "all" {
			list = keys
		}
		for _, key := range list {
			if bounds[key] = bounds[key] || w.keys != "all"; !slices.Contains(keys, key) {
				t.Errorf("%s is no key of the ceiling", key)
			}
			if !tried[key+" by "+w.name] {
				t.Errorf("nothing tries to exceed the ceiling's key %s by %s: add a line \"# ceiling: %[1]s by %[2]s\" and the attempt to a script", key, w.name)
			}
			delete(tried, key+" by "+w.name)
		}
	}
	for _, key := range keys {
		if !bounds[key] {
			t.Errorf("no way of ceilingWays has the ceiling's key %s", key)
		}
	}
	for pair := range tried {
		t.Errorf("%q: ceilingWays does not have this way with this key", pair)
	}
}

// Each verb of package control is in ceilingWays or in unboundVerbs, and each flag of rootsfs run
// is in boundFlags or in freeFlags.
func TestCeilingWaysAreAll(t *testing.T) {
	decided := strings.Fields(unboundVerbs)
	for _, w := range ceilingWays {
		decided = append(decided, strings.Fields(w.verbs)...)
	}
	checkDecided(t, "verb", controlVerbs(t), decided)
	run, _, err := tree().Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	run.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	known := strings.Fields(freeFlags)
	for flag := range boundFlags {
		known = append(known, flag)
	}
	checkDecided(t, "flag of run", flags, known)
}

// checkDecided fails the test for each name that only one of got and decided has.
func checkDecided(t *testing.T, what string, got, decided []string) {
	t.Helper()
	for _, one := range got {
		if !slices.Contains(decided, one) {
			t.Errorf("the %s %s: does a key of the ceiling bound what it gives?", what, one)
		}
	}
	for _, one := range decided {
		if !slices.Contains(got, one) {
			t.Errorf("there is no %s %s", what, one)
		}
	}
}

// ceilingKeys returns the keys of a ceiling that bound something.
func ceilingKeys(t *testing.T) (keys []string) {
	t.Helper()
	data, err := config.CeilingSchemaJSON()
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]json.RawMessage
		Items      *struct{ Properties map[string]json.RawMessage }
	}
	var top struct{ Properties map[string]object }
	if err := json.Unmarshal(data, &top); err != nil {
		t.Fatal(err)
	}
	for table, o := range top.Properties {
		if o.Items != nil {
			o.Properties = o.Items.Properties
		}
		if len(o.Properties) == 0 {
			t.Errorf("the key %s is in no table", table)
		}
		for key := range o.Properties {
			keys = append(keys, table+"."+key)
		}
	}
	return keys
}

// namesTheLine matches a script's check that an output names a file of a ceiling or a line of such
// a file. It also matches a call of the script ends, which checks that each root has an end.
var namesTheLine = regexp.MustCompile(`ceiling\.(toml|d/)|toml:\d|sh ends`)

// ceilingTries returns the pairs "KEY by WAY" that scripts and tests try. It fails the test if
// namesTheLine matches nothing between the line of a pair in a script and the next blank line.
func ceilingTries(t *testing.T) map[string]bool {
	t.Helper()
	tried := map[string]bool{}
	var files []string
	for _, pattern := range []string{"testdata/script/ceiling*.txtar", "internal/*/*_test.go", "../../guard/*/*_test.go", "../../guard/*_test.go"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*(?:#|//) ceiling: (.*)$`).FindAllStringSubmatchIndex(string(data), -1) {
			pairs, below, _ := strings.Cut(string(data[m[2]:]), "\n")
			below, _, _ = strings.Cut(below, "\n\n")
			if strings.HasSuffix(file, ".txtar") && !namesTheLine.MatchString(below) {
				t.Errorf("%s: nothing below %q checks that the line is named", file, pairs)
			}
			key, ways, ok := strings.Cut(pairs, " by ")
			if !ok {
				t.Errorf("%s: %q names no way", file, pairs)
			}
			for _, one := range strings.Split(ways, ", ") {
				tried[key+" by "+one] = true
			}
		}
	}
	return tried
}

// controlVerbs returns the names of the verbs in package control.
func controlVerbs(t *testing.T) (list []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "internal/control/verb.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			list = append(list, spec.Names[0].Name)
		}
		return true
	})
	return list
}
