package deps

import (
	"slices"
	"strings"
	"testing"
)

// rootsfs links no code of the fleet's bus. The program rootsfs-fleet does, and only one of its
// packages uses it.
func TestOnlyTheFleetLinksItsBus(t *testing.T) {
	isBus := func(path string) bool { return strings.HasPrefix(path, "github.com/nats-io/") }
	for _, p := range list(t, "-deps", "./cmd/rootsfs") {
		if isBus(p.ImportPath) {
			t.Errorf("rootsfs links %s: only rootsfs-fleet may", p.ImportPath)
		}
	}
	linked := false
	for _, p := range list(t, "-deps", "./cmd/rootsfs/rootsfs-fleet") {
		linked = linked || isBus(p.ImportPath)
		if !strings.HasPrefix(p.ImportPath, module+"/") || p.name() == "cmd/rootsfs/internal/fleet" {
			continue
		}
		if i := slices.IndexFunc(p.Imports, isBus); i >= 0 {
			t.Errorf("%s imports %s: only cmd/rootsfs/internal/fleet may", p.name(), p.Imports[i])
		}
	}
	if !linked {
		t.Error("rootsfs-fleet links no bus: the test looks at nothing")
	}
}
