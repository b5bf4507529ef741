// Package janitor is the waiting part of the process that cleans up after a
// killed `rootsfs run`: this program started again as `rootsfs janitor DIR`,
// with the end of a pipe as its standard input.
//
// # Promises
//
// In such a process the wait happens while packages are still being
// initialised, and a process that was told that everything is in order ends
// there. What remains to be initialised, which is nine tenths of it and several
// times the processor time of the wait, is only needed to clean up. Go
// initialises packages in the order of their import paths as far as their own
// imports let it (language specification, "Program initialization"), so this
// package comes early as long as it imports no more than it does.
//
// Importing it changes nothing for other command lines.
//
// # Not promised
//
// The cleaning up itself is the command's.
package janitor

import (
	"os"
	"strconv"
	"syscall"
)

const (
	// Name is the command's name.
	Name = "janitor"
	// OfVar is the variable that tells it the pid of who has started it.
	OfVar = "ROOTSFS_JANITOR_OF"
	// Done is what the janitor is told when there is nothing to clean up.
	Done = "done\n"
)

var (
	// waited: the pipe has ended, and nobody said Done.
	waited bool
	// parent is a descriptor of the process that started this one; -1: none.
	parent = -1
)

func init() {
	if len(os.Args) == 3 && os.Args[1] == Name {
		Wait()
	}
}

const (
	prSetDumpable = 4   // PR_SET_DUMPABLE of prctl(2)
	sysPidfdOpen  = 434 // pidfd_open(2), the same number on every architecture
)

// Parent is a descriptor of the process that started the janitor (pidfd_open(2)), by
// which its end can be waited for; -1 if there is none. The pipe ends earlier: while
// the kernel closes one descriptor of a killed process after the other, among them
// those that are its locks.
func Parent() int { return parent }

// meet fills in parent. One that is not this process's parent any more has ended,
// and with it its descriptors.
func meet() {
	pid := syscall.Getppid()
	fd, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(pid), 0, 0)
	if errno != 0 {
		return // an older kernel, or it has ended
	}
	if of, _ := syscall.Getenv(OfVar); of != strconv.Itoa(pid) || syscall.Getppid() != pid {
		_ = syscall.Close(int(fd))
		return
	}
	parent = int(fd)
}

// Wait waits for the end of standard input and ends the process if Done came
// before. In a janitor it has happened before main, and returns at once.
func Wait() {
	if waited {
		return
	}
	// Not for the command it cleans up after to look into, or to take the pipe
	// from. It can only fail on kernels that know no such attribute.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	meet()
	said := make([]byte, 0, len(Done))
	for len(said) < cap(said) {
		n, err := syscall.Read(0, said[len(said):cap(said)])
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 {
			break
		}
		said = said[:len(said)+n]
		if string(said) == Done {
			os.Exit(0)
		}
	}
	waited = true
}
