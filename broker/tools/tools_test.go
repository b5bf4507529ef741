package tools_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/tools"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// R223, R224: files are read by the root's name, by an absolute path and by a URI. The error
// for a missing file is not the one for a path outside.
func TestRead_R223_R224(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("code", guard.ReadOnly, "a.txt=one\ntwo\nthree\n", "sub/b.txt=b", "big=0123456789", "in => a.txt", "out => /etc/passwd", "gone => nowhere")
	testkit.Must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	b.connect("2025-11-25")
	for _, p := range []string{"code/a.txt", dir + "/a.txt", "file://" + dir + "/a.txt", "a.txt", "./a.txt", "code/in"} {
		if got := b.ok("read_text_file", m{"path": p}); got != "one\ntwo\nthree\n" {
			t.Errorf("%s: %q", p, got)
		}
	}
	for want, args := range map[string]m{
		"one\ntwo": {"head": 2}, "two\nthree": {"tail": 2}, "one\ntwo\nthree": {"head": 9}, "three": {"tail": 1},
	} {
		args["path"] = "code/a.txt"
		if got := b.ok("read_text_file", args); got != want {
			t.Errorf("%v: %q, want %q", args, got, want)
		}
	}
	if got, note, _ := b.call("read_file_range", m{"path": "code/a.txt", "startLine": 2, "endLine": 2}); got != "two\n" || note != "Go on with startLine 3." {
		t.Errorf("lines: %q, %q", got, note)
	}
	if got, note, _ := b.call("read_file_range", m{"path": "code/big", "offset": 2, "length": 3}); got != "234" || !strings.Contains(note, "offset 5") {
		t.Errorf("bytes: %q, %q", got, note)
	}
	if got := b.ok("list_directory", m{"path": "code"}); got != "[FILE] a.txt\n[FILE] big\n[FILE] gone\n[FILE] in\n[FILE] out\n[DIR] sub" {
		t.Errorf("list: %q", got)
	}
	b.refused("read_text_file", m{"path": "code/none"}, "no such file")
	b.refused("read_text_file", m{"path": "/etc/passwd"}, "nobody approved")
	b.refused("read_text_file", m{"path": dir + "-sibling/x"}, "nobody approved")
	b.refused("read_text_file", m{"path": "code/out"}, "leaves its root")
	b.refused("read_text_file", m{"path": "code/../../etc/passwd"}, "..")
	b.refused("read_text_file", m{"path": "code/fifo"}, "no such file") // refused unopened: a read would never end
	b.refused("read_text_file", m{"path": "code/sub"}, "directory")
	b.refused("list_directory", m{"path": "code/a.txt"}, "not a directory")
	b.refused("read_text_file", m{"path": "code/a.txt", "head": -1}, "head must be")
	b.refused("read_text_file", m{"path": "code/a.txt", "head": "1"}, "head must be a number, not string")
	b.refused("read_text_file", m{"path": "code/a.txt", "lines": 1}, `no field "lines"`)
	got := b.ok("read_multiple_files", m{"paths": []string{"code/sub/b.txt", "code/none"}})
	if got != "code/sub/b.txt:\nb\n\n---\ncode/none: Error - code/none: no such file or directory" {
		t.Errorf("many: %q", got)
	}
}

// A line that is longer than an answer is cut between characters, and the note says where to
// continue.
func TestLongLineEndsAtACharacter(t *testing.T) {
	b := start(t, func(c *tools.Config) { c.Answer = 1001 }, nil)
	b.root("code", guard.ReadOnly, "long="+strings.Repeat("é", 1000)+"\nshort")
	b.connect("2025-11-25")
	for tool, args := range map[string]m{
		"read_text_file":  {"path": "code/long", "head": 1},
		"read_file_range": {"path": "code/long", "startLine": 1, "endLine": 1},
	} {
		text, note, failed := b.call(tool, args)
		if failed || text != strings.Repeat("é", 500) || !strings.HasSuffix(note, "offset 1000.") || strings.Contains(note, "U+FFFD") {
			t.Errorf("%s: failed %v, %d bytes, %q", tool, failed, len(text), note)
		}
	}
}

// Writing tools are offered if a root may be written to, and their appearance is announced.
func TestOffer(t *testing.T) {
	changed := make(chan struct{}, 16)
	b := start(t, nil, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} }})
	b.root("docs", guard.ReadOnly, "a=1")
	b.connect("2025-11-25")
	names := func() (out []string) {
		res, err := b.host.ListTools(context.Background(), nil)
		testkit.Must(t, err)
		for _, tool := range res.Tools {
			out = append(out, tool.Name)
		}
		return out
	}
	has := func(want bool) bool { return slices.Contains(names(), "write_file") == want }
	if !has(false) || !slices.Contains(names(), "read_text_file") {
		t.Fatalf("read-only: %v", names())
	}
	b.root("out", guard.ReadWrite)
	for !has(true) {
		<-changed
	}
	_, err := b.reg.Revoke(context.Background(), "out")
	testkit.Must(t, err)
	b.refused("write_file", m{"path": "out/x", "content": "x"}, "the tool write_file is not offered: no approved root allows it now")
	for !has(false) {
		<-changed
	}
}

