package broker

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// Numbers such as R018 in the comments of these tests are those of integration/requirements.md.

// R018, R020, R021, R022, R023: roots/list needs no params. It lists no root, one root with its
// name and URI, or several. After list_changed it lists the new state.
func TestSEP1708Roots(t *testing.T) {
	l := newLab(t, nil)
	p := l.connect("")
	// R015: the session serves this server, although it has declared no capability.
	list := func(params string) wire.RootsResult {
		t.Helper()
		p.mu.Lock()
		p.next++
		id := fmt.Sprintf(`"raw%d"`, p.next)
		ch := make(chan reply, 1)
		p.replies[id] = ch
		p.mu.Unlock()
		p.raw(`{"jsonrpc":"2.0","id":` + id + `,"method":"roots/list"` + params + "}\n")
		r := <-ch
		var out wire.RootsResult
		if r.Error != nil || json.Unmarshal(r.Result, &out) != nil || out.Roots == nil {
			t.Fatalf("%+v %s", r.Error, r.Result)
		}
		return out
	}
	if r := list(""); len(r.Roots) != 0 {
		t.Errorf("without a root: %+v", r)
	}
	front := l.root("My Project", guard.ReadOnly, nil)
	if r := list(`,"params":{}`); len(r.Roots) != 1 || r.Roots[0].URI != "file://"+front || r.Roots[0].Name != "My Project" {
		t.Errorf("one: %+v", r)
	}
	p.until(wire.RootsChanged, func(json.RawMessage) bool { return true })
	l.root("backend", guard.ReadOnly, nil)
	p.until(wire.RootsChanged, func(json.RawMessage) bool { return len(list(`,"params":null`).Roots) == 2 })

	// R108, R117: a root that cannot be used is not listed.
	gone := l.root("gone", guard.ReadOnly, nil)
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	if err := l.reg.Recheck(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	for _, root := range list("").Roots {
		if root.Name == "gone" {
			t.Errorf("a root that vanished is listed: %+v", root)
		}
	}
	var top wire.ListResult
	p.must("files/list", `{}`, &top)
	if len(top.Entries) != 2 {
		t.Errorf("files/list of the roots: %+v", top)
	}
}

// R024, R124, R125: with Config.NoRoots, the session removes the roots capability from what the client
// declares. It answers roots/list with SEP-1708's error, refuses every files/* method, and announces
// no changes, although a root is granted.
func TestSEP1708NoRoots(t *testing.T) {
	l := newLab(t, func(c *Config) { c.NoRoots = true })
	p := l.connect("")
	l.root("r", guard.ReadOnly, map[string]string{"f": "text"})
	if e := p.call("roots/list", `{}`).Error; e == nil || e.Code != -32601 || e.Message != "Roots not supported" ||
		string(e.Data) != `{"reason":"Client does not have roots capability"}` {
		t.Errorf("roots/list: %+v", e)
	}
	for method := range methods {
		if method == testOnly {
			continue
		}
		if e, _ := p.fails(method, `{"path":"r/f"}`); e.Code != wire.CodeMethodNotFound {
			t.Errorf("%s: %+v", method, e)
		}
	}
	if n := p.s.Stats().Notified; n != 0 {
		t.Errorf("%d notifications", n)
	}
	for _, c := range []struct{ method, params, want string }{
		{
			"initialize", `{"capabilities":{"roots":{"listChanged":true},"sampling":{}},"protocolVersion":"2025-11-25"}`,
			`{"capabilities":{"sampling":{}},"protocolVersion":"2025-11-25"}`,
		},
		{
			"tools/list", `{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}`,
			`{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}`,
		},
	} {
		if got, keep := p.s.rewriteParams(c.method, []byte(c.params)); string(got) != c.want || !keep {
			t.Errorf("%s goes out as %s", c.method, got)
		}
	}
}

// R017: the prose of SEP-1708 says fs.* for the methods that its examples call files/*. The error
// for fs.read names files/read.
func TestSEP1708Prefix(t *testing.T) {
	p := newLab(t, nil).connect("")
	if e, _ := p.fails("fs.read", `{"path":"x"}`); e.Code != wire.CodeMethodNotFound || !strings.Contains(e.Message, "files/read") {
		t.Errorf("%+v", e)
	}
}

// R027, R028, R029: a files/consent asks for a directory and a file, as in SEP-1708's example. If the
// person allows only the directory, the answer approves only the directory. If the person allows
// nothing, the answer says granted: false.
func TestSEP1708Consent(t *testing.T) {
	a := &answers{give: allow(Decision{Allow: true}, Decision{})}
	l := newLab(t, func(c *Config) { c.Asker = a })
	base := t.TempDir()
	if err := os.Mkdir(base+"/project", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(base+"/config.json", []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := l.connect("")
	r := p.call("files/consent", fmt.Sprintf(
		`{"message":"Server requests access to project files for analysis","requestedPaths":[%q,%q]}`, base+"/project", base+"/config.json"))
	var got struct {
		Granted       bool
		ApprovedPaths []string
	}
	if r.Error != nil || json.Unmarshal(r.Result, &got) != nil || !got.Granted || len(got.ApprovedPaths) != 1 || got.ApprovedPaths[0] != base+"/project" {
		t.Errorf("%+v %s", r.Error, r.Result)
	}
	if !a.asked[0].Items[1].File || a.asked[0].Message != "Server requests access to project files for analysis" {
		t.Errorf("asked: %+v", a.asked[0])
	}
	a.give = allow()
	r = p.call("files/consent", fmt.Sprintf(`{"message":"again","requestedPaths":[%q]}`, base+"/config.json"))
	if r.Error != nil || !strings.Contains(string(r.Result), `"granted":false`) || !strings.Contains(string(r.Result), `"approvedPaths":[]`) {
		t.Errorf("denied: %s", r.Result)
	}
}

// R031, R057, R058: a read without a length returns one mebibyte. The largest chunk is
// configurable.
func TestSEP1708Chunk(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Limits.MaxChunk = 1<<20 + 1 })
	l.root("r", guard.ReadOnly, map[string]string{"big": strings.Repeat("x", 3<<20)})
	p := l.connect("")
	var r wire.ReadResult
	p.must("files/read", `{"path":"r/big"}`, &r)
	if len(r.Content) != 1<<20 || r.Size != 3<<20 || r.EOF || r.Next != 1<<20 {
		t.Errorf("%d of %d bytes, %v, %d", len(r.Content), r.Size, r.EOF, r.Next)
	}
	p.must("files/read", fmt.Sprintf(`{"path":"r/big","length":%d}`, 1<<20+1), nil)
	if _, d := p.fails("files/read", fmt.Sprintf(`{"path":"r/big","length":%d}`, 1<<20+2)); d.Code != names.QuotaExceeded {
		t.Errorf("%+v", d)
	}
}
