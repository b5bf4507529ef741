package audit

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/rootsfs/rootsfs/guard/names"
)

// PathMode says how paths are written.
type PathMode uint8

// The path modes, as in --audit-paths. Only PathsFull writes Detail, because
// the detail of a grant holds host paths.
const (
	// PathsFull writes root-relative paths.
	PathsFull PathMode = iota
	// PathsHash writes a keyed hash of root and path, and one of the detail. Equal paths have
	// equal hashes. Without the key nobody can test guesses at a path.
	PathsHash
	// PathsNone writes neither paths nor details. The root's name is still written.
	PathsNone
)

var pathModes = [...]string{"full", "hash", "none"}

// String returns the mode's word on the command line.
func (m PathMode) String() string {
	if int(m) < len(pathModes) {
		return pathModes[m]
	}
	return "invalid"
}

// ParsePathMode reads full, hash or none.
func ParsePathMode(s string) (PathMode, error) {
	for i, word := range pathModes {
		if word == s {
			return PathMode(i), nil
		}
	}
	return 0, &names.Error{Kind: names.Invalid, Err: fmt.Errorf(
		"unknown path mode %s: write full, hash or none", names.Quote(s))}
}

// DefaultMaxBytes is the default of Options.MaxBytes. A full file is compressed, so
// this is also about how much of a session lies on the disk uncompressed.
const DefaultMaxBytes = 1 << 20

// Options say where and how a Log writes.
type Options struct {
	// Dir is the directory of audit files. It is created with mode 0700; one that others
	// may write to is refused. The caller has to make sure that it does not lie in a root.
	Dir string
	// Session is the session's name: 1 to 128 letters, digits, '.', '_', '-',
	// '+', '@', beginning with a letter or digit. It is part of file names.
	Session string
	// Paths is the mode of paths; the zero value writes them in full.
	Paths PathMode
	// MaxBytes is the size at which a file is continued in a new one, by
	// default DefaultMaxBytes. A file exceeds MaxBytes by less than one line, or by more if the
	// next file cannot be begun.
	MaxBytes int64
	// MaxAge and MaxTotal bound the files of all sessions in Dir: MaxAge the age of a file's
	// last record, MaxTotal the bytes of all files. Files that exceed a bound are deleted
	// (prune) when a session begins, and now and then while it runs. 0, the default, is no
	// bound. AnchorOf returns the path of a session's anchor; without it nothing is deleted.
	MaxAge   time.Duration
	MaxTotal int64
	AnchorOf func(session string) (string, error)
	// Bounds, unless nil, returns MaxAge and MaxTotal as they are at each deletion: they may have
	// changed since the session began.
	Bounds func() (maxAge time.Duration, maxTotal int64)
	// Pruned, unless nil, is called with the path of each file that MaxAge or MaxTotal
	// has deleted. It must not call the Log.
	Pruned func(path string)
	// Anchor is the file that holds the number and hash of the last anchored
	// line; its directory is created with mode 0700. One session, one anchor.
	Anchor string
	// KeyFile holds the key of PathsHash, by default "audit.key" beside the
	// anchor. It is made with random contents and mode 0600 when absent.
	KeyFile string

	// Tests set the fields below; 0 stands for the package's constants.
	refusals, work pace
	compressFrom   int64 // files smaller than this are not compressed
}

// maxName is the longest name of a session, bytes.
const maxName = 128

// WellNamed reports whether a session's name can be part of a file name: up to limit letters,
// digits and characters of "._+@-", beginning with a letter or digit.
func WellNamed(s string, limit int) bool {
	for i := range len(s) {
		c := s[i]
		plain := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !plain && (i == 0 || strings.IndexByte("._+@-", c) < 0) {
			return false
		}
	}
	return s != "" && len(s) <= limit
}

func (o *Options) normalize() error {
	invalid := func(format string, args ...any) error {
		return &names.Error{Kind: names.Invalid, Err: fmt.Errorf("audit: "+format, args...)}
	}
	switch {
	case o.Dir == "":
		return invalid("no directory")
	case o.Anchor == "":
		return invalid("no anchor file")
	case !WellNamed(o.Session, maxName):
		return invalid("session name %s cannot be part of a file name", names.Quote(o.Session))
	case int(o.Paths) >= len(pathModes):
		return invalid("unknown path mode %d", o.Paths)
	case o.MaxBytes < 0 || o.MaxAge < 0 || o.MaxTotal < 0:
		return invalid("negative limit")
	}
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	o.KeyFile = cmp.Or(o.KeyFile, filepath.Join(filepath.Dir(o.Anchor), "audit.key"))
	o.refusals = cmp.Or(o.refusals, pace{refusalBurst, refusalRate})
	o.work = cmp.Or(o.work, pace{workBurst, workRate})
	o.compressFrom = cmp.Or(o.compressFrom, compressFrom)
	return nil
}
