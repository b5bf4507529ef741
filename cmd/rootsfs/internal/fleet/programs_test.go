package fleet

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// ReleasedDir returns a directory with rootsfs and rootsfs-fleet as they are released. Without the
// race detector, and in make soak, it returns "": the tests then run this test binary. With the race
// detector the programs need several times the processor time to start, and the tests start them
// hundreds of times.
var ReleasedDir = sync.OnceValues(func() (dir string, err error) {
	if !testkit.IsRaced() || os.Getenv("ROOTSFS_SOAK") != "" {
		return "", nil
	}
	if dir, err = os.MkdirTemp("", "rootsfs-released-"); err != nil {
		return "", err
	}
	removeReleased = func() { _ = os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o755); err != nil { // the script has an ordinary user
		return "", err
	}
	return dir, testkit.Build(dir+"/", "../..", "../../rootsfs-fleet")
})

var removeReleased = func() {}

// RemoveReleased removes the directory of ReleasedDir, if there is one.
func RemoveReleased() { removeReleased() }

// WithPrograms returns a PATH on which the programs of dir come first. dir may be "".
func WithPrograms(dir, path string) string {
	if dir == "" {
		return path
	}
	return dir + string(filepath.ListSeparator) + path
}
