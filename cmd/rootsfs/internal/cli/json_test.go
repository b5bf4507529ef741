package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/auditview"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/sessionhub"
	"github.com/rootsfs/rootsfs/guard/audit"
	"github.com/rootsfs/rootsfs/vfs"
)

var updateGolden = flag.Bool("update", false, "write testdata/json.golden anew")

// hostile is a text with each kind of character that JSON, HTML or a terminal interprets.
const hostile = "a\"\\<&>\x1b\u009b\u202e\U000e0041ä\n\xff  z"

// jsonValues returns the values that commands print as JSON, and other values that are encoded as
// JSON: for the console's page, the audit log and the control requests and answers.
func jsonValues() (printed, others map[string]any) {
	printed = map[string]any{
		"status": &[]control.Status{}, "status watch": &control.Event{}, "roots add": &addResult{}, "roots set": &control.SetAnswer{}, "revoke": &control.RevokeAnswer{},
		"roots profile": &control.ProfileAnswer{}, "resume": &resumeResult{}, "pause": &[]pauseResult{}, "policy show": &control.PolicyAnswer{}, "policy check": &control.CheckAnswer{},
		"why": &explanation{}, "unmount": &unmountResult{}, "consent list": &control.QuestionsAnswer{}, "consent watch": &questionEvent{}, "consent approve": &control.AnswerAnswer{},
		"consent denials": &control.DenialsAnswer{}, "net list": &control.NetState{}, "net add": &control.NetAdded{}, "net remove": &control.NetRemoved{},
		"trash list": &[]vfs.Trashed{}, "trash restore": &control.RestoreAnswer{}, "audit verify": &[]audit.Report{}, "stage list": &[]stageEntry{},
		"stage diff": &[]stageDiffEntry{}, "stage apply": &stageResult{}, "undo": &undoResult{}, "stage checkpoint": &control.CheckpointAnswer{}, "wrap": &wrapResult{}, "setup": &setupResult{}, "doctor": &diagnosis{},
		"config check": &configReport{}, "config ceiling": &ceilingReport{}, "mount": &readyMessage{}, "serve": &servingMessage{},
		"version": &versionInfo{}, "console": &consoleMessage{}, "policy show of none": &[]control.PolicyRule{}, "policy set": &control.RootPolicy{},
		"roots list": &[]control.Root{}, "consent forget": &control.ForgetAnswer{},
	}
	others = map[string]any{
		"page update": &sessionhub.Update{}, "page records": &auditview.SearchResult{}, "page revoke": &sessionhub.Revoked{}, "page preview": &control.Preview{},
		"record": &audit.Entry{}, "last refusal": &control.RefusalAnswer{}, "why answer": &control.WhyAnswer{}, "why request": &control.CheckRequest{},
	}
	return printed, others
}

// The JSON of a value keeps its keys, and the bytes of its texts, numbers and booleans, if the Go
// type of a text changes. The test looks for each line of testdata/json.golden. A new field may be
// added. A new kind of value needs lines in that file: run the test with -update.
func TestJSONOfForeignTextStays(t *testing.T) {
	printed, others := jsonValues()
	var lines []string
	for name, v := range printed {
		fillHostile(reflect.ValueOf(v).Elem())
		var out strings.Builder
		a := newApp(nil, Stdio{Out: &out})
		if err := a.line(v); err != nil {
			t.Fatal(name, err)
		}
		lines = appendFields(t, lines, name, []byte(out.String()))
	}
	for name, v := range others {
		fillHostile(reflect.ValueOf(v).Elem())
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(name, err)
		}
		lines = appendFields(t, lines, name, text)
	}
	slices.Sort(lines)
	const file = "testdata/json.golden"
	if *updateGolden {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(golden), "\n"), "\n")
	maps.Copy(printed, others)
	for name := range printed {
		if !slices.ContainsFunc(want, func(line string) bool { return strings.HasPrefix(line, name+".") || strings.HasPrefix(line, name+"[]") }) {
			t.Errorf("%s has no line of %s", file, name)
		}
	}
	for _, line := range want {
		if _, ok := slices.BinarySearch(lines, line); !ok {
			t.Errorf("not in the JSON any more:\n%s", line)
		}
	}
}

// fillHostile gives every text in a value the text hostile, and every list and map an element.
func fillHostile(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Date(2006, 1, 2, 15, 4, 5, 6, time.UTC)))
		return
	}
	switch v.Kind() { //nolint:exhaustive // nothing else is in JSON
	case reflect.String:
		v.SetString(hostile)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillHostile(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillHostile(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillHostile(key)
		fillHostile(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fillHostile(v.Field(i))
			}
		}
	}
}

// appendFields appends a line for each text, number, boolean and null in a JSON text: its path in
// the JSON, which begins with at, and its bytes.
func appendFields(t *testing.T, lines []string, at string, text []byte) []string {
	t.Helper()
	text = bytes.TrimSpace(text)
	switch text[0] {
	case '{':
		var object map[string]json.RawMessage
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(at, err)
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			lines = appendFields(t, lines, fmt.Sprintf("%s.%+q", at, key), object[key])
		}
		return lines
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatal(at, err)
		}
		for _, one := range list {
			lines = appendFields(t, lines, at+"[]", one)
		}
		return lines
	}
	return append(lines, at+" = "+strings.ToValidUTF8(string(text), "\\INVALID"))
}
