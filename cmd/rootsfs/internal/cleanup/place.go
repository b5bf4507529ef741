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
// If the cleaner was killed as well, its place is left behind. The next run, mount or doctor
// takes the place away (ClearLeft): its lock is free, and its mount answers no call.
//
// # Not promised
//
// A mount in the foreground has no cleaner. A mount that is in use goes on answering from
// the kernel's caches for processes that hold something in it, until they let go.
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

// Place is the directory of a run's mount. Only this user may enter it, and the command's
// group if this user is root. The mountpoint is the only entry of its parent, because
// Landlock's rules keep a reference to a mountpoint's parent.
type Place struct {
	dir string
	mu  sync.Mutex // held while the place is removed
	// lock is the lock of dir, which ends with this process; nil: there can be none.
	lock *os.File
}

const placePrefix = "rootsfs-run-"

// leftAfter is how old an unlocked place must be to count as left behind: a place that is
// being made is not locked yet.
const leftAfter = time.Minute

// Base returns the directory of the places of runs.
func Base() string {
	if os.Geteuid() == 0 {
		return "/run"
	}
	return control.RuntimeDir()
}

// IsInPlace reports whether a path is a place of a run, or lies in one.
func IsInPlace(path string) bool {
	return strings.HasPrefix(path, filepath.Join(Base(), "."+placePrefix))
}

// MakePlace makes the place of a run, with a random name. owner is the user that the run's command
// runs as.
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
	if errors.Is(err, unix.EINVAL) { // of chown
		text = fmt.Sprintf("this user namespace does not map the user %d, as whom root's command would run: run rootsfs outside of the namespace, or as another user than root", owner.UID)
	}
	return &control.Error{Text: text, Class: control.System}
}

// Point returns the mountpoint of the place.
func (p *Place) Point() string { return filepath.Join(p.dir, "tree", "mnt") }

// Scratch returns a directory for levels without namespaces, which put HOME and TMPDIR
// there.
func (p *Place) Scratch() string { return filepath.Join(p.dir, "home") }

// Run returns the name of the run whose place it is, and of its control group.
func (p *Place) Run() string { return strings.TrimPrefix(filepath.Base(p.dir), ".") }

// Remove removes the place. A mount that is still there stays, with the directories on
// the way to it.
func (p *Place) Remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = os.Remove(p.Point()) // each fails if something is left; isGone then reports false
	_ = os.Remove(filepath.Dir(p.Point()))
	_ = removeAll(p.Scratch())
	_ = os.Remove(p.dir)
}

// isGone reports whether nothing is left of the place.
func (p *Place) isGone() bool {
	_, err := os.Lstat(p.dir)
	return errors.Is(err, fs.ErrNotExist)
}

// lockPlace locks a directory of this user's. The lock ends when the returned file is closed,
// and so with the process. lockPlace returns nil if another process has the lock, or there
// can be none.
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
