package mountpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// helperTimeout bounds a run of fusermount3. Unmounting can wait for dirty
// pages to be written, so it is generous.
const helperTimeout = 30 * time.Second

// Detach unmounts the top-most rootsfs mount at point: by umount2(2) where
// this process may, which is when it is root, and by the set-user-id helper
// fusermount3 (or fusermount) for everybody else. Lazy takes the mount out of
// the tree at once even if it is in use; what is held in it goes on working
// until the connection ends, so lazy is not revocation.
//
// The error wraps ErrNotMounted, ErrNotOurs (another type of file system, or
// another user's mount and the caller is not root) or ErrBusy; the latter
// names who holds what, as far as this user can see.
func Detach(point string, lazy bool) error {
	resolved, err := resolvePoint(point)
	if err != nil {
		return pointError(point, err)
	}
	in, err := Find(resolved)
	if err != nil {
		return err
	}
	if in.FSType != FSType {
		return checkOurs(in)
	}
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	err = unix.Unmount(resolved, flags)
	if errors.Is(err, unix.EPERM) {
		// Not only for users: root in a container may lack CAP_SYS_ADMIN, and
		// a user in a namespace of his own may have it.
		if err := checkOurs(in); err != nil {
			return err
		}
		return detachByHelper(in, lazy)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return busyError(in, "")
	case errors.Is(err, unix.EINVAL):
		return errorf(err, "%s cannot be unmounted from here: it is gone, or locked because another mount namespace made it; unmount it there", names.ShellWord(resolved))
	}
	return errorf(err, "unmount %s: %v", names.ShellWord(resolved), err)
}

func detachByHelper(in Info, lazy bool) error {
	bin, err := lookHelper(exec.LookPath)
	if err != nil {
		return err
	}
	args := []string{"-u"}
	if lazy {
		args = append(args, "-z")
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, append(args, "--", in.Point)...).CombinedOutput()
	if err == nil {
		return nil
	}
	said := names.ShellWord(strings.TrimSpace(string(bytes.TrimPrefix(out, []byte("fusermount3: ")))))
	if ctx.Err() != nil {
		return errorf(os.ErrDeadlineExceeded, "unmount %s: %s did not end within %v", names.ShellWord(in.Point), bin, helperTimeout)
	}
	// The helper says in words why it failed, and words are not compared. That
	// somebody holds the mount is found out by looking.
	if !lazy {
		if busy := busyError(in, said); errors.Is(busy, ErrBusy) {
			return busy
		}
	}
	return fmt.Errorf("unmount %s: %s: %w (%s)", names.ShellWord(in.Point), bin, err, said)
}

// busyError explains EBUSY. With helperSaid set, EBUSY is only a guess, and
// the error wraps ErrBusy only if a holder is found.
func busyError(in Info, helperSaid string) error {
	held := holders(in)
	switch {
	case len(held) > 0:
		return errorf(ErrBusy, "%s is in use by %s: end that, then try again", names.ShellWord(in.Point), strings.Join(held, ", "))
	case helperSaid != "":
		return fmt.Errorf("unmount %s: %s", names.ShellWord(in.Point), helperSaid)
	}
	return errorf(ErrBusy, "%s is in use by a process that this user cannot see into: end it, then try again; to look: fuser -vm %[1]s", names.ShellWord(in.Point))
}

// Bounds of the search for who holds a mount: it only makes an error message
// better, so it may be incomplete but not slow or long.
const (
	maxHolders    = 8               // named in the message
	maxFDs        = 10_000          // looked at in one process
	holdersWithin = 2 * time.Second // in all; a process stuck in a page fault can block its maps
)

// holders describes, best effort, what keeps the mount from being unmounted:
// mounts inside it and processes with a working directory, a root directory, a
// program, an open file or a mapping in it. It asks no mounted file system
// anything. Processes of others are invisible to anybody but root.
func holders(in Info) []string {
	found := make(chan string)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		defer close(found)
		findHolders(in, func(s string) bool {
			select {
			case found <- s:
				return true
			case <-stop:
				return false
			}
		})
	}()
	limit := time.NewTimer(holdersWithin)
	defer limit.Stop()
	var all []string
	for {
		select {
		case s, ok := <-found:
			switch {
			case !ok:
				return all
			case len(all) == maxHolders:
				return append(all, "and others")
			}
			all = append(all, s)
		case <-limit.C:
			return all
		}
	}
}

// findHolders calls emit for each holder until it returns false.
func findHolders(in Info, emit func(string) bool) {
	all, err := Mounts()
	if err != nil {
		return
	}
	for _, sub := range all {
		if sub.Parent == in.ID && sub.ID != in.ID &&
			!emit(fmt.Sprintf("the mount at %s (%s)", names.ShellWord(sub.Point), names.ShellWord(sub.FSType))) {
			return
		}
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if how := holds(filepath.Join("/proc", p.Name()), in); how != "" &&
			!emit(fmt.Sprintf("%s (pid %d, %s)", processName(p.Name()), pid, how)) {
			return
		}
	}
}

// holds says how the process whose directory in /proc is proc holds the mount,
// or "". The links are read, never followed, since following one would ask the
// mount's daemon.
func holds(proc string, in Info) string {
	inside := func(link string) (string, bool) {
		target, err := os.Readlink(filepath.Join(proc, link))
		if err != nil || !names.Under(target, in.Point) {
			return "", false
		}
		return target, true
	}
	for _, l := range []struct{ link, how string }{
		{"cwd", "working directory"}, {"root", "root directory"}, {"exe", "running program"},
	} {
		if target, ok := inside(l.link); ok {
			return l.how + " " + names.ShellWord(target)
		}
	}
	if dir, err := os.Open(filepath.Join(proc, "fd")); err == nil {
		fds, _ := dir.Readdirnames(maxFDs)
		dir.Close()
		for _, n := range fds {
			if target, ok := inside(filepath.Join("fd", n)); ok {
				return "open " + names.ShellWord(target)
			}
		}
	}
	return ""
}

// processName is what ps shows; a process may call itself anything.
func processName(pid string) string {
	comm, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	if err != nil {
		return "a process"
	}
	return names.ShellWord(strings.TrimSuffix(string(comm), "\n"))
}
