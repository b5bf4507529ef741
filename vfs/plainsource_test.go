package vfs_test

import (
	"strings"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// Many network and FUSE file systems have neither files without a name nor the flags of
// renameat2(2). On such a source a new file can still be written, a name can be moved, and a
// removed file is kept in the trash. No operation overwrites a name that is in use.
func TestSourceWithoutRenameFlags(t *testing.T) {
	h := newHangBed(t, guard.Policy{Trash: rules.Trash{On: true}})
	h.fs.WithoutRenameFlags()
	replace := func(name, text string, cond vfs.IfMatch) error {
		return second(h.t.Replace(bg, who, h.at(name), strings.NewReader(text), cond))
	}
	h.must(replace("new", "one", vfs.IfMatch{MustBeNew: true}))
	h.wantKind(replace("new", "two", vfs.IfMatch{MustBeNew: true}), names.Exist)
	h.must(replace("other", "other", vfs.IfMatch{}))
	h.wantKind(h.t.RenamePath(bg, who, h.at("new").Path, h.at("other").Path, false, ""), names.Exist)
	h.must(h.t.RenamePath(bg, who, h.at("new").Path, h.at("moved").Path, false, ""))
	h.must(h.t.Unlink(bg, who, h.at(""), "moved"))
	kept, err := h.t.TrashList(bg, "code")
	if err != nil || len(kept) != 1 {
		t.Fatalf("the trash holds %v, %v", kept, err)
	}
	h.must(second(h.t.TrashRestore(bg, "code", kept[0].ID, "")))
	h.must(h.t.RemovePath(bg, who, h.at("moved").Path, vfs.RemoveOptions{}))
}
