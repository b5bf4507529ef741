package mount

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/callproc"
)

// pollName is the file that go-fuse shows in a mount's top directory for its own use:
// it answers POLL of it with ENOSYS (go-fuse, fuse/poll.go).
const pollName = ".go-fuse-epoll-hack"

// pollCalls are the system calls of answerPoll's process, and what they point to. The
// process reads them where they are.
type pollCalls struct {
	calls []callproc.Call
	name  [len(pollName) + 1]byte
	fds   [1]unix.PollFd
	zero  unix.Timespec
	mask  uint64
}

// answerPoll has the kernel ask a detached mount for POLL once, and returns when it was
// answered with ENOSYS. From then on the kernel asks nobody.
//
// Go's runtime adds every file that it opens to an epoll set, in a call that keeps one
// of its processors. If the kernel asked this process for POLL then, and the runtime
// stood still meanwhile, nobody could answer.
//
// A process of its own opens the file, because a process that is killed while it waits
// for its own answer cannot end (see Options.Outside). That process has none of our
// descriptors but the mount's: if we are killed, the connection ends, and so does its
// wait.
//
// With rings it gets a copy of this process's memory, without them: a ring that is mapped
// outlives us, and then nobody ends that process's wait, nor anybody's.
func (m *Mount) answerPoll(mnt int) error {
	p := &pollCalls{}
	copy(p.name[:], pollName)
	opened := 0 // the lowest number is free when all others are closed
	if mnt == 0 {
		opened = 1
	}
	p.fds[0] = unix.PollFd{Fd: int32(opened), Events: unix.POLLIN | unix.POLLPRI | unix.POLLOUT}
	const last = ^uint32(0)
	if mnt > 0 {
		p.calls = append(p.calls, callproc.Call{Nr: unix.SYS_CLOSE_RANGE, Args: [5]uintptr{0, uintptr(mnt - 1)}})
	}
	p.calls = append(p.calls,
		callproc.Call{Nr: unix.SYS_CLOSE_RANGE, Args: [5]uintptr{uintptr(mnt + 1), uintptr(last)}},
		callproc.Call{Nr: unix.SYS_OPENAT, Args: [5]uintptr{uintptr(mnt), uintptr(unsafe.Pointer(&p.name)), unix.O_RDONLY | unix.O_CLOEXEC}},
		callproc.Call{Nr: unix.SYS_PPOLL, Args: [5]uintptr{uintptr(unsafe.Pointer(&p.fds)), 1, uintptr(unsafe.Pointer(&p.zero)), 0, 8}},
		callproc.Call{Nr: unix.SYS_EXIT_GROUP},
	)
	start := callproc.Start
	if m.transport == TransportIOUring {
		start = callproc.StartCopy
	}
	pid, err := start(0, p.calls, &p.mask)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil // nor is there a sandbox, whose tree a detached mount is
	}
	if err != nil {
		return fmt.Errorf("start a process that polls: %w", err)
	}
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	runtime.KeepAlive(p)
	if err != nil {
		return fmt.Errorf("wait for the process that polls: %w", err)
	}
	if status != 0 {
		return fmt.Errorf("the process that polls ended with %#x", int(status))
	}
	return nil
}

// pollHere has the kernel ask a mount for POLL once, as answerPoll does, from this process:
// by plain system calls, which give Go's processor away. The answer to the poll itself
// matters to nobody.
func pollHere(point string) error {
	fd, err := unix.Open(point+"/"+pollName, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLPRI | unix.POLLOUT}}, 0)
	return unix.Close(fd)
}
