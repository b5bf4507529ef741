package beneath

import (
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// procFD is /proc/self/fd, opened once: through it a descriptor opened with
// O_PATH can be opened for reading, linked or given attributes, without any
// name of the file being looked at again.
var procFD = sync.OnceValues(func() (int, error) {
	return unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
})

// reopen opens what fd (O_PATH) refers to. The descriptor is ours and was
// resolved beneath a root; following the magic link leads to it and nowhere else.
func reopen(fd int, flags int) (int, error) {
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
