package mount

import (
	"os"
	"testing"

	"github.com/rootsfs/rootsfs/integration/childfs"
)

func TestMain(m *testing.M) { os.Exit(childfs.Main(m)) }
