package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/rootsfs/rootsfs/broker"
	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// peers installs the published servers once for all tests.
var peers = sync.OnceValues(func() (*Peers, error) { return InstallPeers(context.Background()) })

func needPeers(t testing.TB) *Peers {
	t.Helper()
	p, err := peers()
	testkit.Must(t, err)
	return p
}

// program is a server that runs under a session of the broker: a published one or
// testdata/peer.mjs.
type program struct {
	t       testing.TB
	session *broker.Session
	host    *mcp.ClientSession
	log     *bytes.Buffer
}

func (h *host) run(cmd *exec.Cmd, log *bytes.Buffer) *program {
	h.t.Helper()
	s := h.b.Session("peer")
	h.t.Cleanup(s.Close)
	in, err := cmd.StdinPipe()
	testkit.Must(h.t, err)
	out, err := cmd.StdoutPipe()
	testkit.Must(h.t, err)
	testkit.Must(h.t, cmd.Start())
	c := mcp.NewClient(&mcp.Implementation{Name: "test-host", Version: "1"}, nil)
	p := &program{t: h.t, session: s, log: log}
	p.host, err = c.Connect(context.Background(), s.Lines(out, in, 0), &mcp.ClientSessionOptions{ProtocolVersion: filesRevision})
	if err != nil {
		h.t.Fatalf("%v\n%s", err, log)
	}
	h.t.Cleanup(func() {
		if err := errors.Join(p.host.Close(), cmd.Wait()); err != nil {
			h.t.Errorf("closing the session and its child: %v", err)
		}
	})
	return p
}

// tool calls a tool and returns its text.
func (p *program) tool(name string, args any) string {
	p.t.Helper()
	res, err := p.host.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", name, err, p.log)
	}
	var all strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			all.WriteString(text.Text + "\n")
		}
	}
	return all.String()
}

// awaitTool calls a tool until right accepts the text of the tool.
func (p *program) awaitTool(name string, right func(text string) bool) {
	p.t.Helper()
	text := ""
	if !testkit.Eventually(func() bool { text = p.tool(name, struct{}{}); return right(text) }) {
		p.t.Fatalf("%s still says %s\n%s", name, text, p.log)
	}
}

// typescript runs testdata/peer.mjs.
func (h *host) typescript() *program {
	h.t.Helper()
	dir := h.t.TempDir()
	script, err := os.ReadFile("testdata/peer.mjs")
	testkit.Must(h.t, err)
	testkit.Must(h.t, os.WriteFile(filepath.Join(dir, "peer.mjs"), script, 0o644))
	testkit.Must(h.t, os.Symlink(needPeers(h.t).Module(), filepath.Join(dir, "node_modules")))
	var log bytes.Buffer
	cmd := exec.Command("node", filepath.Join(dir, "peer.mjs"))
	cmd.Stderr = &log
	return h.run(cmd, &log)
}

// answer is the result of the script's tool "ask".
type answer struct {
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    wire.ErrorData
	}
}

// ask makes the server send a request. If the request succeeds, ask decodes its result into out.
func (p *program) ask(method string, params, out any) answer {
	p.t.Helper()
	var a answer
	testkit.Must(p.t, json.Unmarshal([]byte(p.tool("ask", map[string]any{"method": method, "params": params})), &a))
	if a.Error == nil && out != nil {
		testkit.Must(p.t, json.Unmarshal(a.Result, out))
	}
	return a
}

func (p *program) must(method string, params, out any) {
	p.t.Helper()
	if a := p.ask(method, params, out); a.Error != nil {
		p.t.Fatalf("%s %v: %+v", method, params, a.Error)
	}
}

// checkRefused checks that a request is refused, and that the code and the reason reach the peer.
func (p *program) checkRefused(method string, params any, code names.Code, reason names.Kind) {
	p.t.Helper()
	a := p.ask(method, params, nil)
	if a.Error == nil || a.Error.Data.Code != code || a.Error.Data.Reason != reason.String() || a.Error.Code != wire.Number(code) {
		p.t.Errorf("%s %v: %s %+v, want %s for %v", method, params, a.Result, a.Error, code, reason)
	}
}

