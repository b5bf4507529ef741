package files

import (
	"testing"

	"github.com/rootsfs/rootsfs/integration/programs/lab"
)

// TestMain runs the tests, or the program that an environment variable chooses.
func TestMain(m *testing.M) {
	lab.Main(m, map[string]func(string) error{scenarioVar: playScenario, uploadVar: uploadAndDie})
}
