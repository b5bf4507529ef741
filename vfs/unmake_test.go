package vfs_test

import (
	"os"
	"testing"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// A file that was made for a write that is refused then is taken back, but not what
// has its name by then, nor what somebody else has written to it meanwhile.
func TestWriteRangeTakesBackOnlyItsOwn(t *testing.T) {
	refuse := &guard.Error{Kind: names.Quota}
	for name, c := range map[string]struct {
		meanwhile func(b *bed)
		want      string // "" for no file
	}{
		"nothing happened":     {func(*bed) {}, ""},
		"replaced by the host": {func(b *bed) { b.put("tmp", "theirs"); b.must(os.Rename(b.host("tmp"), b.host("f"))) }, "theirs"},
		"written by the host":  {func(b *bed) { b.put("f", "theirs") }, "theirs"},
		"gone":                 {func(b *bed) { b.must(os.Remove(b.host("f"))) }, ""},
	} {
		for _, appending := range []bool{false, true} {
			b := newBed(t, false, guard.Policy{})
			_, _, err := b.t.WriteRange(bg, who, b.path("f"), []byte("ours"), vfs.WriteOptions{
				Create: true, Append: appending, Mode: 0o644, Room: func(int64) error { c.meanwhile(b); return refuse },
			})
			b.wantKind(err, names.Quota)
			got, err := os.ReadFile(b.host("f"))
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%s, appending %v: %q, %v", name, appending, got, err)
			}
		}
	}
}
