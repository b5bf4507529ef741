package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/guard/names"
)

// odd has characters that a server may put into names, reasons and paths.
const odd = "e<&>\u009b31m\u202e\u2800\u034f\u3164"

// notRun are the commands whose --json this test does not run, and why. All JSON passes
// through app.encode, except audit records (app.auditLine).
var notRun = map[string]string{
	"audit follow": "runs until it is stopped; prints records as audit show does", "console": "runs until it is stopped; prints a URL of its own",
	"mount":    "runs until it is stopped; prints the mountpoint, which is the owner's",
	"net list": "prints DNS names and addresses only: see network.ParseRule", "net add": "likewise", "net remove": "likewise",
	"serve": "runs until it is stopped; prints an address and the name of the session", "version": "prints no text of a server or a repository",
}

// No command's --json contains a character that a terminal obeys or hides, whatever names a
// server or a repository has chosen.
func TestJSONShowsEverything(t *testing.T) {
	a := newAsker(t, "[profile.none]\nroots = []\n")
	at := func(parts ...string) string { return filepath.Join(append([]string{a.work}, parts...)...) }
	for _, dir := range []string{"src/" + odd, "src/priv/" + odd, "src/asked/" + odd} {
		if err := os.MkdirAll(at(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, text := range map[string]string{
		"pre/" + odd: "x", "src/pub/" + odd: "x", ".mcp.json": `{"mcpServers": {"` + odd + `": {"command": "` + odd + `", "args": ["` + at("src", odd) + `"]}}}`,
		"pre/.gitignore": "*" + odd + "\n",
	} {
		if err := os.WriteFile(at(file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ran := map[string]bool{}
	escaped := 0
	var texts []string
	do := func(command string, args ...string) string {
		t.Helper()
		ran[command] = true
		cmd := exec.Command("rootsfs", append(append(strings.Fields(command), args...), "--json")...)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		out := stdout.String()
		if out == "" {
			t.Errorf("%s: %v: %s", command, err, stderr.String())
		}
		for line := range strings.Lines(out) {
			if line = strings.Trim(line, " \n"); !names.Shows(line) {
				t.Errorf("%s: %s", command, names.Escape(line))
			}
		}
		for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
			var v json.RawMessage
			if err := dec.Decode(&v); err != nil {
				t.Fatalf("%s: %v in %s", command, err, out)
			}
			texts = appendHostile(t, texts, command, v)
		}
		if strings.Contains(out, `\u202e`) {
			escaped++
			if slices.Contains(onlyShow, command) {
				checkTextOutput(t, append(strings.Fields(command), args...))
			}
		}
		return out
	}
	do("roots add", "kept="+at("pre")+":rw", "--trash")
	if out, err := exec.Command("sh", "-c", `rm "$1/$2"; ! cat "$1/.env"; ! echo >>"$3"`, "sh", filepath.Join(a.s.Point(), "kept"), odd, filepath.Join(a.s.Point(), "pub", odd)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a.ask(odd+" says", "rw", at("src", odd))
	id := a.waiting(1)[0].ID
	do("consent list")
	do("consent approve", id)
	a.result()
	a.ask("", "ro", at("src/asked", odd))
	do("consent deny", a.waiting(1)[0].ID, "--remember")
	a.result()
	do("consent denials")
	do("consent forget", "--all")
	for _, line := range []string{"status", "roots list", "policy show", "audit verify", "config check", "config ceiling", "doctor", "pause", "resume", "trash list", "allow --last --yes"} {
		words := strings.Fields(line)
		n := 1
		if slices.Contains([]string{"roots", "policy", "audit", "config", "trash"}, words[0]) {
			n = 2
		}
		do(strings.Join(words[:n], " "), words[n:]...)
	}
	do("policy check", "kept/"+odd)
	do("why", "kept/"+odd)
	do("why")
	do("roots add", "odd="+at("src/priv", odd))
	do("roots set", "odd", "rw")
	do("roots renew", "odd", "--for", "1h")
	do("roots remove", "odd")
	do("roots profile", "none")
	do("wrap", at(".mcp.json"), "--dry-run")
	do("setup", "--dry-run")
	var kept []struct{ ID string }
	if err := json.Unmarshal([]byte(do("trash list")), &kept); err != nil || len(kept) == 0 {
		t.Fatalf("%v: %v", kept, err)
	}
	do("trash restore", kept[0].ID)
	do("policy set", "kept", "--hide", "*"+odd)
	do("trash empty", "--all")
	do("revoke", "--all")
	do("audit show")
	do("unmount", a.s.Point())
	tryStages(t, do, at("pre"))
	checkHostile(t, texts, a.work)
	if escaped < 12 {
		t.Errorf("only %d commands showed a name that the server chose", escaped)
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "rootsfs ")
		isOther := strings.HasPrefix(path, "fleet ") // another program, rootsfs-fleet, does the work
		if c.Flags().Lookup("json") != nil && !ran[path] && notRun[path] == "" && !isOther {
			t.Errorf("%s has --json, and this test does not try it", path)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(tree())
}

// onlyShow lists commands that change nothing. They run once more without --json. (stage diff is
// not in the list, because it writes the bytes of files to a pipe unchanged.)
var onlyShow = []string{"status", "roots list", "policy show", "policy check", "why", "audit show", "consent list", "consent denials", "trash list", "stage list"}

// checkTextOutput runs a command, and fails the test if the output lacks the escaped character of
// odd, or has a character that a terminal would obey or hide.
func checkTextOutput(t *testing.T, args []string) {
	t.Helper()
	out, _ := exec.Command("rootsfs", args...).CombinedOutput() // some exit codes report findings
	if !strings.Contains(string(out), `\u{202e}`) {
		t.Errorf("%v does not show the hostile name: %s", args, out)
	}
	spaces := regexp.MustCompile(" +") // of tables
	for line := range strings.Lines(string(out)) {
		if line = spaces.ReplaceAllString(strings.Trim(line, " \n"), " "); !names.Shows(line) {
			t.Errorf("%v prints %s", args, names.Escape(line))
		}
	}
}

// appendHostile appends a line for each string with an escape in a JSON text: the string's place
// (the command and the keys) and its bytes.
func appendHostile(t *testing.T, lines []string, at string, text []byte) []string {
	t.Helper()
	text = bytes.TrimSpace(text)
	var object map[string]json.RawMessage
	var list []json.RawMessage
	switch {
	case text[0] == '{' && json.Unmarshal(text, &object) == nil:
		for key, value := range object {
			lines = appendHostile(t, lines, at+" "+key, value)
		}
	case text[0] == '[' && json.Unmarshal(text, &list) == nil:
		for _, value := range list {
			lines = appendHostile(t, lines, at, value)
		}
	case text[0] == '"' && bytes.Contains(text, []byte(`\`)):
		lines = append(lines, at+" = "+string(text))
	}
	return lines
}

// checkHostile checks that lines, which appendHostile made, have each line of
// testdata/hostile.golden.
func checkHostile(t *testing.T, lines []string, work string) {
	t.Helper()
	varies := regexp.MustCompile(`\d{8}T[\d.]+-\w+|/tmp/(?:testscript-main|rootsfs-released-)\d+|index [0-9a-f]+\.\.[0-9a-f]+`)
	quoted := regexp.MustCompile(`\\"(\$WORK[^"\\]*)\\"`) // only if a path has spaces
	for i, line := range lines {
		line = strings.ReplaceAll(strings.ReplaceAll(line, work, "$WORK"), os.TempDir(), "/tmp")
		lines[i] = quoted.ReplaceAllString(varies.ReplaceAllString(line, "VARIES"), "$1")
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	const file = "testdata/hostile.golden"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		if _, ok := slices.BinarySearch(lines, strings.TrimSuffix(line, "\n")); !ok {
			t.Errorf("not printed any more: %s", line)
		}
	}
}

// tryStages tries the commands for stages on a stage of dir that a program has left.
func tryStages(t *testing.T, do func(command string, args ...string) string, dir string) {
	t.Helper()
	run := exec.Command("rootsfs", "run", "--root", dir+":stage", "--", "sh", "-c", `for n in 1 2 3; do echo "$1" >"$1$n"; done`, "sh", odd)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	do("stage")
	do("stage list")
	do("stage diff")
	do("stage apply", filepath.Join(dir, odd+"1"))
	do("stage checkpoint", "before", "--root", dir)
	do("stage discard", "--all", "--yes", "--root", dir)
	do("undo", "before", "--root", dir)
}