func TestWrite(t *testing.T) {
	b := start(t, nil, nil)
	dir := b.root("out", guard.ReadWrite, "a.txt=old", "link => a.txt", "dangling => new.txt", "away => /tmp/rootsfs-nothing", "d/x=1", "d/y=2")
	other := b.root("two", guard.ReadWrite)
	b.root("docs", guard.ReadOnly, "r=1")
	b.connect("2025-11-25")
	testkit.Must(t, os.Chmod(filepath.Join(dir, "a.txt"), 0o640))
	if got := b.ok("write_file", m{"path": "out/link", "content": "new"}); got != "Successfully wrote to out/link" || b.file(dir, "a.txt") != "new" {
		t.Errorf("%q, %q", got, b.file(dir, "a.txt"))
	}
	if st, err := os.Stat(filepath.Join(dir, "a.txt")); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("the mode is lost: %v, %v", st.Mode(), err)
	}
	b.refused("write_file", m{"path": "out/dangling", "content": "x"}, "no such file")
	b.refused("write_file", m{"path": "out/away", "content": "x"}, "leaves its root")
	b.refused("write_file", m{"path": "docs/r", "content": "x"}, "read-only")
	b.ok("append_file", m{"path": "out/a.txt", "content": "er"})
	if got := b.file(dir, "a.txt"); got != "newer" {
		t.Errorf("appended: %q", got)
	}
	b.ok("create_directory", m{"path": "out/p/q/r"})
	b.ok("create_directory", m{"path": "out/p/q/r"})
	b.ok("copy_file", m{"source": "out/a.txt", "destination": "out/p/copy"})
	b.refused("copy_file", m{"source": "out/a.txt", "destination": "out/p/copy"}, "already exists")
	b.refused("move_file", m{"source": "out/a.txt", "destination": "out/p/copy"}, "already exists")
	b.ok("move_file", m{"source": "out/link", "destination": "out/link2"}) // the link itself
	if to, err := os.Readlink(filepath.Join(dir, "link2")); err != nil || to != "a.txt" {
		t.Errorf("the link became %q, %v", to, err)
	}
	b.ok("move_file", m{"source": "out/p/copy", "destination": "two/copy"})
	if b.file(other, "copy") != "newer" {
		t.Error("not moved to the other root")
	}
	b.refused("delete_file", m{"path": "out/d"}, "set recursive")
	b.ok("delete_file", m{"path": "out/d", "recursive": true})
	b.refused("delete_file", m{"path": "out"}, "only its owner")
	if _, err := os.Stat(filepath.Join(dir, "d")); !os.IsNotExist(err) {
		t.Errorf("d is there: %v", err)
	}
	for _, r := range b.recs.All() {
		if r.Via != guard.ViaTools && r.Via != guard.ViaControl {
			t.Errorf("a record via %v: %+v", r.Via, r)
		}
	}
}

// An edit keeps everything else of the file, such as line ends and a byte order mark. A file that
// is not UTF-8 is not edited.
func TestEdit(t *testing.T) {
	b := start(t, nil, nil)
	crlf := "\ufeffone\r\ntwo\nthree\r\n  four\r\n"
	dir := b.root("out", guard.ReadWrite, "crlf="+crlf, "latin=caf\xe9\n")
	b.connect("2025-11-25")
	got := b.ok("edit_file", m{"path": "out/crlf", "edits": []m{{"oldText": "one\ntwo", "newText": "1\n2"}}, "dryRun": true})
	if b.file(dir, "crlf") != crlf || !strings.HasPrefix(got, "```diff\nIndex: out/crlf\n") || !strings.Contains(got, "\n-two\n") || !strings.Contains(got, "\n+2\n") {
		t.Errorf("dry run: %s", got)
	}
	b.ok("edit_file", m{"path": "out/crlf", "edits": []m{
		{"oldText": "three", "newText": "3\nthree"}, {"oldText": "four\n", "newText": "4\n"}, {"oldText": "3\nthree", "newText": "3"},
	}})
	if got, want := b.file(dir, "crlf"), "\ufeffone\r\ntwo\n3\r\n  4\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.refused("edit_file", m{"path": "out/latin", "edits": []m{{"oldText": "caf", "newText": "tea"}}}, "not UTF-8")
	if b.file(dir, "latin") != "caf\xe9\n" {
		t.Error("the file that is not UTF-8 was changed")
	}
	b.refused("edit_file", m{"path": "out/crlf", "edits": []m{{"oldText": "nowhere", "newText": ""}}}, "could not find")
	b.refused("edit_file", m{"path": "out/crlf", "edits": []m{{"oldText": "", "newText": "x"}}}, "oldText is empty")
}

