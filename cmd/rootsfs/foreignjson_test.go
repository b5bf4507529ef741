package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// odd is what a server may put into names, reasons and paths.
const odd = "e\u009b31m\u202e\u2800\u034f\u3164"

// notRun are the commands whose --json this test does not run, and why. All JSON passes
// through app.encode, except audit records (app.auditLine).
var notRun = map[string]string{
	"audit follow": "does not end; prints records as audit show does", "console": "does not end; prints a URL of its own", "mount": "does not end; prints the mountpoint, which is the owner's",
	"net list": "hosts are names of DNS and addresses: see network.ParseRule", "net add": "likewise", "net remove": "likewise",
	"serve": "does not end; prints an address and the name of the session", "version": "nothing in it is anybody else's",
}

// In no command's --json is a character that a terminal obeys or hides, whatever a
// server or a repository has named.
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
			if err := dec.Decode(new(any)); err != nil {
				t.Fatalf("%s: %v in %s", command, err, out)
			}
		}
		if strings.Contains(out, `\u202e`) {
			escaped++
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
	a.told()
	a.ask("", "ro", at("src/asked", odd))
	do("consent deny", a.waiting(1)[0].ID, "--remember")
	a.told()
	do("consent denials")
	do("consent forget", "--all")
	for _, line := range []string{"status", "roots list", "policy show", "audit verify", "config check", "doctor", "resume", "trash list", "allow --last --yes"} {
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
	if escaped < 12 {
		t.Errorf("only %d commands showed what the server chose", escaped)
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "rootsfs ")
		if c.Flags().Lookup("json") != nil && !ran[path] && notRun[path] == "" {
			t.Errorf("%s has --json, and this test does not try it", path)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCmd(newApp(nil, stdio{})))
}

// Files whose names differ in bytes that are not UTF-8 are told apart in trash list.
func TestTrashListTellsNamesApart(t *testing.T) {
	var out strings.Builder
	a := newApp(nil, stdio{out: &out})
	a.sayTrash([]vfs.Trashed{
		{ID: "20060102T150405.000000000-aaaaaaaa", Root: "r", Path: "a\ufffd", Raw: []byte("a\xfe")},
		{ID: "20060102T150405.000000000-bbbbbbbb", Root: "r", Path: "a\ufffd", Raw: []byte("a\xff")},
		{ID: "20060102T150405.000000000-cccccccc", Root: "r", Path: "a\ufffd"},
	})
	for _, want := range []string{`"r/a\xfe"`, `"r/a\xff"`, `"r/a\u{fffd}"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

// forges is the program on the terminal: it shows a question whose text is long, and holds
// an answer line.
func forges() {
	a := newApp(nil, stdio{out: os.Stdout})
	word := strings.Repeat("x", 198) + " Allow? [y/N] "
	a.sayQuestion(&control.Question{Question: broker.Question{ID: "abc"}, Heading: "It says: " + word + word, Lines: []string{strings.Repeat("/y", 300)}})
	a.say("END")
}

// No line of a question that a terminal shows is made by the server's spaces or by the
// terminal's edge: each is ours, or begins as what was folded.
func TestQuestionForgesNoLine(t *testing.T) {
	dir := t.TempDir()
	env, work := shellHome(t, dir)
	p := startPty(t, work, env, []string{"forges"})
	p.await("END")
	for line := range strings.Lines(p.seen.String()) {
		line = strings.Trim(line, "\r\n")
		if utf8.RuneCountInString(line) >= 200 || strings.HasPrefix(strings.TrimSpace(line), "Allow?") {
			t.Errorf("a line of %d characters: %s", utf8.RuneCountInString(line), line)
		}
	}
	if !strings.Contains(p.seen.String(), "    | ") {
		t.Errorf("nothing was folded:\n%s", p.seen.String())
	}
}

// No log holds a character that a terminal obeys or hides.
func TestLogsShowEverything(t *testing.T) {
	for _, attr := range []func([]string, slog.Attr) slog.Attr{logAttr, dropTime} {
		var out strings.Builder
		newLog(&out, slog.LevelInfo, attr).Info(odd, "path", odd, "error", errors.New(odd), "root", guard.RootName(odd), "foreign", names.Foreign(odd))
		if text := strings.TrimSpace(out.String()); !names.Shows(text) || strings.Count(text, "202e") != 5 {
			t.Errorf("logged: %+q", text)
		}
	}
}