// allowAll answers every question with yes.
func allowAll(_ context.Context, q *broker.Question) (broker.Answer, error) {
	return broker.Answer{By: "test", Decisions: slices.Repeat([]broker.Decision{{Allow: true}}, len(q.Items))}, nil
}

// A server on the TypeScript SDK makes the requests of the examples in SEP-1708, in one
// program, as the author of a server would write the program: R001, R026, R027, R028, R029, R030,
// R031, R032, R033, R034, R035, R036, R037, R038, R039, R040, R041, R042, R043, R044, R045, R046,
// R047, R048.
func TestTypeScriptServer_SEP1708(t *testing.T) {
	h := newHost(t, func(c *broker.Config) { c.Asker = broker.AskerFunc(allowAll) })
	dir := filepath.Join(t.TempDir(), "frontend")
	writeFile(t, filepath.Join(dir, "src/main.py"), "print(1)\n")
	p := h.typescript()
	var out struct {
		Consent wire.ConsentResult
		Read    wire.ReadResult
		Write   wire.WriteResult
		List    wire.ListResult
		Create  wire.CreateResult
		Rename  wire.RenameResult
		Watch   wire.WatchResult
		Changed struct {
			Method string
			Params wire.ChangedParams
		}
		Delete map[string]any
	}
	text := p.tool("seed", map[string]any{"dir": dir})
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v\n%s\n%s", err, text, p.log)
	}
	if !out.Consent.Granted || !slices.Equal(out.Consent.ApprovedPaths, []string{dir}) {
		t.Errorf("consent: %+v", out.Consent)
	}
	if out.Read.Content != "print(1)\n" || out.Read.Size != 9 || out.Read.MimeType != "text/x-python" {
		t.Errorf("read: %+v", out.Read)
	}
	if out.Write.BytesWritten != 5 || out.Create.Type != wire.TypeDirectory || out.Rename.Path != "frontend/build/old.py" {
		t.Errorf("write, create, rename: %+v %+v %+v", out.Write, out.Create, out.Rename)
	}
	if len(out.List.Entries) != 2 || out.List.Entries[0].Path != "frontend/src/main.py" && out.List.Entries[1].Path != "frontend/src/main.py" {
		t.Errorf("list: %+v", out.List)
	}
	c := out.Changed.Params
	if out.Watch.WatchID == "" || c.Path != "frontend/src/main.py" || c.Event != wire.EventModified || !strings.HasSuffix(c.Timestamp, "Z") {
		t.Errorf("watch: %+v, %+v", out.Watch, out.Changed)
	}
	if _, err := os.Stat(filepath.Join(dir, "build/old.py")); !os.IsNotExist(err) || out.Delete == nil {
		t.Errorf("delete: %v, %v", out.Delete, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "src/main.py")); err != nil || string(b) != "changed\n" {
		t.Errorf("written: %q, %v", b, err)
	}
}

// A server on the TypeScript SDK calls every method of files/* except files/consent, including our
// extensions, and gets the error codes:
// R022, R023, R024, R033, R037, R049, R050, R051, R052, R053, R054, R055, R056, R067,
// R073.
func TestTypeScriptServer_AllMethods(t *testing.T) {
	h := newHost(t, nil)
	dir := h.root("work", guard.ReadWrite, "a.txt=hello", "sub/b.txt=there", ".hidden=x", "loop => loop")
	h.root("docs", guard.ReadOnly, "r.txt=read me")
	p := h.typescript()
	if caps := p.tool("capabilities", struct{}{}); !strings.Contains(caps, wire.Extension) {
		t.Errorf("the SDK shows its server no sign of the broker: %s", caps)
	}
	if roots := p.tool("roots", struct{}{}); !strings.Contains(roots, `"name":"work"`) || !strings.Contains(roots, `"name":"docs"`) {
		t.Errorf("roots/list: %s", roots)
	}
	t.Run("contents", func(t *testing.T) { tsContents(t, p, dir) })
	t.Run("names", func(t *testing.T) { tsNames(t, p) })
	t.Run("errors", func(t *testing.T) { tsErrors(t, p) })
	t.Run("parallel", func(t *testing.T) {
		for i := range 10 {
			writeFile(t, filepath.Join(dir, fmt.Sprintf("p%d", i)), strings.Repeat(fmt.Sprint(i), 1000))
		}
		var got []string
		testkit.Must(t, json.Unmarshal([]byte(p.tool("parallel", map[string]any{"path": "work/p", "n": 200})), &got))
		for i, s := range got {
			if s != strings.Repeat(fmt.Sprint(i%10), 1000) {
				t.Fatalf("request %d got another's answer: %.20q", i, s)
			}
		}
	})
}

