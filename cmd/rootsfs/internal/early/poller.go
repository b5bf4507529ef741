package early

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/janitor"
)

// The Go runtime ends a process that cannot have a network poller: its first timer or
// opened file makes an epoll instance with one watch (epoll_ctl(2)), and the kernel
// counts watches by user, in all namespaces together (max_user_watches). Whoever
// uses them up would thereby take the owner's commands away. The commands that end
// access therefore ask first whether a watch can be had. If not, withoutPoller lets the
// runtime believe that it has one: files are then read by blocking calls, and package
// control speaks to sessions by blocking calls in any case. Every other command says why
// it cannot run.
//
// Packages that are initialised later open files, so the question is asked here.

// ending are the commands that must work without a poller: those that end or show
// access, and need no other program for it.
var ending = [...]string{"revoke", "status", "unmount", "umount", "version", "--version", "roots"}

// cleaning are the commands that clean up after a process that was killed. They need
// set-user-id programs, so they wait for a poller first: what has used up the watches
// is often a program that ends with the one that was killed.
var cleaning = [...]string{janitor.Name, janitor.SupervisorName}

// patience is how many times they ask, a twentieth of a second apart.
const patience = 100

func init() {
	if len(os.Args) < 2 {
		return
	}
	for _, name := range cleaning {
		if os.Args[1] == name { // whose wait is over: package janitor comes first
			for n := 0; n < patience && !watchesLeft(); n++ {
				_ = syscall.Nanosleep(&syscall.Timespec{Nsec: 50_000_000}, nil)
			}
			ensurePoller()
			return
		}
	}
	for _, name := range ending {
		if os.Args[1] == name {
			ensurePoller()
			return
		}
	}
	if !watchesLeft() {
		_, _ = syscall.Write(2, []byte(noWatches)) // to whoever is there to read it
		syscall.Exit(systemCannot)
	}
}

// noWatches is what every other command says instead of beginning what the runtime would
// end, and systemCannot its exit code (exitSystem in package main).
const (
	noWatches    = "rootsfs: programs of yours have used up your epoll watches, and without one this command cannot run; end them (rootsfs status, revoke and unmount work), or raise the limit: sysctl fs.epoll.max_user_watches\n"
	systemCannot = 5
)

// ensurePoller makes the runtime's poller while there is room for it, and does
// without one where there is none.
func ensurePoller() {
	if !watchesLeft() {
		withoutPoller()
		return
	}
	startPoller()
}

// startPoller makes the runtime create its poller, by opening a file. (A timer would do,
// too, but a thread may then wait for that timer, and without a poller nothing wakes it
// for an earlier one.)
func startPoller() {
	if f, err := os.Open("/"); err == nil {
		_ = f.Close()
	}
}

// marginWatches is how many watches must be left: the runtime's own, and some that
// others may take between the question and its answer.
const marginWatches = 8

// watchesLeft reports whether this user can have marginWatches more epoll watches.
func watchesLeft() bool {
	epfd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return true // for want of descriptors, which withoutPoller would not cure
	}
	defer syscall.Close(epfd)
	event, _, errno := syscall.RawSyscall(syscall.SYS_EVENTFD2, 0, syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return true
	}
	// The instance's watches end with it and with what is watched.
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

// withoutPoller has a filter of system calls (seccomp(2)) answer epoll_ctl in the
// kernel's place: "done" while the runtime makes its poller, and EPERM from then on,
// which is what the kernel says of a regular file and makes package os use blocking
// calls. A timer that is due before the one that is waited for comes late then, so these
// commands do not rely on timers. Where filters cannot be installed nothing is changed. A
// process that has one can start no set-user-id program (no_new_privs).
func withoutPoller() {
	if !answerEpollCtl(0) {
		return
	}
	startPoller()
	answerEpollCtl(syscall.EPERM)
}

const (
	prSetNoNewPrivs    = 38 // PR_SET_NO_NEW_PRIVS of prctl(2)
	setModeFilter      = 1  // SECCOMP_SET_MODE_FILTER
	filterFlagTSync    = 1  // SECCOMP_FILTER_FLAG_TSYNC
	retErrno           = 0x0005_0000
	retAllow           = 0x7fff_0000
	seccompDataNumber  = 0 // offset of nr in struct seccomp_data
	sysSeccompAMD64    = 317
	sysSeccompGeneric  = 277
	instructionsOfThis = 4
)

// answerEpollCtl has every thread's epoll_ctl answer with errno from now on. The
// newest of several filters has the last word among answers of the same kind.
func answerEpollCtl(errno syscall.Errno) bool {
	code := [instructionsOfThis]syscall.SockFilter{
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
