package files

import (
	"testing"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// Programs that the test binary can be, by environment variable.
func TestMain(m *testing.M) {
	lab.Main(m, map[string]func(string) error{scenarioVar: playScenario, uploadVar: uploadAndDie})
}
