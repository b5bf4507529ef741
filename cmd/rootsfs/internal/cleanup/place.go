// Package cleanup removes the mounts, directories, sessions and control groups that a
// killed process of rootsfs leaves.
//
// # Promises
//
// A mount outlives the process that serves it, and the kernel goes on answering from its
// caches. So a run and a daemon each have a cleaner: this program started again. The
// cleaner waits until the run or daemon has ended (pidfd_open(2)) and then cleans up, unless
// it was dismissed before. It waits for the end of the process, not for one descriptor to
// close: the kernel closes the descriptors and locks of a killed process one after the other.
//
// If the cleaner of a run was killed as well, the run's place is left: the directory that contains
// the mount. The next run, mount or doctor removes such a place if it is older than leftAfter, its
// lock is free and its mount answers no call (ClearLeft).
//
// # Not promised
//
// A mount in the foreground has no cleaner. For processes that still use files or directories of a
// mount, the kernel goes on answering from its caches until the processes stop using them.
package cleanup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// Place is the directory that contains a run's mount. Only this user may enter the directory. If
// this user is root, the group of the run's command may enter it, too. The mountpoint is the only
// entry of its parent, because level landlock lets the command write in the whole parent (see
// hostRules of package sandbox).
type Place struct {
	dir string
	mu  sync.Mutex // held while the place is removed
	// lock is the lock of dir. It ends with this process. nil: dir could not be locked.
	lock *os.File
}

const placePrefix = "rootsfs-run-"

// leftAfter is how old an unlocked place must be to count as left by a killed run. A younger place
// may be one that a run has just created and not locked yet.
const leftAfter = time.Minute

// Base returns the directory that contains the places of runs.
func Base() string {
	if os.Geteuid() == 0 {
		return "/run"
	}
	return control.RuntimeDir()
}

// IsInPlace reports whether a path is the place of a run, or lies in the place of a run.
func IsInPlace(path string) bool {
	return strings.HasPrefix(path, filepath.Join(Base(), "."+placePrefix))
}

// MakePlace creates the place of a run, with a random name. owner is the user that the run's
// command runs as.
func MakePlace(owner rules.User) (*Place, error) {
	if os.Geteuid() != 0 {
		if _, err := control.EnsureRuntimeDir(); err != nil {
			return nil, err
		}
	}
	p := &Place{dir: filepath.Join(Base(), "."+placePrefix+strings.ToLower(rand.Text()[:12]))}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return nil, noPlace(err, owner)
	}
	p.lock = lockPlace(p.dir)
	err := errors.Join(
		os.MkdirAll(p.Point(), 0o700), os.Mkdir(p.Scratch(), 0o700),
		os.Chown(p.Scratch(), int(owner.UID), int(owner.GID)),
	)
	if os.Geteuid() == 0 {
		for _, d := range []string{p.dir, filepath.Dir(p.Point())} {
			err = errors.Join(err, os.Chown(d, 0, int(owner.GID)), os.Chmod(d, 0o710))
		}
	}
	if err != nil {
		p.Remove()
		return nil, noPlace(err, owner)
	}
	return p, nil
}

func noPlace(err error, owner rules.User) error {
	text := fmt.Sprintf("no place for the private mount: %v", err)
	if errors.Is(err, unix.EINVAL) { // from Chown
		text = fmt.Sprintf("this user namespace does not map the user %d, as whom root's command would run: run rootsfs outside of the namespace, or as another user than root", owner.UID)
	}
	return &control.Error{Text: text, Class: control.System}
}

// Point returns the mountpoint of the place.
func (p *Place) Point() string { return filepath.Join(p.dir, "tree", "mnt") }

// Scratch returns the directory in which confinement levels without namespaces put HOME and TMPDIR.
func (p *Place) Scratch() string { return filepath.Join(p.dir, "home") }

// Run returns the name of the run that has this place. The control group of the run has the same
// name.
func (p *Place) Run() string { return strings.TrimPrefix(filepath.Base(p.dir), ".") }

// Remove removes the place. A mount that is still there stays, and so do the directories above the
// mount.
func (p *Place) Remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = os.Remove(p.Point()) // each Remove fails if something is left; isGone then reports false
	_ = os.Remove(filepath.Dir(p.Point()))
	_ = removeAll(p.Scratch())
	_ = os.Remove(p.dir)
}

// isGone reports whether nothing is left of the place.
func (p *Place) isGone() bool {
	_, err := os.Lstat(p.dir)
	return errors.Is(err, fs.ErrNotExist)
}

// lockPlace locks a directory that this user owns. The lock ends when the returned file is closed,
// at the latest with the process. lockPlace returns nil if another process has the lock, or if the
// directory cannot be locked, was replaced or has another owner.
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
