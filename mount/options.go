package mount

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/guard/rules"
	"github.com/rootsfs/rootsfs/vfs"
)

// Level is how much the kernel may cache.
type Level uint8

// The cache levels.
const (
	// Strict: the kernel asks for everything, every time.
	Strict Level = iota + 1
	// Audit (the default): the kernel caches names, attributes and pages while the source
	// is watched. It asks for every open, and every open is recorded.
	Audit
	// Max: the kernel does not ask for opens either (FUSE_NO_OPEN_SUPPORT), so it reads
	// cached files without the daemon, and without a record.
	Max
)

func (l Level) String() string {
	switch l {
	case Strict:
		return "strict"
	case Audit:
		return "audit"
	case Max:
		return "max"
	}
	return "none"
}

// ParseLevel reads a level as String writes it.
func ParseLevel(s string) (Level, error) {
	for _, l := range []Level{Strict, Audit, Max} {
		if l.String() == s {
			return l, nil
		}
	}
	return 0, &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("unknown cache level %s: write strict, audit or max", names.Quote(s))}
}

// Locks says where the file locks of programs that use the mount are kept.
type Locks uint8

// The kinds of locks.
const (
	LocksLocal Locks = iota + 1 // in the kernel, visible only to programs that use the mount
	LocksHost                   // on the source, visible to the host's processes
)

// ParseLocks reads "local" or "host".
func ParseLocks(s string) (Locks, error) {
	switch s {
	case "local":
		return LocksLocal, nil
	case "host":
		return LocksHost, nil
	}
	return 0, &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("unknown place for locks %s: write local or host", names.Quote(s))}
}

func (l Locks) String() string {
	if l == LocksHost {
		return "host"
	}
	return "local"
}

// Options describe one mount.
type Options struct {
	Point    string // an existing, empty directory; resolved
	Level    Level
	Locks    Locks
	ReadOnly bool // MS_RDONLY on the mount itself
	// AllowOther lets the processes of other users into the mount. Without it the kernel
	// refuses a process, even of uid 0, unless its uid, effective uid and saved uid are all the
	// daemon's.
	AllowOther bool
	Subject    guard.Subject
	// Tree is shared with the registry's other mounts and fronts, so that operations which
	// replace a whole file under a name exclude one another. nil: New creates a tree.
	Tree   *vfs.Tree
	Layout Layout
	// Owner is the user that all files seem to belong to. It is for a mount that is the
	// file system of a single sandboxed process, where the registry alone decides what
	// the process may do. Files that the process creates belong to the daemon's user on
	// the source. nil: files show their owners on the source.
	Owner *rules.User
	// Visible reports whether the mount shows a link that leads out of its root, to dest: whether
	// the processes that use the mount see dest anyway. dest is absolute and clean; in a
	// ByPath layout "" stands for any path in a live root of the Subject. relative reports
	// whether the link's target is relative. Visible may be called concurrently. nil:
	// links that leave their root are refused.
	Visible func(dest string, relative bool) bool
	Log     *slog.Logger
	// Debug logs every FUSE request.
	Debug bool
	// Transport is how requests come. "": the value of the environment variable
	// ROOTSFS_TRANSPORT, or TransportAuto if that is not set.
	Transport Transport
	// OpenNothing promises that this process opens and looks up nothing in the mount.
	// Without it New opens a file in the mount, so that POLL is answered once
	// (transport.Conn.AnswerPoll). If a process is killed while it has a file of its own
	// mount open, it cannot end, because closing the file is a request to the process
	// itself (measured on 6.18, kernel fs/fuse/file.c, fuse_flush). Only umount(8) -f ends
	// such a mount.
	OpenNothing bool

	// atStep is called when a request about a root reaches a step, so that tests can hold
	// the request there. It may be nil.
	atStep func(s step, root guard.RootName)
	// maxWrite is the size of the largest WRITE, for tests; 0: the default.
	maxWrite int
}

const (
	// keepTimeout is how long the kernel may cache names and attributes whose changes the
	// source's watch reports. An hour stands for "until the mount drops them".
	keepTimeout = time.Hour
	// looseTimeout is how long the kernel may cache other names and attributes. Examples are those
	// in directories that are stuck or not watched (on a remote file system, or beyond the watch
	// limit), and the attributes of files with several links. view.timeouts has the cases.
	looseTimeout = time.Second
)
