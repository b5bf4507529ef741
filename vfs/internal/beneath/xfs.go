package beneath

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
)

// XFS takes names as they are, unless it was made otherwise (mkfs.xfs -n
// version=ci): then the whole file system ignores the case of ASCII letters. No
// flag of a directory and no mount option tells that, only its geometry.

// xfsGeometry is struct xfs_fsop_geom_v1 of xfs_fs.h, in the machine's byte order.
type xfsGeometry [112]byte

const (
	// xfsIocGeometry is XFS_IOC_FSGEOMETRY_V1, which every XFS answers.
	xfsIocGeometry = 0x80705864
	// xfsFlags is where its flags are, xfsFolds the one of them.
	xfsFlags = 92
	xfsFolds = 1 << 12 // XFS_FSOP_GEOM_FLAGS_DIRV2CI
)

// xfsNaming is how the XFS that an open directory lies on takes names. One that
// does not say may take several spellings for one.
func xfsNaming(dir Dir) guard.Naming {
	fd, err := OpenDirFD(dir)
	if err != nil {
		return guard.FoldedNames
	}
	defer Close(fd)
	var g xfsGeometry
	if err := xfsAsk(fd, &g); err != nil {
		return guard.FoldedNames
	}
	return g.naming()
}

func (g *xfsGeometry) naming() guard.Naming {
	if binary.NativeEndian.Uint32(g[xfsFlags:])&xfsFolds != 0 {
		return guard.FoldedNames
	}
	return guard.ExactNames
}

func xfsAsk(fd int, g *xfsGeometry) error {
	return retry(func() error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), xfsIocGeometry, uintptr(unsafe.Pointer(g)))
		if errno != 0 {
			return errno
		}
		return nil
	})
}
