package vfs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/guardtest"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// R079: a pattern that would take minutes for one deep path is refused, before
// anything waits for it that nothing could stop; what people write lists that tree.
func TestListGlobOfDeepTree(t *testing.T) {
	b := newBed(t, false, guard.Policy{})
	guardtest.Deep(t, b.host(""), strings.Repeat("a", 250), 800, "deep")
	ctx, cancel := context.WithTimeout(bg, 30*time.Second) // of a hang
	defer cancel()
	bomb := "**/" + strings.Repeat("{*,a*}/", 8) + strings.Repeat("*/", 200) + "b"
	if _, err := b.t.List(ctx, who, b.at("").Path, vfs.ListOptions{Recursive: true, Glob: bomb}); !errors.Is(err, names.Invalid) || !strings.Contains(err.Error(), "fewer braces") {
		t.Errorf("%.100v", err)
	}
	if _, err := b.t.List(ctx, who, b.at("").Path, vfs.ListOptions{Recursive: true, Glob: "**/d{e,i}ep"}); err != nil {
		t.Errorf("%.100v", err)
	}
}
