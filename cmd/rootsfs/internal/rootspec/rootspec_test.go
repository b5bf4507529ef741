package rootspec

import (
	"errors"
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
)

// R069, R139 (read-only is the default), R109, R128, R130, R198, R222.
func TestParseSpec(t *testing.T) {
	for _, c := range []struct {
		in, name, path, mode string
		rights               guard.Rights
		bad                  bool
	}{
		{in: "/a/b", path: "/a/b", rights: guard.ReadOnly},
		{in: "code=/a/b", name: "code", path: "/a/b", rights: guard.ReadOnly},
		{in: "code=.:ro", name: "code", path: ".", mode: "ro", rights: guard.ReadOnly},
		{in: "out=./out:rw", name: "out", path: "./out", mode: "rw", rights: guard.ReadWrite},
		{in: "/a:read,list", path: "/a", mode: "read,list", rights: guard.Read | guard.List},
		{in: "log=/a:create,append", name: "log", path: "/a", mode: "create,append", rights: guard.Create | guard.Append},
		{in: "/a:b:ro", path: "/a:b", mode: "ro", rights: guard.ReadOnly},
		{in: "/a:B", path: "/a:B", rights: guard.ReadOnly},
		{in: "/a:2", path: "/a:2", rights: guard.ReadOnly},
		{in: "./x=y", path: "./x=y", rights: guard.ReadOnly},
		{in: "/x=y:rw", path: "/x=y", mode: "rw", rights: guard.ReadWrite},
		{in: "n=a=b", name: "n", path: "a=b", rights: guard.ReadOnly},
		{in: "auto", path: "auto", rights: guard.ReadOnly},
		{in: "file:///a%20b", path: "/a b", rights: guard.ReadOnly},
		{in: "n=file:///a%23:rw", name: "n", path: "/a#", mode: "rw", rights: guard.ReadWrite},
		{in: "file://localhost/a", path: "/a", rights: guard.ReadOnly},
		{in: "FILE:///a", path: "/a", rights: guard.ReadOnly},
		{in: "/\xff", path: "/\xff", rights: guard.ReadOnly},
		{in: "", bad: true},
		{in: ":ro", bad: true},
		{in: "n=", bad: true},
		{in: "=/a", bad: true},
		{in: "a,b=/a", bad: true},
		{in: "..=/a", bad: true},
		{in: "-n=/a", bad: true},
		{in: "/a:read,fly", bad: true},
		{in: "/a:,", bad: true},
		{in: "/a\x00b", bad: true},
		{in: "file:/a", bad: true},
		{in: "file:///a/../b", bad: true},
		{in: "file:///a/%2e%2e/b", bad: true},
		{in: "file:///a%2Fb", bad: true},
		{in: "file:///a%00", bad: true},
		{in: "file://host/a", bad: true},
		{in: "a%s%d=:fly", bad: true},
	} {
		s, err := Parse(c.in)
		if c.bad {
			if err == nil {
				t.Errorf("%q: accepted as %+v", c.in, s)
				continue
			}
			var ge *guard.Error
			if !errors.As(err, &ge) || strings.ContainsAny(err.Error(), "\n\x00") || strings.Contains(err.Error(), "%!") {
				t.Errorf("%q: the error is not a guard.Error of one formatted line: %q", c.in, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
		} else if s.Name != guard.RootName(c.name) || s.Path != c.path || s.Mode != c.mode || s.Rights != c.rights {
			t.Errorf("%q: %+v", c.in, s)
		}
	}
}

// R141, R153: the name is the path's last element, changed so that it can be written in a spec.
func TestDefaultName(t *testing.T) {
	for in, want := range map[string]string{
		"/a/b": "b", "/a/b/": "b", "/": "root", ".": "root", "/a/x:y": "x-y", "/a/k=v": "k-v", "/a/a,b": "a-b",
		"/a/-x": "x", "/a/--": "root", "/a/\xffz": "z", "/a/ b ": "b", "/a/- x": "x", "/a/ - - x -": "x -", "/a/- ": "root", "/a/grün": "grün",
	} {
		if got, err := DefaultName(in); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	if got, err := DefaultName("/a/" + strings.Repeat("n", 200)); err == nil {
		t.Errorf("a name of %d bytes was accepted", len(got))
	}
}
