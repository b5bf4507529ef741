package beneath

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// OpenSubdir opens the directory called name in the open directory dirfd for
// reading its entries: one step of a walk that has begun at the root. As in a
// resolution from there a link is not followed, and another file system not
// entered unless the grant allows it. The caller judges the name and shows what
// was opened to the lease (CrossChild).
func OpenSubdir(l *guard.Lease, dirfd int, name string) (int, error) {
	return open(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, resolveFlags(l))
}
