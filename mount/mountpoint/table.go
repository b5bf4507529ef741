// Package mountpoint attaches, finds and detaches FUSE mounts, and reports why a session
// cannot be mounted at a path.
//
// # Promises
//
// No child of this process gets the descriptor that Attach returns. Find, Mounts, Ours,
// WatchGone and Abort ask no daemon of a mounted file system. Each step of Check, IsStale
// and ClearStale that asks a file system waits at most five seconds for the answer. Detach and
// ClearStale unmount only rootsfs mounts. Every error for a user is one line with
// the path and, if there is one, the remedy.
//
// # Not promised
//
// The result of a function can be out of date before its caller acts on it. A mount in another
// mount namespace is not found. A program that holds a file in the mount can go on using it
// after the mount is detached; only revoking the roots ends that (package mount).
package mountpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/rootsfs/rootsfs/guard/names"
)

// FSType is the kernel's name of the type of a rootsfs mount: "fuse" and the subtype "rootsfs",
// which is the Name in the mount's fuse.MountOptions.
const FSType = "fuse.rootsfs"

// mountinfoFile names the process, not the thread: every thread of a Go
// process sees the same table unless one has unshared its mount namespace.
const mountinfoFile = "/proc/self/mountinfo"

// Kinds of errors, for errors.Is. The errors of Find, Check, ClearStale, Detach, Abort,
// CheckFUSE and CheckAllowOther are one line that names the path and, if there is one, the remedy.
var (
	ErrNotMounted = errors.New("not mounted")              // nothing is mounted exactly there
	ErrNotOurs    = errors.New("not a mount of ours")      // of another type, or another user's
	ErrStale      = errors.New("stale mount")              // its daemon is gone
	ErrBusy       = errors.New("mount is busy")            // a process holds something in it
	ErrNoFUSE     = errors.New("the system lacks FUSE")    // no FUSE, or not for this user
	ErrNoFusectl  = errors.New("fusectl is not available") // connections cannot be aborted
)

// Info is one mount of the table of mounts (proc(5)). Strings are bytes as the kernel
// keeps them; they need not be UTF-8.
type Info struct {
	ID     int    // the kernel may give it to another mount once this mount is gone
	Parent int    // ID of the mount in which this mount lies; need not be in the table
	Dev    string // "major:minor" of the file system's device, decimal
	Point  string // absolute mount point, seen from this process's root directory
	FSType string // "ext4", "fuse.rootsfs"
	Source string // "/dev/sda1", or what the mounter chose; may be empty
	Owner  int    // user id of the mounter of a FUSE file system; -1 for other types
}

// Mounts returns the mounts that this process can see, in the kernel's order. It
// touches no mounted file system. Safe for concurrent use.
func Mounts() ([]Info, error) {
	table, err := os.Open(mountinfoFile)
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	defer table.Close()
	return parseTable(table)
}

// parseTable reads a table in the format of /proc/self/mountinfo. A line of more than
// 64 KiB is an error.
func parseTable(table io.Reader) ([]Info, error) {
	lines, err := mountinfo.GetMountsFromReader(table, nil)
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	all := make([]Info, len(lines))
	for i, l := range lines {
		all[i] = Info{
			ID: l.ID, Parent: l.Parent, Dev: fmt.Sprintf("%d:%d", l.Major, l.Minor), Point: l.Mountpoint,
			FSType: l.FSType, Source: l.Source, Owner: ownerOf(l.VFSOptions),
		}
	}
	return all, nil
}

// ownerOf returns the user_id in a file system's options, or -1. The kernel writes a user_id for
// FUSE file systems.
func ownerOf(options string) int {
	for opt := range strings.SplitSeq(options, ",") {
		if id, ok := strings.CutPrefix(opt, "user_id="); ok {
			if uid, err := strconv.Atoi(id); err == nil {
				return uid
			}
		}
	}
	return -1
}

// Find returns the mount to which a walk to point leads, if its mount point is exactly point.
// Of several mounts stacked there, it returns the top-most. A mount hidden below another one is
// not found. Links in point are not followed. If there is no such mount, the error wraps
// ErrNotMounted.
func Find(point string) (Info, error) {
	abs, err := filepath.Abs(point)
	if err != nil {
		return Info{}, err
	}
	all, err := Mounts()
	if err != nil {
		return Info{}, err
	}
	if in, ok := covering(all, abs); ok && in.Point == abs {
		return in, nil
	}
	return Info{}, errorf(ErrNotMounted, "nothing is mounted at %s", names.ShellWord(abs))
}

// Ours returns the mounts of type FSType, those of other users too.
func Ours() ([]Info, error) {
	all, err := Mounts()
	if err != nil {
		return nil, err
	}
	var ours []Info
	for _, in := range all {
		if in.FSType == FSType {
			ours = append(ours, in)
		}
	}
	return ours, nil
}

// covering returns the mount in which path lies. It walks the tree of mounts as the kernel
// walks a path: it enters the first mount, inside the present one, that the path meets. The
// order of the lines does not tell which mount covers which (since Linux 6.8 they are sorted by
// age); the parents do.
func covering(all []Info, path string) (Info, bool) {
	known := make(map[int]bool, len(all))
	for _, in := range all {
		known[in.ID] = true
	}
	// In a chroot the mount of the root directory is not listed, so the top of the tree is a
	// mount without a listed parent.
	isTop := func(in Info) bool { return in.Parent == in.ID || !known[in.Parent] }

	cur := -1
	for range all { // at most one step per mount, so that the walk also ends in a table with a cycle
		next := -1
		for i, in := range all {
			below := cur < 0 && isTop(in) || cur >= 0 && in.Parent == all[cur].ID && i != cur
			if below && names.Under(path, in.Point) && (next < 0 || len(in.Point) < len(all[next].Point)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		cur = next
	}
	if cur < 0 {
		return Info{}, false
	}
	return all[cur], true
}
