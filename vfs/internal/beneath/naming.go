package beneath

import (
	"encoding/binary"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// namings says which spellings file systems take for one name. A file system that is not in
// the table may take several. The keys are magic numbers of statfs(2) and linux/magic.h.
var namings = map[int64]rules.Naming{
	unix.XFS_SUPER_MAGIC: rules.ExactNames /* see xfsNaming */, unix.BTRFS_SUPER_MAGIC: rules.ExactNames,
	unix.RAMFS_MAGIC: rules.ExactNames, unix.SQUASHFS_MAGIC: rules.ExactNames, 0xE0F5E1E2: rules.ExactNames, // erofs
	// These can fold the case of names (casefold), each directory by itself.
	unix.EXT4_SUPER_MAGIC: rules.MixedNames, unix.F2FS_SUPER_MAGIC: rules.MixedNames, unix.TMPFS_MAGIC: rules.MixedNames,
	unix.OVERLAYFS_SUPER_MAGIC: rules.MixedNames, 0xca451a4e: rules.MixedNames, // bcachefs
	unix.MSDOS_SUPER_MAGIC: rules.ShortNames,
}

// Naming implements guard.Source.
func (s *source) Naming() rules.Naming { return s.naming }

// FoldsAt reports whether the directory, or one above it, takes several spellings for one
// name (chattr +F). If that cannot be found out, FoldsAt reports true.
func (s *source) FoldsAt(dir string, across bool) bool {
	for {
		if s.foldsIn(dir, across) {
			return true
		}
		if dir == "" {
			return false
		}
		dir = dir[:max(strings.LastIndexByte(dir, '/'), 0)]
	}
}

// casefold is FS_CASEFOLD_FL of linux/fs.h.
const casefold = 0x40000000

func (s *source) foldsIn(dir string, across bool) bool {
	d, err := s.at(dir, across)
	if err != nil {
		return names.Reason(err) != names.NotExist
	}
	defer d.Close()
	return foldsNames(d.fd)
}

// foldsNames reports whether a directory takes several spellings for one name. If that cannot
// be found out, it reports true.
func foldsNames(dirfd int) bool {
	fd, err := openToReadQuietly(dirfd)
	if err != nil {
		return err != unix.ENOTDIR //nolint:errorlint // bare errno
	}
	defer Close(fd)
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err != unix.ENOTTY && err != unix.EOPNOTSUPP //nolint:errorlint // bare errnos: the file system has no such flags
	}
	return flags&casefold != 0
}

// realSpellings finds the real spelling of a name in an open directory. It returns nothing if name
// itself is in the directory, or refers to no file. Otherwise realSpellings returns all names in the
// directory that refer to the same file as name.
func realSpellings(d Dir, name string) (out []string, err error) {
	info, err := StatIn(d.acrossAny(), name)
	if err != nil {
		if err == unix.ENOENT { //nolint:errorlint // bare errno
			err = nil
		}
		return nil, err
	}
	exact := false
	err = EachName(d, func(e *Entry) bool {
		if exact = e.Name == name; exact {
			return false
		}
		if other, err := StatIn(d.acrossAny(), e.Name); err == nil && other.ID() == info.ID() {
			out = append(out, e.Name)
		}
		return true
	})
	if exact || err != nil {
		return nil, err
	}
	return out, nil
}

// XFS distinguishes all spellings, unless it was made with mkfs.xfs -n version=ci: then the
// whole file system ignores the case of ASCII letters. Only its geometry shows that, and no
// flag of a directory or mount option does.

// xfsGeometry is struct xfs_fsop_geom_v1 of xfs_fs.h, in the machine's byte order.
type xfsGeometry [112]byte

const (
	// xfsIocGeometry is XFS_IOC_FSGEOMETRY_V1, which every XFS answers.
	xfsIocGeometry = 0x80705864
	// xfsFlags is the offset of the flags. xfsFolds is the flag for folded names.
	xfsFlags = 92
	xfsFolds = 1 << 12 // XFS_FSOP_GEOM_FLAGS_DIRV2CI
)

// xfsNaming returns the naming of the XFS file system that an open directory lies on. If the file
// system does not answer, xfsNaming returns FoldedNames.
func xfsNaming(dir Dir) rules.Naming {
	fd, err := openToRead(dir.fd)
	if err != nil {
		return rules.FoldedNames
	}
	defer Close(fd)
	var g xfsGeometry
	if err := xfsAsk(fd, &g); err != nil {
		return rules.FoldedNames
	}
	return g.naming()
}

func (g *xfsGeometry) naming() rules.Naming {
	if binary.NativeEndian.Uint32(g[xfsFlags:])&xfsFolds != 0 {
		return rules.FoldedNames
	}
	return rules.ExactNames
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
