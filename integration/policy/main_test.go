package policy

import (
	"os"
	"testing"

	"github.com/rootsfs/rootsfs/mount/childfs"
)

func TestMain(m *testing.M) { os.Exit(childfs.Main(m)) }
