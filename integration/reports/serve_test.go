package reports

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

type object = map[string]any

var longName = strings.Repeat("L", 255)

// serveCases are reports of other MCP file servers: a file, a call, and the right answer.
var serveCases = map[string]struct {
	file, content string
	mode          os.FileMode
	tool          string
	arguments     object
	answer        string // the text of the answer begins with it
	after         string // the file's contents afterwards
}{
	"dollar_signs":   {"f", "price PLACE end\n", 0o644, "edit_file", edit("PLACE", "$& $1 $$ $` $'"), "```diff\n", "price $& $1 $$ $` $' end\n"},
	"mixed_lines":    {"f", "one\r\ntwo\nthree\r\n", 0o644, "edit_file", edit("two", "2"), "```diff\n", "one\r\n2\nthree\r\n"},
	"byte_order":     {"f", "\ufeffalpha\nbeta\n", 0o644, "edit_file", edit("alpha", "A"), "```diff\n", "\ufeffA\nbeta\n"},
	"executable":     {"f", "#!/bin/sh\necho a\n", 0o755, "write_file", object{"content": "#!/bin/sh\n"}, "Successfully wrote", "#!/bin/sh\n"},
	"edit_keeps":     {"f", "#!/bin/sh\necho a\n", 0o751, "edit_file", edit("a", "b"), "```diff\n", "#!/bin/sh\necho b\n"},
	"longest_name":   {longName, "old\n", 0o644, "write_file", object{"content": "new\n"}, "Successfully wrote", "new\n"},
	"edit_longest":   {longName, "old\n", 0o644, "edit_file", edit("old", "new"), "```diff\n", "new\n"},
	"last_line":      {"f", "a\nb\n", 0o644, "read_text_file", object{"tail": 1}, "b", "a\nb\n"},
	"null_arguments": {"f", "a\nb\n", 0o644, "read_text_file", object{"head": nil, "tail": nil}, "a\nb", "a\nb\n"},
	"text_for_list":  {"f", "a\n", 0o644, "edit_file", object{"edits": `[{"oldText":"a","newText":"b"}]`}, "arguments: edits must be a list, not string", "a\n"},
}

func edit(from, to string) object {
	return object{"edits": []any{object{"oldText": from, "newText": to}}}
}

func TestServes(t *testing.T) {
	asEachUser(t, func(t *testing.T, who *user) {
		for name, c := range serveCases {
			t.Run(name, func(t *testing.T) {
				path := who.writeFile(filepath.Join(name, c.file), c.content, c.mode)
				testkit.Must(t, os.Chmod(path, c.mode))
				arguments := object{"path": path}
				for k, v := range c.arguments {
					arguments[k] = v
				}
				answers := who.serve(t, filepath.Dir(path), object{"id": 1, "method": "tools/call", "params": object{"name": c.tool, "arguments": arguments}})
				if len(answers) != 1 {
					t.Fatalf("%d answers to one call: %v", len(answers), answers)
				}
				if got := text(answers[0]); !strings.HasPrefix(got, c.answer) {
					t.Errorf("answer %q, want %q", got, c.answer)
				}
				got, err := os.ReadFile(path)
				testkit.Must(t, err)
				if string(got) != c.after {
					t.Errorf("the file has %q, want %q", got, c.after)
				}
				if fi, err := os.Stat(path); err != nil || fi.Mode() != c.mode {
					t.Errorf("mode %v (%v), want %v", fi.Mode(), err, c.mode)
				}
			})
		}
		t.Run("link_loop", func(t *testing.T) { testLinkLoop(t, who) })
		t.Run("notifications", func(t *testing.T) { testNotifications(t, who) })
		t.Run("marked_line", func(t *testing.T) { testMarkedLine(t, who) })
		t.Run("codes", func(t *testing.T) { testCodes(t, who) })
		t.Run("unicode_forms", func(t *testing.T) { testUnicodeForms(t, who) })
	})
}

// A name in another Unicode form is another name: it is not found, and a file with that name is
// a second file. A listing has each name in its own form, which can be used to read the file.
func testUnicodeForms(t *testing.T, who *user) {
	const composed, decomposed = "\u00e9.txt", "e\u0301.txt"
	path := who.writeFile("forms/"+decomposed, "there", 0o644)
	dir := filepath.Dir(path)
	call := func(tool string, arguments object) string {
		answers := who.serve(t, dir, object{"id": 1, "method": "tools/call", "params": object{"name": tool, "arguments": arguments}})
		if len(answers) != 1 {
			t.Fatalf("%d answers to one call: %v", len(answers), answers)
		}
		return text(answers[0])
	}
	if got := call("read_text_file", object{"path": filepath.Join(dir, composed)}); !strings.HasSuffix(got, "no such file or directory") {
		t.Errorf("another form: %q", got)
	}
	if got := call("list_directory", object{"path": dir}); got != "[FILE] "+decomposed {
		t.Errorf("the listing is %q", got)
	}
	if got := call("read_text_file", object{"path": path}); got != "there" {
		t.Errorf("the form of the listing: %q", got)
	}
	call("write_file", object{"path": filepath.Join(dir, composed), "content": "new"})
	if got, err := os.ReadFile(path); err != nil || string(got) != "there" {
		t.Errorf("the file of the other form has %q, %v", got, err)
	}
}

