//go:build amd64 || arm64

package janitor

import (
	"runtime"
	"syscall"
	"unsafe"
)

// call is a system call: its number, and its arguments.
type call struct {
	nr   uintptr
	args [5]uintptr
}

// begin starts a process that shares this one's memory and makes the calls from first
// on, one after the other, until one of them ends it or starts a program. It uses no
// stack and knows nothing of Go. The caller has all signals blocked, which the new
// process then has for good.
func begin(first *call) (pid int)

// StandIn is a process that stands in for a janitor: it waits as one does, and becomes
// one when there is something to clean up. It costs a fiftieth of a program that is
// started.
//
// It shares the memory of this process, which is why it is not for long: what ends one
// for want of memory ends the other, and by its command line it is this process.
type StandIn struct {
	Pid int

	// What the process reads when this one has ended.
	calls      [8]call
	wait       pollFd
	name, root [16]byte
	path       *byte
	argv, envv []*byte
}

const (
	sysCloseRange = 436 // close_range(2), the same number on every architecture
	prSetName     = 15  // PR_SET_NAME of prctl(2)
)

// Begin starts one. process is a descriptor of this process (pidfd_open(2)), by whose
// end it executes path with the command line and environment given and process as its
// standard input. It has none of this process's other descriptors.
func Begin(process int, path string, argv, env []string) (*StandIn, error) {
	s := &StandIn{wait: pollFd{fd: 0, events: pollIn}}
	var err error
	if s.path, err = syscall.BytePtrFromString(path); err != nil {
		return nil, err
	}
	if s.argv, err = syscall.SlicePtrFromStrings(argv); err != nil {
		return nil, err
	}
	if s.envv, err = syscall.SlicePtrFromStrings(env); err != nil {
		return nil, err
	}
	copy(s.name[:], "rootsfs-janitor")
	s.root[0] = '/'
	p := func(p unsafe.Pointer) uintptr { return uintptr(p) } // into s, which does not move
	s.calls = [...]call{
		{syscall.SYS_DUP3, [5]uintptr{uintptr(process), 0}},
		{sysCloseRange, [5]uintptr{1, ^uintptr(0)}},
		{syscall.SYS_SETSID, [5]uintptr{}},
		{syscall.SYS_CHDIR, [5]uintptr{p(unsafe.Pointer(&s.root))}},
		{syscall.SYS_PRCTL, [5]uintptr{prSetName, p(unsafe.Pointer(&s.name))}},
		{syscall.SYS_PPOLL, [5]uintptr{p(unsafe.Pointer(&s.wait)), 1}},
		{syscall.SYS_EXECVE, [5]uintptr{p(unsafe.Pointer(s.path)), p(unsafe.Pointer(&s.argv[0])), p(unsafe.Pointer(&s.envv[0]))}},
		{syscall.SYS_EXIT_GROUP, [5]uintptr{1}},
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Descriptors that are being made are not to be inherited (syscall.ForkLock).
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	all, was := ^uint64(0), uint64(0)
	sigmask(&all, &was)
	s.Pid = begin(&s.calls[0])
	sigmask(&was, nil)
	if s.Pid < 0 {
		return nil, syscall.Errno(-s.Pid)
	}
	return s, nil
}

// sigmask sets the signals that the calling thread blocks (rt_sigprocmask(2)).
func sigmask(set, was *uint64) {
	const setMask = 2
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, setMask, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(was)), unsafe.Sizeof(*set), 0, 0)
}

// End ends it, unless it has become a janitor, and waits until it has.
func (s *StandIn) End() {
	_ = syscall.Kill(s.Pid, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(s.Pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}
