//go:build linux

package mount

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// CheckMountpoint says whether a session can be mounted at path and where that
// really is: resolved is absolute and free of links, and differs from path's
// own absolute form when a link was followed, which a caller should show. The
// directory must exist, be empty and, for anybody but root, be the user's to
// change, as fusermount3 demands. A mount of ours already there is refused; an
// empty directory that is another kind of mount is not.
//
// Each error is one line with the path and the remedy. It wraps ErrStale if a
// mount there has lost its daemon (see ClearStale), else the cause, such as
// fs.ErrNotExist. What it found can change before the mount is made. Each of
// its two steps gives a file system that does not answer five seconds.
func CheckMountpoint(path string) (resolved string, err error) {
	resolved, err = resolvePoint(path)
	if err != nil {
		return "", mountpointError(path, err)
	}
	if in, err := Find(resolved); err == nil && in.FSType == FSType {
		if Stale(resolved) {
			return "", mountpointError(resolved, unix.ENOTCONN)
		}
		return "", mountErrorf(fs.ErrExist, "mountpoint %s is in use: a session is mounted there; unmount it first: rootsfs unmount %[1]s", names.ShellWord(resolved))
	}
	_, err = bounded(accessTimeout, func() (struct{}, error) {
		return struct{}{}, checkDirectory(resolved, os.Geteuid())
	})
	if err != nil {
		return "", mountpointError(resolved, err)
	}
	return resolved, nil
}

// errNotOwned is checkDirectory's: the sticky bit keeps others from mounting.
var errNotOwned = errors.New("sticky directory of another user")

