package transport

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// AnswerPoll has the kernel ask for POLL of a file once, and returns when it was answered
// with ENOSYS. From then on the kernel asks nobody. top is the mount's top directory.
//
// Go's runtime adds every file that it opens to an epoll set, in a call that keeps one of
// its processors. If a process opens a file of its own mount so, and the kernel asked it
// for POLL then, the runtime could stand still before anybody answers.
//
// A process that is killed while it waits for its own answer ends when the connection does,
// and the connection ends with the last descriptor of it. So the thread that waits has
// descriptors of its own, without those of the connection and of its rings.
func (c *Conn) AnswerPoll(top int) (err error) {
	polling.Lock()
	defer polling.Unlock()
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
		// What it returns does not matter: the kernel takes ENOSYS for "always ready".
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLPRI | unix.POLLOUT}}, 0)
		_ = unix.Close(fd)
	})
	return err
}

// polling is held by the one thread that has descriptors of its own. Two would keep each
// other's connection.
var polling sync.Mutex

// unshareDescriptors gives the calling thread descriptors of its own and closes those of
// the connection and of its rings.
func (c *Conn) unshareDescriptors() error {
	c.mu.Lock() // no ring is made meanwhile
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

// onNewThread calls f on a thread that ends afterwards. The process's first thread, which
// Go's runtime would keep, is never the one: its descriptors are those of /proc/self.
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
