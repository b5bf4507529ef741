package mount

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/vfs"
)

// Level is how much the kernel may keep for itself.
type Level uint8

// The cache levels.
const (
	// Strict: the kernel asks for everything, every time.
	Strict Level = iota + 1
	// Audit (the default): names, attributes and pages are kept while the
	// source is watched; every open is asked, and on record.
	Audit
	// Max: opens are not asked either (FUSE_NO_OPEN_SUPPORT), so warm files
	// are read without the daemon, and without a record.
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

// ParseLevel is the inverse of String.
func ParseLevel(s string) (Level, error) {
	for _, l := range []Level{Strict, Audit, Max} {
		if l.String() == s {
			return l, nil
		}
	}
	return 0, &guard.Error{Kind: names.Invalid, Err: fmt.Errorf("unknown cache level %s: write strict, audit or max", names.Quote(s))}
}

// Locks is where file locks taken through the mount are kept.
type Locks uint8

// The places.
const (
	LocksLocal Locks = iota + 1 // by the kernel, among the users of the mount
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
	// refuses everybody, root too, whose uid, effective uid and saved uid are not all the
	// daemon's.
	AllowOther bool
	Subject    guard.Subject
	// Tree is shared with the registry's other mounts and fronts, so that who
	// changes a name as a whole excludes the others; nil: one of the mount's own.
	Tree   *vfs.Tree
	Layout Layout
	// Owner is whose files all seem to be, for a mount that is for one process
	// alone: its file system is the mount, and the registry decides what it may
	// do. Files it makes are the daemon's own user's. nil: as on the source.
	Owner *guard.User
	// Visible reports whether a process that uses the mount sees a place outside of
	// the link's root by itself, so that a link that leads there is shown: dest is
	// absolute and clean, and "" stands for a place in a live root of the Subject
	// when Layout.ByPath. relative tells that the target is. It may be called
	// concurrently. nil: links that leave their root are refused.
	Visible func(dest string, relative bool) bool
	Log     *slog.Logger
	// Debug logs every FUSE request.
	Debug bool
	// Transport is how requests come; "": what the environment variable
	// ROOTSFS_TRANSPORT says, or TransportAuto.
	Transport Transport
	// OpenNothing says that this process opens and looks up nothing of the mount itself. New
	// then opens nothing of it either; otherwise it opens a file to have POLL answered
	// for the Go runtime's sake (transport.Conn.AnswerPoll). A process that is killed
	// while it has a file of its own mount open cannot end, and only umount(8) -f ends the
	// mount: to close the file is a request to the process itself (measured on 6.18,
	// kernel fs/fuse/file.c, fuse_flush).
	OpenNothing bool
	// MaxOpen bounds the descriptors that Max keeps for files the kernel
	// reads without opening; default 1024.
	MaxOpen int

	// atStep is called when a request about a root reaches a step; tests hold requests
	// with it. nil: nobody looks.
	atStep func(s step, root guard.RootName)
	// maxWrite is the size of the largest request; 0: as it should be.
	maxWrite int
}

const (
	// keepTimeout is how long the kernel may keep what the source's watch
	// will tell us about; an hour stands for "until told".
	keepTimeout = time.Hour
	// looseTimeout is for what nobody watches: remote file systems, files
	// with several links, directories beyond the watch limit.
	looseTimeout = time.Second
)
