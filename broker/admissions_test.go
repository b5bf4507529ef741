package broker

import (
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
)

// A files/* call on a path passes the gate exactly once, unless the call consists of several
// operations (see hasSeveral).
func TestEveryCallIsAdmittedOnce(t *testing.T) {
	calls := []struct{ method, params string }{
		{"files/read", `{"path":"project/f"}`},
		{"files/read", `{"path":"project/f","offset":1,"length":1}`},
		{"files/stat", `{"path":"project/f"}`},
		{"files/stat", `{"path":"project/link"}`},
		{"files/list", `{"path":"project/d"}`},
		{"files/list", `{"path":"project","recursive":true}`},
		{"files/write", `{"path":"project/f","content":"x"}`},
		{"files/write", `{"path":"project/new","content":"x","create":true}`},
		{"files/write", `{"path":"project/f","content":"x","offset":0}`},
		{"files/create", `{"path":"project/made","type":"file"}`},
		{"files/create", `{"path":"project/dir","type":"directory"}`},
		{"files/create", `{"path":"project/a/b/c","type":"directory","parents":true}`},
		{"files/create", `{"path":"project/a/x/f","type":"file","parents":true}`},
		{"files/rename", `{"oldPath":"project/made","newPath":"project/moved"}`},
		{"files/rename", `{"oldPath":"project/moved","newPath":"project/new","overwrite":true}`},
		{"files/delete", `{"path":"project/new"}`},
		{"files/delete", `{"path":"project/dir"}`},
		{"files/delete", `{"path":"project/a","recursive":true}`},
		{"files/watch", `{"path":"project/d"}`},
		{"files/copy", `{"oldPath":"project/f","newPath":"project/copy"}`},
	}
	// hasSeveral reports whether a call consists of several operations, which pass the gate one by
	// one. A copy opens one file, reads it piece by piece and writes another. The creation of a
	// file with its parents is a mkdir -p and a creation.
	hasSeveral := func(method, params string) bool {
		return method == "files/copy" || strings.Contains(params, `"type":"file","parents":true`)
	}
	l := newLab(t, nil)
	l.root("project", guard.ReadWrite, map[string]string{"f": "text", "d/x": "x", "d/y": "y"})
	p := l.connect("")
	admitted := func() int64 {
		st, _ := l.reg.Lookup("project")
		return st.Ops
	}
	covered := []string{"files/consent", "files/unwatch", "roots/list"} // these do not pass the gate, so the table lacks them
	for _, c := range calls {
		before := admitted()
		r := p.call(c.method, c.params)
		if r.Error != nil && c.params != `{"path":"project/link"}` {
			t.Errorf("%s %s: %v", c.method, c.params, r.Error)
		}
		if got := admitted() - before; got != 1 && !hasSeveral(c.method, c.params) {
			t.Errorf("%s %s: the call passed the gate %d times", c.method, c.params, got)
		}
		covered = append(covered, c.method)
	}
	for name := range methods {
		if name != testOnly && !slices.Contains(covered, name) {
			t.Errorf("%s is not in the table", name)
		}
	}
}
