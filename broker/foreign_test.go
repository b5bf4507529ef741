package broker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R127: a server gets the same answers about another server's root, live or revoked, as
// about a root that never existed.
func TestForeignRootsLookLikeNone(t *testing.T) {
	l := newLab(t, nil)
	l.root("all", guard.ReadWrite, map[string]string{"f": "text"})
	for _, name := range []guard.RootName{"live", "past"} {
		l.grant(guard.Grant{Root: name, Dir: names.Foreign(t.TempDir()), Subject: "alice", Policy: guard.Policy{Rights: guard.ReadWrite}})
	}
	if _, err := l.reg.Revoke(t.Context(), "past"); err != nil {
		t.Fatal(err)
	}
	alice, p := l.connect("alice"), l.connect("bob")
	alice.must("files/list", obj{"path": "live"}, nil)
	if _, d := alice.fails("files/list", obj{"path": "past"}); d.Reason != names.Revoked.String() {
		t.Errorf("alice's own: %+v", d)
	}
	requests := map[string]string{
		"files/read": `{"path":"ROOT/f"}`, "files/stat": `{"path":"ROOT"}`, "files/list": `{"path":"ROOT","recursive":true}`,
		"files/write": `{"path":"ROOT/f","content":"x","create":true}`, "files/create": `{"path":"ROOT/d/e","type":"directory"}`,
		"files/delete": `{"path":"ROOT/f"}`, "files/watch": `{"path":"ROOT"}`,
		"files/rename": `{"oldPath":"ROOT/f","newPath":"ROOT/g"}`, "files/copy": `{"oldPath":"ROOT/f","newPath":"ROOT/g"}`,
		"files/rename to": `{"oldPath":"all/f","newPath":"ROOT/g"}`, "files/copy to": `{"oldPath":"all/f","newPath":"ROOT/g"}`,
		"files/rename from": `{"oldPath":"ROOT/g","newPath":"all/g"}`, "files/copy from": `{"oldPath":"ROOT/g","newPath":"all/g"}`,
		"files/write upload": `{"path":"ROOT/f","content":"x","create":true,"upload":true}`,
		"files/consent":      `{"message":"m","requestedPaths":["ROOT/f"]}`,
	}
	for name, params := range requests {
		method, _, _ := strings.Cut(name, " ")
		ask := func(root string) string {
			r := p.call(method, strings.ReplaceAll(params, "ROOT", root))
			answer := string(r.Result)
			if r.Error != nil {
				answer = fmt.Sprintf("%d %s %s", r.Error.Code, r.Error.Message, r.Error.Data)
			}
			return strings.ReplaceAll(answer, root, "ROOT")
		}
		none := ask("none")
		if method != "files/consent" && !strings.Contains(none, names.NoConsent.String()) {
			t.Errorf("%s: no such root: %s", name, none)
		}
		for _, root := range []string{"live", "past"} {
			if answer := ask(root); answer != none {
				t.Errorf("%s: %s root: %s\nno root: %s", name, root, answer, none)
			}
		}
	}
}

// R127: neither a notification nor the version of a list shows that another server's
// roots change. A change of a server's own roots is announced.
func TestForeignRootsChangeNothing(t *testing.T) {
	l := newLab(t, func(c *Config) { c.PageSize = 1 })
	l.root("a", guard.ReadOnly, nil)
	l.root("b", guard.ReadOnly, nil)
	alice, p := l.connect("alice"), l.connect("bob")
	var before wire.RootsResult
	p.must("roots/list", obj{}, &before)
	dir := t.TempDir()
	l.grant(guard.Grant{Root: "hers", Dir: names.Foreign(dir), Subject: "alice", Policy: guard.Policy{Rights: guard.ReadWrite}})
	alice.until(wire.RootsChanged, anyParams)
	if err := l.reg.Set(t.Context(), "hers", guard.ReadOnly); err != nil {
		t.Fatal(err)
	}
	alice.until(wire.RootsChanged, anyParams)
	if _, err := l.reg.Revoke(t.Context(), "hers"); err != nil {
		t.Fatal(err)
	}
	alice.until(wire.RootsChanged, anyParams)
	if n := p.s.Stats().Notified; n != 0 {
		t.Errorf("%d notifications of another's roots", n)
	}
	var after wire.RootsResult
	p.must("roots/list", obj{}, &after)
	if after.NextCursor != before.NextCursor {
		t.Errorf("the cursor moved from %s to %s", before.NextCursor, after.NextCursor)
	}
	p.must("roots/list", obj{"cursor": before.NextCursor}, nil)
	l.grant(guard.Grant{Root: "his", Dir: names.Foreign(dir), Subject: "bob", Policy: guard.Policy{Rights: guard.ReadOnly}})
	p.until(wire.RootsChanged, anyParams)
	if e, _ := p.fails("roots/list", obj{"cursor": before.NextCursor}); e.Code != wire.CodeInvalidParams {
		t.Errorf("a cursor of the old list: %+v", e)
	}
}

func anyParams(json.RawMessage) bool { return true }
