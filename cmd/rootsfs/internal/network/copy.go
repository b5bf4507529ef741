package network

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// copyBuffers holds buffers of copyBuffer bytes. No goroutine holds one while it waits, so
// there are about as many as processors, however many connections there are.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copyBuffer); return &b }}

const copyBuffer = 128 << 10

// copy copies until src ends, then closes dst for writing. It takes bytes from src only when
// dst has taken them: while src waits for dst, the bytes stay in the kernel, which
// bounds them. io.Copy would hold two pipes for each waiting connection. Once the connection
// has ended, copy moves nothing more.
func (c *conn) copy(dst, src *net.TCPConn, k credit) error {
	to, err := dst.SyscallConn()
	if err != nil {
		return err
	}
	from, err := src.SyscallConn()
	if err != nil {
		return err
	}
	for {
		waiting, err := k.copyOnce(to, from)
		switch {
		case errors.Is(err, io.EOF):
			_ = dst.CloseWrite() // if this fails, dst is closed, and the direction from dst ends, too
			return nil
		case errors.Is(err, unix.EAGAIN):
			err = waitWritable(to)
		case errors.Is(err, errPace):
			k.wait(waiting)
			err = nil
		case errors.Is(err, errClaimed):
			time.Sleep(time.Millisecond)
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

// copyOnce waits for bytes and copies the bytes that the other side takes at once. If the other
// side takes none, copyOnce returns EAGAIN. waiting is how many bytes there were to copy.
func (k *credit) copyOnce(to, from syscall.RawConn) (waiting int, err error) {
	perr := peek(from, func(fd int, data []byte) bool {
		waiting = len(data)
		var granted, n int
		switch {
		case k.c.ctx.Err() != nil:
			err = net.ErrClosed
		case waiting == 0:
			err = io.EOF
		default:
			granted, err = k.grant(waiting)
		}
		if err != nil {
			return true
		}
		werr := to.Write(func(fd uintptr) bool {
			n, err = retryInterrupted(func() (int, error) { return unix.Write(int(fd), data[:granted]) })
			return true
		})
		if n = max(n, 0); werr != nil {
			err = werr
		}
		k.settle(granted, n)
		for rest := n; rest > 0; {
			taken, derr := retryInterrupted(func() (int, error) { return discard(fd, data[:rest]) })
			if derr != nil || taken <= 0 { // cannot happen: peek has shown the bytes
				err = errors.Join(io.ErrUnexpectedEOF, derr)
				break
			}
			rest -= taken
		}
		return true
	})
	if perr != nil {
		err = perr
	}
	return waiting, err
}

// peek calls look with the waiting bytes of the connection until look has seen enough. The
// bytes stay in the connection. If the connection has ended, look gets none.
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

// discard removes up to len(seen) bytes, which peek has shown, from the connection without copying
// them (tcp(7), MSG_TRUNC). It returns how many it has removed.
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
