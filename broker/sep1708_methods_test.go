package broker

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// R012, R013: the client declares "listChanged": true by default, and false when list_changed is
// switched off.
func TestSEP1708ListChangedIsDeclared(t *testing.T) {
	for _, off := range []bool{false, true} {
		l := newLab(t, func(c *Config) { c.NoListChanged = off })
		s := l.b.Session("")
		params, _ := s.rewriteParams("initialize", []byte(`{"capabilities":{"roots":{"listChanged":true}}}`))
		var p struct {
			Capabilities struct{ Roots map[string]bool }
		}
		if err := json.Unmarshal(params, &p); err != nil {
			t.Fatal(err)
		}
		if want := map[string]bool{"listChanged": !off, "filesystemBrokering": true}; !maps.Equal(p.Capabilities.Roots, want) {
			t.Errorf("switched off %v: declared %v", off, p.Capabilities.Roots)
		}
		s.Close()
	}
}

// R022, R023: the server is notified when a root is added, changes its mode, is revoked or
// expires. A list that the server reads after the notification has the change.
func TestSEP1708EveryChangeIsAnnounced(t *testing.T) {
	l := newLab(t, nil)
	p := l.connect("")
	modes := func() (all []string) {
		var r wire.ListResult
		p.must("files/list", `{}`, &r)
		for _, e := range r.Entries {
			all = append(all, e.Name+" "+e.Mode)
		}
		return all
	}
	awaitRoots := func(want ...string) {
		t.Helper()
		p.until(wire.RootsChanged, func(json.RawMessage) bool { return slices.Equal(modes(), want) })
	}
	l.root("a", guard.ReadWrite, nil)
	awaitRoots("a rw")
	if err := l.reg.Set(t.Context(), "a", guard.ReadOnly); err != nil {
		t.Fatal(err)
	}
	awaitRoots("a ro")
	l.grant(guard.Grant{Root: "b", Dir: names.Foreign(t.TempDir()), Policy: guard.Policy{Rights: guard.ReadOnly}, Expires: time.Now().Add(2 * time.Second)})
	awaitRoots("a ro", "b ro")
	awaitRoots("a ro") // b has expired
	if _, err := l.reg.Revoke(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	awaitRoots()
}

// R182, R183: by default a page has up to 50 roots. The cursor is a JSON object with the version
// and the offset, in URL-safe base64.
func TestSEP1708Pages(t *testing.T) {
	base := t.TempDir()
	l := newLab(t, nil)
	p := l.connect("")
	granted := 0
	for _, c := range []struct{ roots, pages int }{{50, 1}, {51, 2}, {120, 3}} {
		for ; granted < c.roots; granted++ {
			dir := filepath.Join(base, fmt.Sprint(granted))
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			l.grant(guard.Grant{Root: guard.RootName(fmt.Sprintf("r%03d", granted)), Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadOnly}})
		}
		uris, pages, params := map[string]bool{}, 0, obj{}
		for more := true; more; pages++ {
			var r wire.RootsResult
			p.must("roots/list", params, &r)
			for _, root := range r.Roots {
				if uris[root.URI] || !strings.HasPrefix(root.URI, "file:///") { // R019
					t.Errorf("%q is listed twice, or is no file URI", root.URI)
				}
				uris[root.URI] = true
			}
			if more = r.NextCursor != ""; !more {
				continue
			}
			raw, err := base64.RawURLEncoding.DecodeString(r.NextCursor)
			var at map[string]int
			if err != nil || json.Unmarshal(raw, &at) != nil || len(at) != 2 || at["v"] < 1 || at["o"] != len(uris) {
				t.Errorf("cursor %q is %s, %v", r.NextCursor, raw, err)
			}
			params["cursor"] = r.NextCursor
		}
		if len(uris) != c.roots || pages != c.pages {
			t.Errorf("%d of %d roots in %d pages, want %d", len(uris), c.roots, pages, c.pages)
		}
	}
}

// R048, R058, R059: the methods are the seven file methods of SEP-1708, files/consent, roots/list,
// files/unwatch, files/stat and files/copy. By default the timeout is 60 seconds. A read without a
// length returns a mebibyte at most. The capability declares the configured largest chunk.
func TestSEP1708Table(t *testing.T) {
	l := newLab(t, nil)
	seven := []string{"files/read", "files/write", "files/list", "files/create", "files/delete", "files/rename", "files/watch"}
	want := append(slices.Clone(seven), "files/consent", "files/unwatch", "files/stat", "files/copy", "roots/list", testOnly)
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(methods)); !slices.Equal(got, want) {
		t.Errorf("methods %v, want %v", got, want)
	}
	s := l.b.Session("")
	defer s.Close()
	declared := s.limits.capability().Methods
	for _, m := range seven {
		if !slices.Contains(declared, m) {
			t.Errorf("%s is not declared", m)
		}
	}
	for _, m := range declared {
		if methods[m].run == nil {
			t.Errorf("%s is declared, but is no method", m)
		}
	}
	if s.limits.Timeout != 60*time.Second || wire.DefaultChunk != 1<<20 {
		t.Errorf("timeout %v, chunk %d", s.limits.Timeout, wire.DefaultChunk)
	}
	if c := newLab(t, func(c *Config) { c.Limits.MaxChunk = 64 << 10 }).b.Session("").limits.capability(); c.MaxChunk != 64<<10 {
		t.Errorf("the chunk that was configured is declared as %d", c.MaxChunk)
	}
}

