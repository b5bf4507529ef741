package sandbox

import "github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"

// The oldest kernels. Documents name these numbers, and a test holds them against these constants.
const (
	LeastKernel      = "5.6"           // openat2(2), which mounts and every level need
	NamespacesKernel = "5.12"          // mount_setattr(2), which level Namespaces needs
	LandlockKernel   = landlock.Kernel // Landlock, which is level Landlock, and a layer of the others
)