// A search ends in a tree whose links lead back up, and finds each file once.
func testLinkLoop(t *testing.T, who *user) {
	dir := filepath.Dir(who.writeFile("loop/d/needle", "n\n", 0o644))
	testkit.Must(t, os.Symlink("..", filepath.Join(dir, "up")))
	testkit.Must(t, os.Symlink(".", filepath.Join(dir, "here")))
	root := filepath.Dir(dir)
	answers := who.serve(t, root, object{"id": 1, "method": "tools/call",
		"params": object{"name": "search_files", "arguments": object{"path": root, "pattern": "**/needle"}}})
	if len(answers) != 1 || text(answers[0]) != filepath.Join(dir, "needle") {
		t.Errorf("answers %v, want one path", answers)
	}
}

// An unknown notification, a notification about an unknown request and an empty line get no
// answer. The request after them does.
func testNotifications(t *testing.T, who *user) {
	dir := filepath.Dir(who.writeFile("quiet/f", "x", 0o644))
	answers := who.serve(t, dir,
		object{"method": "notifications/none"},
		object{"method": "notifications/cancelled", "params": object{"requestId": 777}},
		"",
		object{"id": "last", "method": "ping"})
	if len(answers) != 1 || answers[0]["id"] != "last" {
		t.Errorf("answers %v, want one, to the ping", answers)
	}
}

// A line that begins with a byte order mark is refused, and the session continues.
func testMarkedLine(t *testing.T, who *user) {
	dir := filepath.Dir(who.writeFile("marked/f", "x", 0o644))
	answers := who.serve(t, dir, "\ufeff"+`{"jsonrpc":"2.0","id":1,"method":"ping"}`, object{"id": "last", "method": "ping"})
	refused := slices.ContainsFunc(answers, func(a object) bool { return a["id"] == nil && a["error"] != nil })
	answered := slices.ContainsFunc(answers, func(a object) bool { return a["id"] == "last" && a["result"] != nil })
	if len(answers) != 2 || !refused || !answered {
		t.Errorf("answers %v, want a refusal and the answer to the ping", answers)
	}
}

// The error for text that is not JSON has the code -32700, and the error for JSON that is not a
// request -32600.
func testCodes(t *testing.T, who *user) {
	dir := filepath.Dir(who.writeFile("codes/f", "x", 0o644))
	for line, want := range map[string]float64{"{broken": -32700, "[]": -32600} {
		answers := who.serve(t, dir, line, object{"id": "last", "method": "ping"})
		if !slices.ContainsFunc(answers, func(a object) bool {
			e, _ := a["error"].(object)
			return e["code"] == want
		}) {
			t.Errorf("%s: answers %v, want the code %v", line, answers, want)
		}
	}
}

// serve sends messages to rootsfs serve and returns the answers to them. A message that is a string
// is sent as it is.
func (w *user) serve(t *testing.T, root string, messages ...any) (answers []object) {
	t.Helper()
	opening := []any{
		object{"id": 0, "method": "initialize", "params": object{"protocolVersion": "2025-06-18", "capabilities": object{}, "clientInfo": object{"name": "reports", "version": "1"}}},
		object{"method": "notifications/initialized"},
	}
	var in strings.Builder
	for _, m := range append(opening, messages...) {
		switch m := m.(type) {
		case string:
			in.WriteString(m)
		case object:
			m["jsonrpc"] = "2.0"
			line, err := json.Marshal(m)
			testkit.Must(t, err)
			in.Write(line)
		}
		in.WriteByte('\n')
	}
	cmd := w.command(w.program, "serve", "--root", root+":rw")
	cmd.Stdin = strings.NewReader(in.String())
	var output strings.Builder
	cmd.Stderr = &output
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, output.String())
	}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var answer object
		testkit.Must(t, json.Unmarshal(lines.Bytes(), &answer))
		if answer["id"] != float64(0) {
			answers = append(answers, answer)
		}
	}
	return answers
}

// text returns the text of a tool's answer.
func text(answer object) string {
	result, _ := answer["result"].(object)
	content, _ := result["content"].([]any)
	if len(content) == 0 {
		return ""
	}
	first, _ := content[0].(object)
	s, _ := first["text"].(string)
	return s
}
