package broker

import (
	"slices"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
)

// Every call of files/* on a path passes the gate exactly once.
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
	// These calls are several operations, and each has a record: a copy opens one file, reads
	// it piece by piece and writes another; a file with parents is a mkdir -p and a creation.
	several := func(method, params string) bool {
		return method == "files/copy" || strings.Contains(params, `"type":"file","parents":true`)
	}
	l := newLab(t, nil)
	l.root("project", guard.ReadWrite, map[string]string{"f": "text", "d/x": "x", "d/y": "y"})
	p := l.connect("")
	admitted := func() int64 {
		st, _ := l.reg.Lookup("project")
		return st.Ops
	}
	tested := []string{"files/consent", "files/unwatch", "roots/list"} // about no file
	for _, c := range calls {
		before := admitted()
		r := p.call(c.method, c.params)
		if r.Error != nil && c.params != `{"path":"project/link"}` {
			t.Errorf("%s %s: %v", c.method, c.params, r.Error)
		}
		if got := admitted() - before; got != 1 && !several(c.method, c.params) {
			t.Errorf("%s %s: it passed the gate %d times", c.method, c.params, got)
		}
		tested = append(tested, c.method)
	}
	for name := range methods {
		if name != testOnly && !slices.Contains(tested, name) {
			t.Errorf("%s is not in the table", name)
		}
	}
}
