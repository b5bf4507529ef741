package beneath

import (
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// OpenDirNames resolves a directory of the lease's root and opens it for reading
// its entries, and judges it, in one call where that does the same as OpenDir and OpenDirFD.
func OpenDirNames(l *guard.Lease, rel string) (int, error) {
	if rel != "" && len(rel) <= chunk && l.File() == "" && !l.HasNested() && !spells(l, rel) {
		if err := l.JudgeDir(rel); err != nil {
			return -1, err
		}
		// Without O_NOFOLLOW, so that a link is ELOOP, not ENOTDIR.
		return openQuietly(l.Dir(), rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, resolveFlags(l))
	}
	d, err := OpenDir(l, rel)
	if err != nil {
		return -1, err
	}
	defer d.Close()
	return OpenDirFD(d)
}

// OpenSubdir opens the directory called name in the open directory dirfd for
// reading its entries: one step of a walk that has begun at the root. As in a
// resolution from there a link is not followed, and another file system not
// entered unless the grant allows it. The caller judges the name and shows what
// was opened to the lease (CrossChild).
func OpenSubdir(l *guard.Lease, dirfd int, name string) (int, error) {
	return openQuietly(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, resolveFlags(l))
}

// openQuietly is open for a reading that nobody asked for by itself, such as that
// of what a moved directory holds: it leaves the access time alone where we may
// (open(2), O_NOATIME: the owner or CAP_FOWNER).
func openQuietly(dirfd int, rel string, flags, resolve uint64) (int, error) {
	fd, err := open(dirfd, rel, flags|unix.O_NOATIME, resolve)
	if err == unix.EPERM { //nolint:errorlint // bare errno
		fd, err = open(dirfd, rel, flags, resolve)
	}
	return fd, err
}
