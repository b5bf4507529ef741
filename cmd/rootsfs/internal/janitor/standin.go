package janitor

import (
	"errors"
	"syscall"
	"unsafe"

	"github.com/rootsfs/rootsfs/mount/sandbox/callproc"
)

// StandIn is a process that stands in for a janitor: it waits as one does, and becomes
// one when there is something to clean up (package callproc).
//
// It shares the memory of this process, which is why it is not for long: what ends one
// for want of memory ends the other, and by its command line it is this process.
type StandIn struct {
	Pid int

	// What the process reads when this one has ended.
	calls      []callproc.Call
	mask       uint64
	word       [1]byte
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
// standard input. It has none of this process's other descriptors, and blocks all
// signals, of which none is to end it before it has cleaned up; so do the programs that
// the janitor starts. When Begin returns, it waits.
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
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		return nil, err
	}
	defer syscall.Close(pipe[0])
	copy(s.name[:], "rootsfs-janitor")
	s.root[0] = '/'
	at := func(p unsafe.Pointer) uintptr { return uintptr(p) } // of s, which does not move
	s.calls = []callproc.Call{
		{Nr: syscall.SYS_DUP3, Args: [5]uintptr{uintptr(process), 0}},
		{Nr: syscall.SYS_DUP3, Args: [5]uintptr{uintptr(pipe[1]), 1}},
		{Nr: sysCloseRange, Args: [5]uintptr{2, ^uintptr(0)}},
		{Nr: syscall.SYS_SETSID},
		{Nr: syscall.SYS_CHDIR, Args: [5]uintptr{at(unsafe.Pointer(&s.root))}},
		{Nr: syscall.SYS_PRCTL, Args: [5]uintptr{prSetName, at(unsafe.Pointer(&s.name))}},
		{Nr: syscall.SYS_WRITE, Args: [5]uintptr{1, at(unsafe.Pointer(&s.word)), uintptr(len(s.word))}},
		{Nr: syscall.SYS_CLOSE, Args: [5]uintptr{1}},
		{Nr: syscall.SYS_PPOLL, Args: [5]uintptr{at(unsafe.Pointer(&s.wait)), 1}},
		{Nr: syscall.SYS_EXECVE, Args: [5]uintptr{at(unsafe.Pointer(s.path)), at(unsafe.Pointer(&s.argv[0])), at(unsafe.Pointer(&s.envv[0]))}},
	}
	s.Pid, err = callproc.Start(0, s.calls, &s.mask)
	_ = syscall.Close(pipe[1])
	if err != nil {
		return nil, err
	}
	if !said(pipe[0]) {
		s.End()
		return nil, errors.New("a call was refused")
	}
	return s, nil
}

// said reports whether a byte comes from a pipe before its end.
func said(pipe int) bool {
	var b [1]byte
	for {
		n, err := syscall.Read(pipe, b[:])
		if err != syscall.EINTR {
			return n == 1
		}
	}
}

// End ends it, and waits until it has.
func (s *StandIn) End() {
	s.Kill()
	s.Wait()
}

// Kill ends it. It must not have been waited for.
func (s *StandIn) Kill() { _ = syscall.Kill(s.Pid, syscall.SIGKILL) }

// Wait waits until it has ended, once.
func (s *StandIn) Wait() {
	for {
		if _, err := syscall.Wait4(s.Pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}
