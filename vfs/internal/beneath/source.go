package beneath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Opener opens approved paths as roots; it implements guard.Opener.
type Opener struct {
	// Stages is the directory of the stores of staged roots; "": only a grant that names its
	// store can be staged.
	Stages string
	// Session is the name of the session, for the stores that the session opens; "" for a command
	// of the owner.
	Session string
}

// openTries bounds the attempts to open a file that a program keeps replacing.
const openTries = 16

// errReplaced is the error of an attempt to open a file that was replaced meanwhile.
var errReplaced = errors.New("the file was replaced while it was being opened; try again")

// OpenRoot opens the directory that path leads to. If path leads to a file, OpenRoot opens the
// directory of that file. Links in path are resolved here, once. The directory or file at their
// end is the one that is approved, and Resolved is its path. If an editor replaces the file
// meanwhile, OpenRoot tries again.
func (Opener) OpenRoot(path string) (guard.Source, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	for range openTries {
		var s guard.Source
		if s, err = openRoot(abs); !errors.Is(err, errReplaced) {
			return s, err
		}
	}
	return nil, err
}

// openRoot is one attempt of OpenRoot. It opens the descriptor first, and then asks the kernel for
// its path, so that both belong to the same directory or file.
func openRoot(abs string) (guard.Source, error) {
	fd, links, err := openPath(abs)
	if err != nil {
		return nil, rootError(abs, err)
	}
	info, err := stat(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, rootError(abs, err)
	}
	resolved, err := PathOf(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, rootError(abs, err)
	}
	s := &source{asked: abs, resolved: resolved, fd: fd, id: info.ID(), links: links}
	switch {
	case info.IsDir():
		err = readableDir(fd)
	case info.IsRegular():
		err = s.becomeFile(info)
	default:
		err = &guard.Error{Kind: names.Invalid, Err: fmt.Errorf(
			"%s is a special file; a root is a directory or a regular file", names.Quote(abs))}
	}
	if err == nil {
		err = s.readFSType()
	}
	if err != nil {
		_ = s.Close()
		return nil, rootError(abs, err)
	}
	return s, nil
}

// source is an opened root.
type source struct {
	asked, resolved, file string
	fd                    int
	id                    rules.Identity
	fsType                string
	remote                bool
	naming                rules.Naming
	links                 []rules.Link // the links on the path in asked
	once                  sync.Once
	stage                 *staged // nil: the root is not staged
}

func (s *source) FD() int             { return s.fd }
func (s *source) ID() rules.Identity  { return s.id }
func (s *source) Resolved() string    { return s.resolved }
func (s *source) File() string        { return s.file }
func (s *source) FSType() string      { return s.fsType }
func (s *source) Remote() bool        { return s.remote }
func (s *source) Links() []rules.Link { return s.links }

// Close closes the descriptor, once.
func (s *source) Close() error {
	err := error(nil)
	s.once.Do(func() { err = unix.Close(s.fd) })
	return err
}

// Check opens the path again and compares the identities. A single-file root is unchanged as
// long as its directory is the same, and the name in that directory is a regular file. For a root
// that is not remote, Check does not walk a path on which another file system is mounted now,
// because that could hang.
func (s *source) Check() error {
	if !s.remote && coveredBy(s.resolved, s.fd) {
		return &guard.Error{Kind: names.Unavailable}
	}
	now, err := Opener{}.OpenRoot(s.asked)
	if err != nil {
		return err
	}
	defer now.Close()
	if now.ID() != s.id || now.File() != s.file {
		return &guard.Error{Kind: names.Unavailable}
	}
	return nil
}

// Free implements guard.Source.
func (s *source) Free() (int64, error) {
	st, err := statfs(s.fd)
	return int64(st.Bavail) * st.Bsize, err
}

// maxUp bounds the climbing of LiesIn: no path that one system call can open has more directories.
const maxUp = 4096

// LiesIn implements guard.Source. It climbs from the directory's descriptor and uses no path,
// whose names could refer to other directories by now.
func (s *source) LiesIn(top rules.Identity) bool {
	fd, at := -1, s.fd
	defer func() { _ = unix.Close(fd) }()
	last := rules.Identity{}
	for range maxUp {
		info, err := stat(at)
		switch {
		case err != nil || info.ID() == last: // "/" is its own parent
			return false
		case info.ID() == top:
			return true
		}
		last = info.ID()
		up, err := unix.Openat(at, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return false
		}
		_ = unix.Close(fd)
		fd, at = up, up
	}
	return false
}