func TestTreeAndSearch(t *testing.T) {
	b := start(t, func(c *tools.Config) { c.Answer = 400 }, nil)
	dir := b.root("code", guard.ReadOnly, "b/x.go=package x\nfunc Find() {}\n", "b/y.txt=find\nme\n", "a.go=package a\n", "c/", "n/m/z.go=// Find\n")
	b.connect("2025-11-25")
	if got, want := b.ok("search_files", m{"path": "code", "pattern": "**/*.go"}), "code/a.go\ncode/b/x.go\ncode/n/m/z.go"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := b.ok("search_files", m{"path": dir, "pattern": "**/*.go", "excludePatterns": []string{"n/**"}}), dir+"/a.go\n"+dir+"/b/x.go"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := b.ok("search_files", m{"path": "code", "pattern": "*.rs"}); got != "No matches found" {
		t.Errorf("%q", got)
	}
	b.refused("search_files", m{"path": "code", "pattern": "!x"}, "excludePatterns")
	if got, want := b.ok("search_within_files", m{"path": "code", "substring": "find", "ignoreCase": true}),
		"code/b/x.go:2: func Find() {}\ncode/b/y.txt:1: find\ncode/n/m/z.go:1: // Find"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := b.ok("search_within_files", m{"path": "code", "regex": `^func \w+`, "include": "*.go", "contextLines": 1}),
		"code/b/x.go-1- package x\ncode/b/x.go:2: func Find() {}\n--"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// The pages of a tree, joined, name every file once.
	var seen []string
	cursor := ""
	for range 20 {
		args := m{"path": "code"}
		if cursor != "" {
			args["cursor"] = cursor
		}
		text, note, failed := b.call("directory_tree", args)
		if failed {
			t.Fatal(text)
		}
		seen = append(seen, leaves(t, text)...)
		_, cursor, _ = strings.Cut(note, "cursor ")
		if cursor == "" {
			break
		}
	}
	slices.Sort(seen)
	if want := []string{"a.go", "b/x.go", "b/y.txt", "n/m/z.go"}; !slices.Equal(seen, want) {
		t.Errorf("the tree has %q, want %q", seen, want)
	}
}

// Long operations report their progress to a client that asks for it.
func TestProgress(t *testing.T) {
	reports := make(chan float64, 1024)
	b := start(t, nil, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { reports <- r.Params.Progress }})
	b.root("out", guard.ReadWrite, "d/a/x=1", "d/b/y=2", "big="+strings.Repeat("x", 1<<20))
	b.connect("2025-11-25")
	for _, c := range []struct {
		tool string
		args m
	}{
		{"copy_file", m{"source": "out/big", "destination": "out/copy"}},
		{"read_multiple_files", m{"paths": []string{"out/d/a/x"}}},
		{"delete_file", m{"path": "out/d", "recursive": true}},
	} {
		params := &mcp.CallToolParams{Name: c.tool, Arguments: c.args}
		params.SetProgressToken(c.tool)
		res, err := b.host.CallTool(context.Background(), params)
		if err != nil || res.IsError {
			t.Errorf("%s: %+v, %v", c.tool, res, err)
		}
		select {
		case n := <-reports:
			if n <= 0 {
				t.Errorf("%s reported %v", c.tool, n)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s reported nothing", c.tool)
		}
		for len(reports) > 0 {
			<-reports
		}
	}
}

// With Ask, the person at the host decides about a path that no root holds. A grant holds from
// then on, and only for the granted path and rights.
func TestAsk(t *testing.T) {
	var asked []string
	action := "accept"
	b := start(t, func(c *tools.Config) {
		br := broker.New(broker.Config{Registry: c.Registry, Tree: c.Tree, Asker: broker.AskHost})
		t.Cleanup(br.Close)
		c.Ask, c.ClientAnswers = br.Session("test"), true
	}, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		asked = append(asked, req.Params.Message)
		if action == "accept" {
			return &mcp.ElicitResult{Action: "accept", Content: m{"path1": "read only"}}, nil
		}
		return &mcp.ElicitResult{Action: action}, nil
	}})
	b.root("code", guard.ReadOnly, "a=1")
	b.connect("2025-11-25") // later revisions have no requests of a server's own
	dir := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("granted"), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "g"), []byte("other"), 0o600))
	action = "decline"
	b.refused("read_text_file", m{"path": dir + "/f"}, "nobody approved")
	action = "accept"
	for range 2 {
		if got := b.ok("read_text_file", m{"path": dir + "/f"}); got != "granted" || len(asked) != 2 || !strings.Contains(asked[1], dir) {
			t.Errorf("%q, asked %q", got, asked)
		}
	}
	b.refused("write_file", m{"path": dir + "/f", "content": "x"}, "")
	action = "decline"
	b.refused("read_text_file", m{"path": dir + "/g"}, "nobody approved")
	n := len(asked)
	b.refused("read_text_file", m{"path": "nowhere/g"}, "")
	if len(asked) != n {
		t.Errorf("asked about a path that is not absolute: %q", asked[n:])
	}
}
