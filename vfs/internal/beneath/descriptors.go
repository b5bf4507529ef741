package beneath

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/guard/names"
)

// A process without a free descriptor cannot accept the owner's next command, check whether a
// root is still the approved directory, or end a root. So two bounds leave some descriptors
// free, below the limit of the process (RLIMIT_NOFILE; the Go runtime raises the soft limit to
// the hard one at the start). keptLimit, the smaller bound, is for descriptors that peers can keep
// open: files, directories, references, uploads. briefLimit, the larger bound, is for descriptors
// that an operation opens for a moment. Above a bound the answer is ENFILE: the system is out of
// files, not the program that asks.
//
// Nothing is counted: the kernel gives out the lowest free number, so at least as many
// descriptors are open in the process as the number of a new descriptor says.
var descriptors struct {
	keptLimit  atomic.Int64 // descriptors that are kept must have smaller numbers
	briefLimit atomic.Int64 // descriptors that are open for a moment must have smaller numbers
	scarce     atomic.Bool  // a descriptor got the number keptLimit or a larger one
}

func init() { limitDescriptors(math.MaxInt64) }

// measureDescriptors computes the bounds from the limit of the process.
func measureDescriptors() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		limitDescriptors(int64(min(l.Cur, math.MaxInt64)))
	}
}

// maxReserve is the largest number of descriptors that keptLimit leaves free. It is enough for the
// owner's connections, the audit log, the configuration, and a burst of operations.
const maxReserve = 256

func limitDescriptors(limit int64) {
	reserve := min(limit/4, maxReserve)
	descriptors.keptLimit.Store(limit - reserve)
	descriptors.briefLimit.Store(limit - reserve/4)
}

// MaxOpen is how many descriptors can be kept at most.
func MaxOpen() int { return int(min(descriptors.keptLimit.Load(), math.MaxInt)) }

// keepOrClose checks that a descriptor may be kept between operations. If not, it closes the
// descriptor and returns ENFILE.
func keepOrClose(fd int) error {
	if int64(fd) < descriptors.keptLimit.Load() {
		return nil
	}
	descriptors.scarce.Store(true)
	_ = unix.Close(fd)
	return unix.ENFILE
}

// checkRoom returns ENFILE if a new descriptor could not be kept. It is for operations that create
// a file before they have its descriptor. It makes system calls only when descriptors are
// scarce.
func checkRoom() error {
	if !descriptors.scarce.Load() {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(unix.Stderr), unix.F_DUPFD_CLOEXEC, 0)
	if err == unix.EBADF {
		return nil // no standard error to try it with
	}
	if err != nil {
		return unix.ENFILE
	}
	if keepOrClose(fd) != nil {
		return unix.ENFILE
	}
	_ = unix.Close(fd)
	descriptors.scarce.Store(false)
	return nil
}

// useOrClose checks that a descriptor may be used for a moment, and returns it. If not, it closes
// the descriptor and returns ENFILE.
func useOrClose(fd int) (int, error) {
	if int64(fd) >= descriptors.briefLimit.Load() {
		_ = unix.Close(fd)
		return -1, unix.ENFILE
	}
	return fd, nil
}

// procDir has a descriptor of /proc/self/fd. With it, the file of an O_PATH descriptor can be
// opened or linked without resolving a name of the file again. Prepare opens /proc/self/fd when a
// tree is made, so that procDir is set before descriptors become scarce. A failure to open
// /proc/self/fd is not remembered.
var procDir struct {
	mu sync.RWMutex // guards the field below
	fd int          // 0: not yet open; descriptor 0 is the standard input
}

// openProc opens /proc/self/fd for procFD. Tests replace it.
var openProc = func() (int, error) {
	return unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// Prepare measures the limit of descriptors and opens /proc/self/fd, before the first operation of
// a tree. If /proc/self/fd cannot be opened, the first call that needs it tries again.
func Prepare() {
	measureDescriptors()
	_, _ = procFD()
}

func procFD() (int, error) {
	procDir.mu.RLock()
	fd := procDir.fd
	procDir.mu.RUnlock()
	if fd != 0 {
		return fd, nil
	}
	procDir.mu.Lock()
	defer procDir.mu.Unlock()
	if procDir.fd != 0 {
		return procDir.fd, nil
	}
	var err error
	if err = retry(func() error { fd, err = openProc(); return err }); err != nil {
		return -1, err
	}
	procDir.fd = fd
	return fd, nil
}

// Reopen opens the file of fd once more; fd may be O_PATH. fd was resolved beneath a root, and the
// magic link of fd in /proc leads to the file of fd and nowhere else. Flags that change the source
// are ignored.
func Reopen(fd, flags int) (int, error) {
	flags = flags&^changing | unix.O_NONBLOCK | unix.O_NOCTTY
	proc, err := procFD()
	if err != nil {
		return -1, err
	}
	var out int
	err = retry(func() (err error) {
		out, err = unix.Openat(proc, strconv.Itoa(fd), flags|unix.O_CLOEXEC, 0)
		return err
	})
	return out, err
}

// procPath is the path of fd for calls that take paths only.
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openQuietly is open for a reading that no caller has asked for: for example, a directory is
// read before it is moved. It leaves the access time alone if this process may do that
// (open(2), O_NOATIME: the owner or CAP_FOWNER).
func openQuietly(dirfd int, rel string, flags, resolve uint64) (int, error) {
	fd, err := open(dirfd, rel, flags|unix.O_NOATIME, resolve)
	if err == unix.EPERM { //nolint:errorlint // bare errno
		fd, err = open(dirfd, rel, flags, resolve)
	}
	return fd, err
}

// changing are the flags with which open(2) changes the source.
const changing = unix.O_CREAT | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY

// open is openat2(2) with O_CLOEXEC, and without the flags that change the source. In the place of
// EXDEV, open returns an error of the kind names.Escaped.
func open(dirfd int, path string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags&^changing | unix.O_CLOEXEC, Resolve: resolve}
	for range maxRetries {
		fd, err := unix.Openat2(dirfd, path, &how)
		switch err {
		case unix.EINTR, unix.EAGAIN:
			continue
		case unix.EXDEV:
			// Elements are clean and links are not followed, so only a
			// mount point can lead out.
			return -1, &guard.Error{Kind: names.Escaped}
		}
		if err != nil {
			return -1, err
		}
		return useOrClose(fd)
	}
	return -1, unix.EAGAIN
}