// becomeFile exchanges the file's descriptor for its directory's: replacing the
// file by rename, as editors do, then keeps working.
func (s *source) becomeFile(file Info) error {
	dir, base := filepath.Split(s.resolved)
	fd, err := unix.Open(filepath.Clean(dir), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	// The file may be a mount point here; the grant decides whether that is allowed.
	info, err := StatIn(Dir{fd: fd, across: true}, base)
	if err == nil && info.ID() != file.ID() || err == unix.ENOENT && strings.HasSuffix(base, Deleted) { //nolint:errorlint // bare errno
		err = errReplaced
	}
	if err == nil {
		err = readableFile(fd, base)
	}
	var dirInfo Info
	if err == nil {
		dirInfo, err = stat(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	_ = unix.Close(s.fd)
	s.fd, s.file, s.id = fd, base, dirInfo.ID()
	return nil
}

func readableDir(fd int) error {
	rd, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(rd)
}

func readableFile(dirfd int, base string) error {
	rd, err := unix.Openat(dirfd, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(rd)
}

// Deleted is the suffix that the kernel appends to the path of a file that has lost the name
// by which it was opened.
const Deleted = " (deleted)"

// PathOf returns the host path that the kernel shows for a descriptor: the name by which it was
// opened, at its present path. No server may see that path.
func PathOf(fd int) (string, error) {
	p, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(p) {
		return "", errors.New("it cannot be reached from this mount namespace")
	}
	return p, nil
}

// PathsOfRoot returns the present host paths of the lease's root: of its directory, and of the
// directory in which a staged root keeps its changes.
func PathsOfRoot(l *guard.Lease) ([]string, error) {
	top, err := PathOf(l.Source().FD())
	if err != nil {
		return nil, err
	}
	st := stageOf(l)
	if st == nil {
		return []string{top}, nil
	}
	up, err := PathOf(st.up)
	return []string{top, up}, err
}

// remoteTypes are the file systems that can hang with their server, and whose
// changes from elsewhere inotify does not report; magic numbers of statfs(2)
// and linux/magic.h.
var remoteTypes = map[int64]string{
	unix.NFS_SUPER_MAGIC: "nfs", unix.SMB_SUPER_MAGIC: "smb", unix.SMB2_SUPER_MAGIC: "smb2",
	unix.CIFS_SUPER_MAGIC: "cifs", unix.FUSE_SUPER_MAGIC: "fuse", unix.CEPH_SUPER_MAGIC: "ceph",
	unix.V9FS_MAGIC: "9p", unix.AFS_SUPER_MAGIC: "afs", unix.AFS_FS_MAGIC: "afs",
	unix.CODA_SUPER_MAGIC: "coda", unix.NCP_SUPER_MAGIC: "ncp", unix.OCFS2_SUPER_MAGIC: "ocfs2",
	0x0BD00BD0: "lustre", 0x01161970: "gfs2", 0x20030528: "orangefs", 0x47504653: "gpfs",
	0x786f4256: "vboxsf", 0xbacbacbc: "vmhgfs",
}

var localTypes = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.F2FS_SUPER_MAGIC: "f2fs",
	0x2FC12FC1: "zfs", unix.MSDOS_SUPER_MAGIC: "vfat", unix.SQUASHFS_MAGIC: "squashfs",
	unix.ISOFS_SUPER_MAGIC: "iso9660", unix.RAMFS_MAGIC: "ramfs", 0xca451a4e: "bcachefs", 0x2011BAB0: "exfat",
}

func (s *source) readFSType() error {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(s.fd, &st) }); err != nil {
		return err
	}
	magic := int64(st.Type) & 0xffffffff
	var known bool
	if s.naming, known = namings[magic]; !known {
		s.naming = rules.FoldedNames
	}
	if magic == unix.XFS_SUPER_MAGIC {
		s.naming = xfsNaming(Dir{fd: s.fd})
	}
	if n, ok := remoteTypes[magic]; ok {
		s.fsType, s.remote = n, true
	} else if n, ok := localTypes[magic]; ok {
		s.fsType = n
	} else {
		s.fsType = fmt.Sprintf("0x%x", magic)
	}
	return nil
}

// rootError returns a one-line error about a path. For common errors it says what is wrong or what
// to do next.
func rootError(path string, err error) error {
	var have *guard.Error
	if errors.As(err, &have) {
		return err
	}
	say := func(k guard.Kind, format string) error {
		return &guard.Error{Kind: k, Err: fmt.Errorf(format, names.Quote(path))}
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return say(names.NotExist, "%s does not exist; create it first, or check the spelling")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return say(names.Permission, "%s cannot be read by this user; check its permissions and those of the directories above it")
	case errors.Is(err, unix.ENOTDIR):
		return say(names.NotDir, "%s passes through something that is not a directory; check the spelling")
	case errors.Is(err, unix.ELOOP):
		return say(names.Invalid, "%s is a loop of symbolic links")
	case errors.Is(err, unix.ENAMETOOLONG):
		return say(names.TooLong, "%s is too long a path for a root (PATH_MAX is 4096 bytes)")
	case errors.Is(err, unix.ENOTCONN):
		return say(names.Unavailable, "%s lies on a FUSE mount whose daemon is gone; unmount it first")
	}
	return &guard.Error{Kind: names.IO, Err: fmt.Errorf("%s: %w", names.Quote(path), err)}
}
