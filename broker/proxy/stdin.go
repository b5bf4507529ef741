package proxy

import (
	"os"

	"golang.org/x/sys/unix"
)

// Stdin returns the process's standard input for Options.Host. If the input can be made
// non-blocking, Close ends a Read, and a waiting Read costs no thread. A Read of os.Stdin holds a
// thread, which the runtime checks every few microseconds (measured: half of the proxy's
// processor time).
//
// Non-blocking is a property of the open file, not of the descriptor, and other processes
// may hold that file. So a pipe or a terminal is opened once more. A socket cannot be
// reopened: Stdin makes a socket non-blocking, unless the same socket is the standard output
// or error, too. A regular file stays as it is, because reopening it would lose its position.
func Stdin() *os.File {
	const fd = 0
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return os.Stdin
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO, unix.S_IFCHR:
		reopened, err := unix.Open("/proc/self/fd/0", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(reopened), os.Stdin.Name())
		}
	case unix.S_IFSOCK:
		if !isSameFile(&st, 1) && !isSameFile(&st, 2) && unix.SetNonblock(fd, true) == nil {
			return os.NewFile(fd, os.Stdin.Name())
		}
	}
	return os.Stdin
}

// isSameFile reports whether the descriptor fd refers to the file that st describes.
func isSameFile(st *unix.Stat_t, fd int) bool {
	var other unix.Stat_t
	return unix.Fstat(fd, &other) == nil && other.Dev == st.Dev && other.Ino == st.Ino
}
