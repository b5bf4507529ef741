package lab

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
)

// init locks the main goroutine to the process's first thread. Without the lock, OwnMounts could
// move that thread, and with it /proc/self, into another namespace for every later test.
func init() { runtime.LockOSThread() }

// OwnMounts moves the calling goroutine, and every process that it starts from then on,
// into a mount namespace of its own, without the mounts of other tests. It is for tests
// whose verdict depends on all mounts of the machine. Only root can have such a namespace.
//
// The goroutine keeps its thread until it ends. Other goroutines stay where they are, and
// /proc/self/mountinfo does not change: it is the table of the process's first thread.
func OwnMounts() error {
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	return detach(func(m Entry) bool {
		ofTests := m.FSType == mountpoint.FSType || names.Under(m.Point, os.TempDir()) && m.Point != os.TempDir()
		return ofTests && !names.Under(wd, m.Point) && !names.Under(exe, m.Point)
	})
}

// startedVar is set in the environment of a program that StartWithOwnMounts has started.
const startedVar = "ROOTSFS_OWN_MOUNTS"

// StartWithOwnMounts starts the program again, as the same process, in a mount namespace of
// its own, without the mounts of tests that run beside it. It returns nil in the program that
// it has started, and for users who may have no such namespace.
func StartWithOwnMounts() error {
	if os.Geteuid() != 0 || os.Getenv(startedVar) != "" {
		return os.Unsetenv(startedVar) // so that a suite started by this one gets mounts of its own, too
	}
	if err := OwnMounts(); errors.Is(err, unix.EPERM) {
		return nil
	} else if err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), startedVar+"=1"))
}

// DetachMounts detaches all rootsfs mounts in the process's own mount namespace, except the one
// at keep. They are copies of other tests' mounts, and those tests wait until no copy is left.
func DetachMounts(keep string) error {
	return detach(func(m Entry) bool { return m.FSType == mountpoint.FSType && m.Point != keep })
}

// detach makes the mounts in the calling thread's namespace private and detaches those for
// which matches returns true. It begins with the outermost mounts: the path to an inner mount
// may lead through an outer one that does not answer, and the inner one goes with the outer.
func detach(matches func(Entry) bool) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	all, err := Table()
	slices.SortStableFunc(all, func(a, b Entry) int { return len(a.Point) - len(b.Point) })
	for _, m := range all {
		if matches(m) {
			_ = unix.Unmount(m.Point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // fails for a mount that went with an outer one
		}
	}
	return err
}

// Entry is a mount in a table of mounts.
type Entry struct{ Point, FSType string }

// Table returns the mounts in the calling thread's namespace. (mountpoint.Mounts returns
// the mounts in the namespace of the process's first thread.)
func Table() (all []Entry, err error) {
	table, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	defer table.Close()
	mounts, err := mountinfo.GetMountsFromReader(table, nil)
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	for _, m := range mounts {
		all = append(all, Entry{Point: m.Mountpoint, FSType: m.FSType})
	}
	return all, nil
}