func tsContents(t *testing.T, p *program, dir string) {
	bin := base64.StdEncoding.EncodeToString([]byte("\x00\xff\xfe binary"))
	p.must(wire.Write, map[string]any{"path": "work/bin", "content": bin, "encoding": "base64", "create": true}, nil)
	var r wire.ReadResult
	p.must(wire.Read, map[string]any{"path": "work/bin", "encoding": "base64"}, &r)
	if r.Content != bin {
		t.Errorf("R033: read %q, wrote %q", r.Content, bin)
	}
	var w wire.WriteResult
	p.must(wire.Write, map[string]any{"path": "work/up", "content": "first,", "create": true, "upload": true}, &w)
	if _, err := os.Stat(filepath.Join(dir, "up")); !os.IsNotExist(err) {
		t.Errorf("R037: the file is there before its last chunk: %v", err)
	}
	p.must(wire.Write, map[string]any{"path": "work/up", "content": "last", "uploadId": w.UploadID, "offset": 6, "last": true}, nil)
	if b, err := os.ReadFile(filepath.Join(dir, "up")); err != nil || string(b) != "first,last" {
		t.Errorf("R037: %q, %v", b, err)
	}
	var st wire.StatResult
	p.must(wire.Stat, map[string]any{"path": "work/a.txt"}, &st)
	p.must(wire.Write, map[string]any{"path": "work/a.txt", "content": "mine", "ifMatch": st.ETag}, nil)
	p.checkRefused(wire.Write, map[string]any{"path": "work/a.txt", "content": "late", "ifMatch": st.ETag}, names.ConcurrencyConflict, names.Conflict)
	p.must(wire.Write, map[string]any{"path": "work/a.txt", "content": "!", "append": true}, nil)
	p.must(wire.Read, map[string]any{"path": "work/a.txt", "offset": 2, "length": 2}, &r)
	if r.Content != "ne" || r.Size != 5 {
		t.Errorf("R034: %+v", r)
	}
}

