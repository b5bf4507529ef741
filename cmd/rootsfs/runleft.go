package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/mountpoint"
	"github.com/rootsfs/rootsfs/mount/sandbox"
)

// A run that was killed together with its janitor, or before it had one, leaves its
// place. The next run, mount or doctor takes that away: nobody holds its lock any
// more, and nobody answers for what is mounted there.

// leftAfter is how old a place must be: one that is being made is not locked yet, and
// a rootsfs from before there were locks makes none.
const leftAfter = time.Minute

// privateBase is the directory of the places of runs.
func privateBase() string {
	if os.Geteuid() == 0 {
		return "/run"
	}
	return control.RuntimeDir()
}

// privateAt is the place that a directory is, or was, of.
func privateAt(dir string) *private {
	return &private{dir: dir, point: filepath.Join(dir, "tree", "mnt"), scratch: filepath.Join(dir, "home")}
}

// lockPlace takes the lock of a directory of this user's, which ends with the file,
// and so with the process. It returns nil if somebody has it, or there can be none.
func lockPlace(dir string) *os.File {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), dir)
	var held, named unix.Stat_t
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil || unix.Fstat(fd, &held) != nil || unix.Lstat(dir, &named) != nil ||
		held.Ino != named.Ino || held.Dev != named.Dev || int(held.Uid) != os.Geteuid() {
		f.Close()
		return nil
	}
	return f
}

// clearLeft removes what killed runs have left, and returns of how many.
func clearLeft() (n int) {
	sandbox.ForgetOldMemory(privatePrefix, leftAfter)
	base := privateBase()
	entries, err := os.ReadDir(base)
	if err != nil {
		return 0 // not made yet
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "."+privatePrefix) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > leftAfter && clearPlace(filepath.Join(base, e.Name())) {
			n++
		}
	}
	return n
}

// clearPlace removes one, if it is left.
func clearPlace(dir string) bool {
	lock := lockPlace(dir)
	if lock == nil {
		return false
	}
	defer lock.Close()
	p := privateAt(dir)
	if err := mountpoint.ClearStale(p.point); err != nil && !errors.Is(err, mountpoint.ErrNotMounted) && names.Reason(err) != names.NotExist {
		return false // it is alive
	}
	p.remove()
	sandbox.ForgetMemory(p.run())
	return p.gone()
}
