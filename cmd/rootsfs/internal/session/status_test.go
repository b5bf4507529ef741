package session

import (
	"reflect"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount"
)

// The figures about the watching of several mounts are added up, including the directories that a
// program keeps locked. A root that is not watched is named once.
func TestStatusAddsWhatMountsWatch(t *testing.T) {
	var st control.Status
	addWatching(&st, mount.SourceStatus{Watched: 5, Refused: 1, Stuck: 2, Loose: []guard.RootName{"a", "b"}})
	addWatching(&st, mount.SourceStatus{Watched: 3, Stuck: 1, Loose: []guard.RootName{"b"}})
	want := control.Status{Watches: 8, WatchesRefused: 1, Stuck: 3, Unwatched: []names.Foreign{"a", "b"}}
	if !reflect.DeepEqual(st, want) {
		t.Errorf("%+v", st)
	}
}