func tsNames(t *testing.T, p *program) {
	var l wire.ListResult
	p.must(wire.List, map[string]any{"path": ""}, &l)
	if len(l.Entries) != 2 {
		t.Errorf("the roots: %+v", l)
	}
	p.must(wire.Create, map[string]any{"path": "work/d/e", "type": "directory", "parents": true}, nil)
	p.must(wire.Create, map[string]any{"path": "work/d/e/f", "type": "file"}, nil)
	p.must(wire.Copy, map[string]any{"oldPath": "work/sub/b.txt", "newPath": "work/d/copy"}, nil)
	p.must(wire.Rename, map[string]any{"oldPath": "work/d/e", "newPath": "work/d/moved"}, nil)
	p.must(wire.List, map[string]any{"path": "work/d", "recursive": true}, &l)
	got := []string{}
	for _, e := range l.Entries {
		got = append(got, e.Path)
	}
	slices.Sort(got)
	if want := []string{"work/d/copy", "work/d/moved", "work/d/moved/f"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	p.must(wire.Delete, map[string]any{"path": "work/d", "recursive": true}, nil)
	p.checkRefused(wire.Stat, map[string]any{"path": "work/d"}, names.FileNotFound, names.NotExist)
	var w wire.WatchResult
	p.must(wire.Watch, map[string]any{"path": "work", "recursive": true}, &w)
	p.must(wire.Create, map[string]any{"path": "work/seen"}, nil)
	p.awaitTool("notes", func(s string) bool { return strings.Contains(s, `"path":"work/seen"`) })
	p.must(wire.Unwatch, map[string]any{"watchId": w.WatchID}, nil)
}

func tsErrors(t *testing.T, p *program) {
	p.checkRefused(wire.Read, map[string]any{"path": "work/none"}, names.FileNotFound, names.NotExist)
	p.checkRefused(wire.Read, map[string]any{"path": "/etc/passwd"}, names.PermissionDenied, names.NoConsent)
	p.checkRefused(wire.Read, map[string]any{"path": "other/x"}, names.PermissionDenied, names.NoConsent)
	p.checkRefused(wire.Write, map[string]any{"path": "docs/r.txt", "content": "x"}, names.PermissionDenied, names.ReadOnly)
	p.checkRefused(wire.Read, map[string]any{"path": "work/../../etc/passwd"}, names.InvalidPath, names.Invalid)
	p.checkRefused(wire.Read, map[string]any{"path": "work/a\x00b"}, names.InvalidPath, names.Invalid)
	p.checkRefused(wire.Read, map[string]any{"path": "work/sub"}, names.InvalidPath, names.IsDir)
	p.checkRefused(wire.Delete, map[string]any{"path": "work/sub"}, names.IOError, names.NotEmpty)
	p.checkRefused(wire.Read, map[string]any{"path": "work/a.txt", "length": 1 << 40}, names.QuotaExceeded, names.Quota)
	p.checkRefused(wire.Write, map[string]any{"path": "work/a.txt", "content": "", "createOnly": true}, names.ConcurrencyConflict, names.Exist)
	for method, code := range map[string]int{"files/chmod": wire.CodeMethodNotFound, "fs.read": wire.CodeMethodNotFound, wire.Read: wire.CodeInvalidParams} {
		if a := p.ask(method, map[string]any{}, nil); a.Error == nil || a.Error.Code != code {
			t.Errorf("%s without parameters: %s %+v, want %d", method, a.Result, a.Error, code)
		}
	}
}

// server-filesystem uses the client's roots as its directories, and follows changes (R002,
// R012, R118). The test keeps one root to the end, because the server opens files itself, takes
// roots as advice, and keeps its directories if there are no roots.
func TestServerFilesystem_Roots(t *testing.T) {
	h := newHost(t, nil)
	first := h.root("one", guard.ReadOnly, "a.txt=one")
	own := t.TempDir()
	var log bytes.Buffer
	p := h.run(needPeers(t).Server(context.Background(), "filesystem", &log, own), &log)
	allows := func(dir string, not ...string) func(string) bool {
		return func(text string) bool {
			return strings.Contains(text, dir) && !slices.ContainsFunc(not, func(d string) bool { return strings.Contains(text, d) })
		}
	}
	p.awaitTool("list_allowed_directories", allows(first, own))
	if got := p.tool("read_text_file", map[string]any{"path": filepath.Join(first, "a.txt")}); got != "one\n" {
		t.Errorf("it read %q", got)
	}
	second := h.root("two", guard.ReadOnly, "b.txt=two")
	p.awaitTool("list_allowed_directories", allows(second, own))
	_, err := h.reg.Revoke(context.Background(), "one")
	testkit.Must(t, err)
	p.awaitTool("list_allowed_directories", allows(second, own, first))
}

// server-everything shows the roots that it got.
func TestServerEverything_Roots(t *testing.T) {
	h := newHost(t, nil)
	first := h.root("one", guard.ReadOnly)
	var log bytes.Buffer
	p := h.run(needPeers(t).Server(context.Background(), "everything", &log, "stdio"), &log)
	p.awaitTool("get-roots-list", func(s string) bool { return strings.Contains(s, first) && strings.Contains(s, "one") })
	second := h.root("two", guard.ReadOnly)
	p.awaitTool("get-roots-list", func(s string) bool { return strings.Contains(s, second) })
	_, err := h.reg.Revoke(context.Background(), "one")
	testkit.Must(t, err)
	p.awaitTool("get-roots-list", func(s string) bool { return !strings.Contains(s, first) })
}