// R030, R067: consent for a file does not include its neighbours or its directory.
func TestSEP1708ConsentForAFile(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Asker = &answers{give: allow(Decision{Allow: true})} })
	dir := t.TempDir()
	for _, f := range []string{"config.json", "secret.json"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := l.connect("")
	got := ask(p, "", dir+"/config.json")
	if !got.Granted || len(got.Approved) != 1 {
		t.Fatalf("%+v", got)
	}
	root := got.Approved[0].Root
	for _, path := range []string{dir + "/config.json", "file://" + dir + "/config.json", root} {
		p.must("files/read", obj{"path": path}, nil)
	}
	for _, path := range []string{dir + "/secret.json", dir, dir + "/", root + "/../secret.json", root + "/secret.json"} {
		for _, method := range []string{"files/read", "files/list", "files/stat", "files/watch"} {
			if r := p.call(method, obj{"path": path}); r.Error == nil {
				t.Errorf("%s of %s: %s", method, path, r.Result)
			}
		}
	}
}

// R036: if "create" is missing or false, a write to a missing file is an error and makes no
// file. If it is true, the file is made.
func TestSEP1708Create(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, nil)
	p := l.connect("")
	for _, more := range []string{``, `,"create":false`} {
		for _, way := range []string{``, `,"offset":0`, `,"append":true`, `,"upload":true,"last":true`} {
			if _, d := p.fails("files/write", `{"path":"r/f","content":"x"`+way+more+`}`); d.Code != names.FileNotFound {
				t.Errorf("%s%s: %+v", way, more, d)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the refused writes left %v, %v", left, err)
	}
	p.must("files/write", `{"path":"r/f","content":"x","create":true}`, nil)
	if b, err := os.ReadFile(dir + "/f"); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
}

// R044: a watch may name one of the three events, all of them, or none, which means all.
func TestSEP1708EventFilters(t *testing.T) {
	l := newLab(t, nil)
	dir := l.root("r", guard.ReadWrite, map[string]string{"d/old": "x", "d/gone": ""})
	p := l.connect("")
	wants := map[string][]string{} // by the watch
	for _, c := range []struct {
		events string
		want   []string
	}{
		{`["modified"]`, []string{"modified"}}, {`["created"]`, []string{"created"}}, {`["deleted"]`, []string{"deleted"}},
		{`["modified","created","deleted"]`, []string{"created", "deleted", "modified"}}, {`[]`, []string{"created", "deleted", "modified"}},
	} {
		var w wire.WatchResult
		p.must("files/watch", `{"path":"r/d","events":`+c.events+`}`, &w)
		wants[w.WatchID] = c.want
	}
	// The test waits for the event of each change before it makes the next, because an event that
	// soon follows another one may replace it.
	for event, act := range map[string]func(){
		"created":  func() { p.must("files/create", `{"path":"r/d/new"}`, nil) },
		"modified": func() { p.must("files/write", `{"path":"r/d/old","content":"changed"}`, nil) },
		"deleted": func() {
			if err := os.Remove(dir + "/d/gone"); err != nil {
				t.Error(err)
			}
		},
	} {
		waits := map[string]bool{}
		for id, want := range wants {
			if slices.Contains(want, event) {
				waits[id] = true
			}
		}
		act()
		p.until(wire.Changed, func(raw json.RawMessage) bool {
			var c wire.ChangedParams
			if err := json.Unmarshal(raw, &c); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(wants[c.WatchID], c.Event) {
				t.Errorf("a watch of %v is told of %+v", wants[c.WatchID], c)
			}
			if c.Event == event {
				delete(waits, c.WatchID)
			}
			return len(waits) == 0
		})
	}
}

// R082: each of these successful requests leaves a record, with the server's name and the verdict
// Allowed.
func TestSEP1708EveryMethodIsRecorded(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadWrite, map[string]string{"f": "text", "d/x": ""})
	p := l.connect("me")
	for _, c := range [][2]string{
		{"files/read", `{"path":"r/f"}`}, {"files/write", `{"path":"r/f","content":"x"}`}, {"files/write", `{"path":"r/f","content":"x","append":true}`},
		{"files/write", `{"path":"r/u","create":true,"upload":true,"last":true,"content":"x"}`}, {"files/list", `{"path":"r/d"}`},
		{"files/create", `{"path":"r/n"}`}, {"files/create", `{"path":"r/nd","type":"directory"}`}, {"files/copy", `{"oldPath":"r/f","newPath":"r/c"}`},
		{"files/rename", `{"oldPath":"r/c","newPath":"r/e"}`}, {"files/delete", `{"path":"r/e"}`}, {"files/delete", `{"path":"r/d","recursive":true}`},
		{"files/watch", `{"path":"r"}`}, {"files/consent", `{"message":"m","requestedPaths":["r"]}`},
	} {
		n := len(l.recs.all())
		p.must(c[0], c[1], nil)
		got := l.recs.all()[n:]
		if len(got) == 0 || got[0].Subject != "me" || got[0].Verdict != guard.Allowed {
			t.Errorf("%s %s: %+v", c[0], c[1], got)
		}
	}
}
