package mountpoint

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// IsStale reports whether path is, or lies in, a FUSE mount whose daemon is gone
// ("Transport endpoint is not connected"). A mount whose daemon lives but does not answer
// within five seconds is not stale. Another user's mount that does not let this user in is never
// reported, because the kernel refuses to say. The caller must not ask about a mount that this
// process serves.
func IsStale(path string) bool {
	gone, err := withTimeout(accessTimeout, func() (bool, error) { return daemonGone(path), nil })
	return err == nil && gone
}

// listStaleTime is how long ListStale waits for all mounts together. The kernel answers
// for a mount without a daemon at once, so a mount that does not answer is alive.
const listStaleTime = 200 * time.Millisecond

// ListStale returns the mountpoints of this user's rootsfs mounts whose daemon is gone,
// sorted, without the mounts for which leaveOut returns true. Any command may call ListStale, so
// it waits at most listStaleTime. It sends no request to mounts of other users or types, nor to
// mounts below a file system that may hang.
func ListStale(leaveOut func(Info) bool) ([]string, error) {
	all, err := Mounts()
	if err != nil {
		return nil, err
	}
	stale := make(chan string, len(all))
	var queries sync.WaitGroup
	for _, in := range all {
		if in.FSType == FSType && !leaveOut(in) && checkOurs(in) == nil && reachable(all, in) {
			queries.Go(func() {
				if daemonGone(in.Point) {
					stale <- in.Point
				}
			})
		}
	}
	_, _ = withTimeout(listStaleTime, func() (struct{}, error) { queries.Wait(); return struct{}{}, nil })
	var points []string
	for len(stale) > 0 {
		points = append(points, <-stale)
	}
	slices.Sort(points)
	return slices.Compact(points), nil
}

// reachable reports whether a path walk to a mount's point ends in this mount, and passes only
// through file systems that do not wait for a daemon or another machine.
func reachable(all []Info, in Info) bool {
	if top, ok := covering(all, in.Point); !ok || top.ID != in.ID {
		return false
	}
	parents := make(map[int]Info, len(all))
	for _, p := range all {
		parents[p.ID] = p
	}
	for range all { // at most one step per mount, so that the walk also ends in a table with a cycle
		p, ok := parents[in.Parent]
		if !ok || p.ID == in.ID {
			return true
		}
		// The walk does not enter a mount that another mount at the same point covers.
		if p.Point != in.Point && mayHang(p.FSType) {
			return false
		}
		in = p
	}
	return false
}

// mayHang reports whether a file system of a type may wait for a daemon or another
// machine. A FUSE type can have a subtype, as in fuse.rootsfs.
func mayHang(fsType string) bool {
	base, _, _ := strings.Cut(fsType, ".")
	switch base {
	case "fuse", "fuseblk", "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "afs", "coda", "lustre", "gfs2", "ocfs2", "orangefs", "gpfs", "vboxsf", "virtiofs", "autofs":
		return true
	}
	return false
}

// daemonGone reports whether the daemon of the file system at path is gone. It may hang.
func daemonGone(path string) bool {
	// Not stat: with long attribute timeouts the kernel answers stat from its cache long
	// after the daemon has died. STATFS is never cached.
	var st unix.Statfs_t
	err := unix.Statfs(path, &st)
	// ECONNABORTED: the connection ended while the kernel waited for the answer.
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
}

// maxStacked bounds how many dead mounts ClearStale takes off one directory. A daemon that
// is restarted again and again leaves a few; nothing leaves a hundred.
const maxStacked = 100

// ClearStale detaches this user's stale rootsfs mounts that are stacked at path, from the top down.
// It leaves every other mount alone. The error wraps ErrNotMounted if nothing is mounted at path,
// and ErrNotOurs if the top-most mount is of another type or user. If the top-most mount is alive,
// the error tells how to end it. A lower mount that is alive or of another type ends ClearStale
// without an error.
func ClearStale(path string) error {
	in, err := findAt(path)
	if err != nil {
		return err
	}
	point := in.Point
	for range maxStacked {
		if err := checkOurs(in); err != nil {
			return err
		}
		if !IsStale(point) {
			return fmt.Errorf("the session mounted at %s is alive: to end it: rootsfs unmount %[1]s", names.ShellWord(point))
		}
		// Lazily: a process may still have its working directory in the mount, and can do
		// nothing there.
		if err := Detach(point, true); err != nil {
			return err
		}
		if in, err = Find(point); err != nil || in.FSType != FSType || !IsStale(point) {
			return nil
		}
	}
	return fmt.Errorf("%s is still stale after %d mounts were taken off it: something mounts there again and again", names.ShellWord(point), maxStacked)
}

// checkOurs returns ErrNotOurs for a mount that is not a rootsfs mount of this user. It does so
// for root, too: root can unmount the mounts of others by umount(8).
func checkOurs(in Info) error {
	p := names.ShellWord(in.Point)
	if in.FSType != FSType {
		return errorf(ErrNotOurs, "%s is not a rootsfs mount but %s (source %s): left alone", p, names.ShellWord(in.FSType), names.ShellWord(in.Source))
	}
	if in.Owner != os.Geteuid() {
		return errorf(ErrNotOurs, "%s was mounted by the user with id %d: left alone; that user can run: rootsfs unmount %[1]s", p, in.Owner)
	}
	return nil
}
