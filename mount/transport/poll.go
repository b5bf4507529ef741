package transport

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// AnswerPoll makes the kernel send POLL for a file once, and returns after the answer ENOSYS.
// From then on the kernel sends no POLL for this mount. top is the mount's top directory.
//
// Go's runtime adds every file that it opens to an epoll set, in a system call that occupies
// one of the runtime's processors. If a process opened a file of its own mount this way, and
// the kernel sent POLL, the runtime could stop before a reader answers.
//
// A process that is killed while it waits for its own answer ends when the connection ends,
// and the connection ends with its last descriptor. So the waiting thread has its own table
// of descriptors, without those of the connection and of its rings.
func (c *Conn) AnswerPoll(top int) (err error) {
	pollMu.Lock()
	defer pollMu.Unlock()
	onNewThread(func() {
		if err = os.NewSyscallError("unshare", c.unshareDescriptors()); err != nil {
			return
		}
		defer unix.Close(top)
		fd, e := unix.Openat(top, pollName, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if e != nil {
			err = os.NewSyscallError("openat", e)
			return
		}
		// The result does not matter: the kernel treats ENOSYS as "always ready".
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLPRI | unix.POLLOUT}}, 0)
		_ = unix.Close(fd)
	})
	return err
}

// pollMu lets only one thread at a time have its own table of descriptors. Two such threads
// would keep each other's connection open.
var pollMu sync.Mutex

// unshareDescriptors gives the calling thread its own table of descriptors. In this table it
// closes the descriptors of the connection and of its rings.
func (c *Conn) unshareDescriptors() error {
	c.mu.Lock() // no ring is created meanwhile
	defer c.mu.Unlock()
	// unshare(2) is for Linux before 5.9; filters of system calls often refuse it.
	if unix.CloseRange(uint(c.fd), uint(c.fd), unix.CLOSE_RANGE_UNSHARE) != nil {
		if err := unix.Unshare(unix.CLONE_FILES); err != nil {
			return err
		}
		_ = unix.Close(c.fd)
	}
	for _, w := range c.workers {
		if w.ring != nil {
			_ = unix.Close(w.ring.fd)
		}
	}
	return nil
}

// onNewThread calls f on a thread that ends afterwards. It never uses the process's first
// thread: Go's runtime would not end that thread, and /proc/self shows its descriptors.
func onNewThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f()
			return
		}
		onNewThread(f)
		runtime.UnlockOSThread()
	}()
	<-done
}
