package cli

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// A stageReader reads many small changes with few requests to the session, even if an answer leaves
// out a file, which the stageReader then requests again. If the files are read in another order
// than that of the list, each file still has its own contents.
func TestStageReaderAsksForMany(t *testing.T) {
	const files = 1000
	var list []vfs.StageChange
	for i := range files {
		c := vfs.StageChange{Path: names.Foreign(fmt.Sprintf("f%03d", i)), Mode: unix.S_IFREG | 0o644, OldMode: unix.S_IFREG | 0o644}
		switch i % 10 {
		case 3:
			c.OldMode = 0
		case 4:
			c.Mode = unix.S_IFDIR | 0o755
		}
		list = append(list, c)
	}
	r := newStageReader(nil, list)
	contents := func(path []byte, staged bool) []byte {
		if string(path) == "f000" {
			return []byte{}
		}
		return fmt.Appendf(nil, "%s %v", path, staged)
	}
	requests := 0
	r.ask = func(_ context.Context, req control.StageContentsRequest) (a control.StageContentsAnswer, _ error) {
		requests++
		a.Contents = contents(req.Path, req.Staged)
		for i := range req.Next[:min(len(req.Next), 100)] {
			f := &req.Next[i]
			text := contents(f.Path, f.Staged)
			if string(f.Path) == "f500" {
				text = nil
			}
			a.Next = append(a.Next, text)
		}
		return a, nil
	}
	check := func(path names.Foreign, staged bool) {
		t.Helper()
		got, err := r.read(t.Context(), path.Raw(), staged)
		if want := contents([]byte(path.Raw()), staged); err != nil || string(got) != string(want) {
			t.Errorf("%s, staged %v: %q, %v; want %q", path, staged, got, err, want)
		}
	}
	for i := range list {
		c := &list[i]
		if c.OldMode != 0 {
			check(c.Path, false)
		}
		if c.Mode&unix.S_IFMT != unix.S_IFDIR {
			check(c.Path, true)
		}
	}
	if requests > 25 {
		t.Errorf("%d requests for the changes of %d files", requests, files)
	}
	for i := range list[:50] {
		check(list[len(list)-1-i].Path, true)
		check(list[i].Path, true)
	}
}