// checkDirectory returns a bare cause; mountpointError makes the sentence.
func checkDirectory(dir string, uid int) error {
	var st unix.Stat_t
	// Lstat: resolved holds no link, and one put there since is no directory.
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	if uid != 0 {
		// fusermount3 asks for both before it mounts for a user. Asked here,
		// the answer names a remedy.
		if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
			return err
		}
		if st.Mode&unix.S_ISVTX != 0 && int(st.Uid) != uid {
			return errNotOwned
		}
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	switch _, err := d.Readdirnames(1); {
	case err == nil:
		return unix.ENOTEMPTY
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func mountpointError(path string, err error) error {
	p := names.ShellWord(path)
	say := func(format string, args ...any) error {
		return mountErrorf(err, "mountpoint %s %s", p, fmt.Sprintf(format, args...))
	}
	switch {
	case errors.Is(err, unix.ENOTCONN):
		err = ErrStale
		return say("%s", staleRemedy(path))
	case errors.Is(err, fs.ErrNotExist):
		if target, lerr := os.Readlink(path); lerr == nil {
			return say("is a link to %s, which does not exist: mkdir -p %[1]s", names.ShellWord(target))
		}
		return say("does not exist: mkdir -p %s", p)
	case errors.Is(err, unix.ENOTDIR):
		return say("is not a directory: choose one, or make it: mkdir -p DIRECTORY")
	case errors.Is(err, unix.ENOTEMPTY):
		return say("is not empty: choose an empty directory, since a mount would hide what it holds")
	case errors.Is(err, errNotOwned):
		return say("is a shared (sticky) directory of another user: make one of your own in it: mkdir %s", names.ShellWord(path+"/rootsfs"))
	case errors.Is(err, unix.EROFS):
		return say("lies on a read-only file system, where only root can mount: choose another directory")
	case errors.Is(err, fs.ErrPermission):
		return say("is not yours to use: choose a directory that you own, with mode 0700")
	case errors.Is(err, unix.ELOOP):
		return say("is a link that never ends (more than %d links): choose a directory", maxLinks)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return say("does not answer: a file system there hangs; unmount it or choose another directory")
	}
	return say("cannot be used: %v; choose another directory", err)
}

// staleRemedy names the dead mount that path is or lies in, if it can be told,
// and the command that removes it, which for others' mounts is not ours.
func staleRemedy(path string) string {
	const what = "is, or lies in, a stale mount whose daemon is gone"
	all, err := Mounts()
	abs, err2 := filepath.Abs(path)
	if err != nil || err2 != nil {
		return what + ": unmount it"
	}
	switch in, ok := covering(all, abs); {
	case ok && in.FSType == FSType:
		return what + ": rootsfs unmount " + names.ShellWord(in.Point)
	case ok && strings.HasPrefix(in.FSType, "fuse"):
		return fmt.Sprintf("%s (%s): fusermount3 -u -z %s", what, names.ShellWord(in.FSType), names.ShellWord(in.Point))
	}
	return what + ": unmount it"
}

// Stale reports whether path is, or lies in, a FUSE mount whose daemon is gone
// ("Transport endpoint is not connected"). A daemon that lives but does not
// answer within five seconds is not stale, nor is a mount of another user,
// whom the kernel lets see nothing. Do not ask about a mount this process
// serves.
func Stale(path string) bool {
	gone, err := bounded(accessTimeout, func() (bool, error) { return daemonGone(path), nil })
	return err == nil && gone
}

// abandonedTime is how long Abandoned waits for all mounts together. The kernel
// answers for one without a daemon at once; who does not answer is alive.
const abandonedTime = 200 * time.Millisecond

// Abandoned returns the mountpoints of this user's rootsfs mounts whose daemon is
// gone, but for those to leave out, sorted. It may be asked on the way to anything
// else, so no file system is waited for that hangs: other users' mounts and other
// types are not asked, nor is what only a walk through a file system that may hang
// reaches.
func Abandoned(leaveOut func(Info) bool) ([]string, error) {
	all, err := Mounts()
	if err != nil {
		return nil, err
	}
	gone := make(chan string, len(all))
	var asked sync.WaitGroup
	for _, in := range all {
		if in.FSType == FSType && !leaveOut(in) && checkOurs(in) == nil && reachable(all, in) {
			asked.Go(func() {
				if daemonGone(in.Point) {
					gone <- in.Point
				}
			})
		}
	}
	_, _ = bounded(abandonedTime, func() (struct{}, error) { asked.Wait(); return struct{}{}, nil })
	var out []string
	for len(gone) > 0 {
		out = append(out, <-gone)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// reachable reports whether a walk to a mount's point arrives at it, and passes only
// through file systems that do not ask a daemon or another machine.
func reachable(all []Info, in Info) bool {
	if top, ok := covering(all, in.Point); !ok || top.ID != in.ID {
		return false
	}
	parents := make(map[int]Info, len(all))
	for _, p := range all {
		parents[p.ID] = p
	}
	for range all { // a step per mount at most, so a table with a cycle ends too
		p, ok := parents[in.Parent]
		if !ok || p.ID == in.ID {
			return true
		}
		// A mount that another covers whole is not asked anything.
		if p.Point != in.Point && mayHang(p.FSType) {
			return false
		}
		in = p
	}
	return false
}

// mayHang reports whether a file system of a type may wait for a daemon or another
// machine. FUSE types have a subtype.
func mayHang(fsType string) bool {
	base, _, _ := strings.Cut(fsType, ".")
	switch base {
	case "fuse", "fuseblk", "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "9p", "afs", "coda", "lustre", "gfs2", "ocfs2", "orangefs", "gpfs", "vboxsf", "virtiofs", "autofs":
		return true
	}
	return false
}

// daemonGone asks the file system at a path, which may hang.
func daemonGone(path string) bool {
	// Not stat: with long attribute timeouts the kernel answers it from
	// its cache long after the daemon has died. STATFS is never cached.
	var st unix.Statfs_t
	return errors.Is(unix.Statfs(path, &st), unix.ENOTCONN)
}

// maxStacked bounds how many dead mounts ClearStale takes off one directory.
// A daemon restarted blindly can pile up a few; nothing makes a hundred.
const maxStacked = 100

// ClearStale detaches the stale mounts of ours stacked at path. A mount there
// that is of another type, alive, or another user's is left alone: the error
// wraps ErrNotOurs, or is the plain news that it is alive, and says what it
// is. With nothing mounted there the error wraps ErrNotMounted.
func ClearStale(path string) error {
	point, err := resolvePoint(path)
	if err != nil {
		return mountpointError(path, err)
	}
	for cleared := range maxStacked {
		in, err := Find(point)
		if cleared > 0 && (err != nil || in.FSType != FSType || !Stale(point)) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := checkOurs(in); err != nil {
			return err
		}
		if !Stale(point) {
			return fmt.Errorf("the session mounted at %s is alive: to end it: rootsfs unmount %[1]s", names.ShellWord(point))
		}
		// Lazily: somebody's working directory may still be in it, and nobody
		// can do anything through it any more.
		if err := Detach(point, true); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is still stale after %d mounts were taken off it: something mounts there again and again", names.ShellWord(point), maxStacked)
}

// checkOurs refuses what is not a rootsfs mount of the user who asks. Root is
// no exception: it can use umount(8), which is not tried by mistake.
func checkOurs(in Info) error {
	p := names.ShellWord(in.Point)
	if in.FSType != FSType {
		return mountErrorf(ErrNotOurs, "%s is not a rootsfs mount but %s (source %s): left alone", p, names.ShellWord(in.FSType), names.ShellWord(in.Source))
	}
	uid, err := mountOwner(in)
	if err != nil {
		return err
	}
	if uid != os.Geteuid() {
		return mountErrorf(ErrNotOurs, "%s was mounted by the user with id %d: left alone; that user can run: rootsfs unmount %[1]s", p, uid)
	}
	return nil
}

// mountOwner is the user the kernel recorded for a FUSE mount.
func mountOwner(in Info) (int, error) {
	for opt := range strings.SplitSeq(in.SuperOptions, ",") {
		if v, ok := strings.CutPrefix(opt, "user_id="); ok {
			uid, err := strconv.Atoi(v)
			if err != nil {
				return 0, fmt.Errorf("mount at %s: user_id %q is not a number", names.ShellWord(in.Point), v)
			}
			return uid, nil
		}
	}
	return 0, mountErrorf(ErrNotOurs, "mount at %s names no user_id: left alone", names.ShellWord(in.Point))
}
