// Package janitor is the waiting part of the process that cleans up after a
// killed `rootsfs run`: this program started again as `rootsfs janitor DIR|NAME`,
// with a descriptor of the run (pidfd_open(2)) as its standard input.
//
// # Promises
//
// In such a process the wait happens while packages are still being
// initialised, and whoever finds that there is nothing to clean up ends it there,
// by SIGKILL. What remains to be initialised, which is nine tenths of it and several
// times the processor time of the wait, is only needed to clean up. Go
// initialises packages in the order of their import paths as far as their own
// imports let it (language specification, "Program initialization"), so this
// package comes early as long as it imports no more than it does.
//
// It waits until the run has let go of all it had, its locks too, and not just of
// one descriptor: the kernel closes those of a killed process one after the other.
//
// While a run starts, a process that is no program yet stands in for it (StandIn).
//
// Importing it changes nothing for other command lines.
//
// # Not promised
//
// The cleaning up itself is the command's.
package janitor

import (
	"os"
	"syscall"
	"unsafe"
)

// Name is the command's name.
const Name = "janitor"

// waited: the run has ended.
var waited bool

func init() {
	if len(os.Args) == 3 && os.Args[1] == Name {
		Wait()
	}
}

const (
	prSetDumpable = 4   // PR_SET_DUMPABLE of prctl(2)
	sysPidfdOpen  = 434 // pidfd_open(2), the same number on every architecture
	pollIn        = 1   // POLLIN of poll(2)
)

// Self is a descriptor of this process, for a janitor to wait for its end.
func Self() (*os.File, error) {
	fd, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(syscall.Getpid()), 0, 0)
	if errno != 0 {
		return nil, os.NewSyscallError("pidfd_open", errno)
	}
	return os.NewFile(fd, "this process"), nil
}

// pollFd is struct pollfd of poll(2).
type pollFd struct {
	fd              int32
	events, revents int16
}

// Wait waits for the end of the process that standard input is a descriptor of. In a
// janitor it has happened before main, and returns at once. Where that cannot be waited
// for, it ends this process: what lives must not be cleaned up after.
func Wait() {
	if waited {
		return
	}
	// Not for the command it cleans up after to look into. It can only fail on kernels
	// that know no such attribute.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	for run := (pollFd{events: pollIn}); ; {
		_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&run)), 1, 0, 0, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 || run.revents&pollIn == 0 {
			os.Exit(1) // nobody knows whether the run has ended
		}
		waited = true
		return
	}
}
