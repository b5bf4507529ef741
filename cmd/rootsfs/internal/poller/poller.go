// Package poller sets up the network poller of the Go runtime, or lets this program run
// without one if its user has no epoll watch left.
//
// The Go runtime ends a process that cannot have a network poller: its first timer or
// opened file makes an epoll instance with one watch (epoll_ctl(2)). The kernel counts
// watches by user, in all namespaces together (max_user_watches). A confined program that
// uses them up would thereby take away the owner's commands that end access.
//
// # Promises
//
// The initialisation of this package tries to add a few watches. If that works, the runtime makes its
// poller at once. If not, Err says so, and the runtime is made to believe that it has a poller. Files
// are then read by blocking calls; package control speaks to sessions by blocking calls in
// any case.
//
// A process that cannot open a handful of files ends at once and says so.
//
// Go initialises packages in the order of their import paths as far as their own imports
// let it (language specification, "Program initialization"). This package imports little,
// so it comes before every package that opens a file.
//
// # Not promised
//
// Without a poller timers may be late, and the process can start no set-user-id program
// (no_new_privs). The main function refuses commands that need either.
package poller

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// missing is true if this process runs without a poller.
var missing = !makePoller()

// requireFiles ends a process that cannot open as many files as are opened while packages
// are initialised: two for the poller, and a library's pipe. The runtime or the library would
// panic if it could not open its files.
func requireFiles() {
	for range 2 {
		var ends [2]int
		if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
			const text = "rootsfs: this process may open too few files: close those that it was started with, or raise the limit (ulimit -n)\n"
			_, _ = syscall.Write(2, []byte(text))
			syscall.Exit(exitSystem)
		}
		defer syscall.Close(ends[0])
		defer syscall.Close(ends[1])
	}
}

// exitSystem is cli.ExitSystem, which this package cannot import.
const exitSystem = 5

// Err returns why this process runs without a poller, or nil if it has one.
func Err() error {
	if !missing {
		return nil
	}
	return errors.New("programs of yours have used up your epoll watches, and without one this command cannot run; end them (rootsfs status, revoke and unmount work), or raise the limit: sysctl fs.epoll.max_user_watches")
}

// makePoller makes the runtime's poller if there is room for it. Otherwise it makes the
// runtime do without a poller, if it can. It reports false if the runtime now does without.
func makePoller() bool {
	requireFiles()
	if watchesLeft() {
		startPoller()
		return true
	}
	return !withoutPoller()
}

// startPoller makes the runtime create its poller, by opening a file. (A timer would do,
// too, but a thread may then wait for that timer, and without a poller nothing wakes
// the thread for an earlier timer.)
func startPoller() {
	if f, err := os.Open("/"); err == nil {
		_ = f.Close()
	}
}

// marginWatches is how many watches must be left: the runtime's own, and some that
// other processes may take between the check and the start of the poller.
const marginWatches = 8

// watchesLeft reports whether this user can have marginWatches more epoll watches.
func watchesLeft() bool {
	epfd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return true // no descriptors are left, which withoutPoller cannot change
	}
	defer syscall.Close(epfd)
	event, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return true
	}
	// The watches end when the instance, or the watched file, is closed.
	fds := [marginWatches]int{int(event)}
	for i := range fds {
		if i > 0 {
			fd, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, event, syscall.F_DUPFD_CLOEXEC, 0)
			if errno != 0 {
				break
			}
			fds[i] = int(fd)
		}
		defer syscall.Close(fds[i])
		if err := syscall.EpollCtl(epfd, syscall.EPOLL_CTL_ADD, fds[i], &syscall.EpollEvent{Events: syscall.EPOLLIN}); err != nil {
			return false
		}
	}
	return true
}

// withoutPoller makes a filter of system calls (seccomp(2)) answer epoll_ctl in the
// kernel's place: "done" while the runtime makes its poller, and EPERM from then on. The
// kernel also answers EPERM for a regular file. Package os uses blocking calls after this answer.
// withoutPoller reports whether the filters could be installed.
func withoutPoller() bool {
	if !answerEpollCtl(0) {
		return false
	}
	startPoller()
	return answerEpollCtl(syscall.EPERM)
}

const (
	prSetNoNewPrivs   = 38 // PR_SET_NO_NEW_PRIVS of prctl(2)
	setModeFilter     = 1  // SECCOMP_SET_MODE_FILTER
	filterFlagTSync   = 1  // SECCOMP_FILTER_FLAG_TSYNC
	retErrno          = 0x0005_0000
	retAllow          = 0x7fff_0000
	seccompDataNumber = 0 // offset of nr in struct seccomp_data
	sysSeccompAMD64   = 317
	sysSeccompGeneric = 277
	filterSize        = 4 // instructions
)

// answerEpollCtl makes every thread's epoll_ctl answer with errno from now on, and reports
// whether it could. Of several filters with the same kind of answer the newest decides.
func answerEpollCtl(errno syscall.Errno) bool {
	code := [filterSize]syscall.SockFilter{
		{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS, K: seccompDataNumber},
		{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, Jf: 1, K: syscall.SYS_EPOLL_CTL},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: retErrno | uint32(errno)},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: retAllow},
	}
	program := syscall.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	number := uintptr(sysSeccompGeneric)
	if runtime.GOARCH == "amd64" {
		number = sysSeccompAMD64
	}
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); e != 0 {
		return false
	}
	r, _, e := syscall.RawSyscall(number, setModeFilter, filterFlagTSync, uintptr(unsafe.Pointer(&program)))
	return r == 0 && e == 0
}
