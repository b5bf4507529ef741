package vfs_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// A socket holds nothing, so the trash does not keep it: servers remove theirs at each start.
func TestTrashLeavesSockets(t *testing.T) {
	b := newBed(t, false, guard.Policy{Rights: guard.ReadWrite, Trash: rules.Trash{On: true}})
	for _, dir := range []string{"", "d"} {
		if dir != "" {
			b.must(second(b.t.Mkdir(bg, who, b.at(""), dir, 0o755)))
		}
		b.must(second(b.t.Mknod(bg, who, b.at(dir), "s", unix.S_IFSOCK|0o600, 0)))
	}
	b.must(b.t.Unlink(bg, who, b.at(""), "s"))
	b.must(b.t.Unlink(bg, who, b.at("d"), "s"))
	if list, err := b.t.TrashList(bg, "code"); err != nil || len(list) != 0 {
		t.Errorf("the trash has %+v, %v", list, err)
	}
}
