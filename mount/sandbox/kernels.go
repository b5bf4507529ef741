package sandbox

import "github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"

// The oldest kernels. The documents name these numbers; a test compares them.
const (
	LeastKernel      = "5.6"           // openat2(2), which mounts and every level need
	NamespacesKernel = "5.12"          // mount_setattr(2), which level Namespaces needs
	LandlockKernel   = landlock.Kernel // for level Landlock, and for the layer Landlock of other levels
)
