package beneath

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/rules"
)

// XFS reports whether it ignores case. A file system that reports nothing may ignore it. The
// number of the ioctl contains the size of the answer.
func TestXFSNaming(t *testing.T) {
	if size := uint32(xfsIocGeometry) >> 16 & 0x3fff; size != uint32(unsafe.Sizeof(xfsGeometry{})) {
		t.Errorf("the call asks for %d bytes, there is room for %d", size, unsafe.Sizeof(xfsGeometry{}))
	}
	const ordinary = 0x77ccca // of a file system that mkfs.xfs makes
	for flags, want := range map[uint32]rules.Naming{ordinary: rules.ExactNames, ordinary | 1<<12: rules.FoldedNames, 0: rules.ExactNames} {
		var g xfsGeometry
		binary.NativeEndian.PutUint32(g[92:], flags)
		if got := g.naming(); got != want {
			t.Errorf("flags %#x: %v, want %v", flags, got, want)
		}
	}
	// Other file systems do not answer the ioctl. ROOTSFS_XFS names a directory on an XFS.
	dir, want := t.TempDir(), rules.FoldedNames
	var st unix.Statfs_t
	if at := os.Getenv("ROOTSFS_XFS"); at != "" {
		dir, want = at, rules.ExactNames
	} else if err := unix.Statfs(dir, &st); err != nil || st.Type == unix.XFS_SUPER_MAGIC {
		want = rules.ExactNames
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if got := xfsNaming(Dir{fd: fd}); got != want {
		t.Errorf("%s: %v, want %v", dir, got, want)
	}
}
