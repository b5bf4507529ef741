package beneath

import (
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// The descriptor of /proc/self/fd, opened once: through it a descriptor opened
// with O_PATH can be opened for reading, linked or given attributes, without any
// name of the file being looked at again. It is opened when a tree is made, so
// that it is there when descriptors have become scarce; a failure to open it is
// not remembered.
var procDir struct {
	mu sync.RWMutex // guards the field below
	fd int          // 0: not yet open; the standard input is never this
}

// openProc is what procFD opens it with; tests replace it.
var openProc = func() (int, error) {
	return unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// Prepare opens what every tree needs before the first operation does. What
// fails here is tried again by whoever needs it.
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

// reopen opens what fd (O_PATH) refers to. The descriptor is ours and was
// resolved beneath a root; following the magic link leads to it and nowhere else.
// Flags that change the source are ignored.
func reopen(fd int, flags int) (int, error) {
	flags &^= changing
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
