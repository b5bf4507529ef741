package broker

import (
	"slices"
	"testing"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// A file that a server deletes, replaces by a rename or overwrites through files/* goes into the
// trash, which lists the file under its old path. The server can neither list nor read the trash,
// nor create a directory with the name of the trash.
func TestTrash(t *testing.T) {
	var tree *vfs.Tree
	l := newLab(t, func(c *Config) { tree = c.Tree })
	dir := l.root("plain", guard.ReadWrite, map[string]string{"a": "one", "b": "two", "c": "three", "d/e": "four"})
	if _, err := l.reg.Revoke(t.Context(), "plain"); err != nil {
		t.Fatal(err)
	}
	l.grant(guard.Grant{Root: "r", Dir: names.Foreign(dir), Policy: guard.Policy{Rights: guard.ReadWrite, Trash: rules.Trash{On: true}}})
	p := l.connect("editor")
	type obj = map[string]any
	p.must("files/delete", obj{"path": "r/a"}, nil)
	p.must("files/write", obj{"path": "r/b", "content": "x"}, nil)
	p.must("files/rename", obj{"oldPath": "r/b", "newPath": "r/c", "overwrite": true}, nil)
	p.must("files/delete", obj{"path": "r/d", "recursive": true}, nil)
	list, err := tree.TrashList(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	var trashed []string
	for _, e := range list {
		trashed = append(trashed, e.Path.Raw())
		if e.Subject != "editor" || e.Via != "files" {
			t.Errorf("who removed it: %+v", e)
		}
	}
	if want := []string{"a", "b", "c", "d/e"}; !slices.Equal(trashed, want) {
		t.Errorf("trashed %q, want %q", trashed, want)
	}
	var page wire.ListResult
	p.must("files/list", obj{"path": "r", "includeHidden": true, "recursive": true}, &page)
	if len(page.Entries) != 1 || page.Entries[0].Name != "c" {
		t.Errorf("seen: %+v", page.Entries)
	}
	if _, d := p.fails("files/read", obj{"path": "r/" + rules.TrashName + "/" + list[0].ID}); d.Code != "FILE_NOT_FOUND" {
		t.Errorf("read from the trash: %+v", d)
	}
	if _, d := p.fails("files/create", obj{"path": "r/" + rules.TrashName, "type": "directory"}); d.Code != "PERMISSION_DENIED" {
		t.Errorf("made the trash: %+v", d)
	}
}
