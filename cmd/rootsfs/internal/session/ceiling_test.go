package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// The fleet's agent is told once which roots the ceiling it wrote has ended, also if the session saw
// the file before the agent asked. The report on the owner's order has the number of these roots.
func TestCeilingOfFleetReportsEndedRoots(t *testing.T) {
	s, work := start(t, "code")
	dir := filepath.Join(work, "state/rootsfs/fleet")
	testkit.Must(t,
		os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "member.json"), []byte("{}"), 0o600),
		os.WriteFile(filepath.Join(dir, "ceiling.json"), []byte(`{"fleet":"acme","ceilings":[{"for":"all","n":1,"text":"[[root]]\npath = \"/srv\"\n"}]}`), 0o600))
	if above, err := s.applyCeiling(t.Context()); above != nil || err != nil { // as when the session sees the file
		t.Fatal(above, err)
	}
	if a, err := s.readCeiling(t.Context(), control.None{}); err != nil || len(a.Ended) != 1 || a.Ended[0].Root.Raw() != "code" {
		t.Errorf("the first answer to the agent: %+v, %v", a, err)
	}
	if a, err := s.readCeiling(t.Context(), control.None{}); err != nil || len(a.Ended) != 0 {
		t.Errorf("the second answer to the agent: %+v, %v", a, err)
	}
}
