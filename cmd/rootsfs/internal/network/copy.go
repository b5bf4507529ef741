package network

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// copyBuffers holds buffers of copyBuffer bytes. Nothing waits with one, so there are about as
// many as processors, however many connections there are.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copyBuffer); return &b }}

const copyBuffer = 128 << 10

// copyConn copies until src ends, then ends dst's direction. It takes from src what dst has
// taken: where one of them waits for the other, the bytes stay in the kernel, which bounds
// them. io.Copy would hold two pipes for each connection that waits. Once ended is set, it
// moves nothing more.
func copyConn(dst, src *net.TCPConn, count *atomic.Int64, ended *atomic.Bool) error {
	to, err := dst.SyscallConn()
	if err != nil {
		return err
	}
	from, err := src.SyscallConn()
	if err != nil {
		return err
	}
	for {
		n, err := copyOnce(to, from, ended)
		count.Add(int64(n))
		switch {
		case errors.Is(err, io.EOF):
			_ = dst.CloseWrite() // it fails if dst has gone, which its own direction tells
			return nil
		case errors.Is(err, unix.EAGAIN):
			err = waitWritable(to)
		}
		if err != nil {
			return err
		}
	}
}

// copyOnce waits for bytes and copies those that the other side takes at once. If that is
// none, it returns EAGAIN.
func copyOnce(to, from syscall.RawConn, ended *atomic.Bool) (n int, err error) {
	perr := peek(from, func(fd int, data []byte) bool {
		switch {
		case ended.Load():
			err = net.ErrClosed
			return true
		case len(data) == 0:
			err = io.EOF
			return true
		}
		werr := to.Write(func(fd uintptr) bool {
			n, err = retryInterrupted(func() (int, error) { return unix.Write(int(fd), data) })
			return true
		})
		if n = max(n, 0); werr != nil {
			err = werr
		}
		for rest := n; rest > 0; {
			k, derr := retryInterrupted(func() (int, error) { return discard(fd, data[:rest]) })
			if derr != nil || k <= 0 { // cannot be: the bytes are there
				err = errors.Join(io.ErrUnexpectedEOF, derr)
				break
			}
			rest -= k
		}
		return true
	})
	if perr != nil {
		err = perr
	}
	return n, err
}

// peek waits until look reports that there is enough to see. look gets what the connection
// holds, which stays there; nothing, if the connection has ended.
func peek(from syscall.RawConn, look func(fd int, data []byte) (enough bool)) (err error) {
	rerr := from.Read(func(fd uintptr) bool {
		buf := copyBuffers.Get().(*[]byte)
		defer copyBuffers.Put(buf)
		var n int
		n, err = retryInterrupted(func() (n int, err error) {
			n, _, err = unix.Recvfrom(int(fd), *buf, unix.MSG_PEEK)
			return n, err
		})
		switch {
		case errors.Is(err, unix.EAGAIN):
			err = nil
			return false
		case err != nil:
			return true
		}
		return look(int(fd), (*buf)[:n])
	})
	if rerr != nil {
		return rerr
	}
	return err
}

// discard takes len(seen) bytes, which were seen before, without copying them (tcp(7),
// MSG_TRUNC).
func discard(fd int, seen []byte) (int, error) {
	n, _, err := unix.Recvfrom(fd, seen, unix.MSG_TRUNC)
	return n, err
}

// waitWritable waits until a connection takes bytes or has failed.
func waitWritable(to syscall.RawConn) (err error) {
	werr := to.Write(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		var n int
		n, err = retryInterrupted(func() (int, error) { return unix.Poll(fds, 0) })
		return n > 0 || err != nil
	})
	if werr != nil {
		return werr
	}
	return err
}

// retryInterrupted calls f until no signal interrupts it.
func retryInterrupted(f func() (int, error)) (n int, err error) {
	for {
		if n, err = f(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
