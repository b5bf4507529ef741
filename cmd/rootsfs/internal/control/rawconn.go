package control

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// rawConn is one end of a connected unix socket that is read and written by blocking system
// calls (poll(2)). It needs no epoll watch: a user has a limited number of these, which
// programs can use up. Each waiting call takes a thread.
type rawConn struct {
	fd int // does not block
	// slice is how long a call waits before it checks its deadline again. 0: it waits until the
	// socket is ready or its deadline has passed, and a deadline that is set meanwhile applies
	// only to later waits.
	slice time.Duration

	readBy, writeBy atomic.Int64 // deadlines, Unix nanoseconds; 0: none

	mu     sync.Mutex // guards the fields below
	users  int        // calls in progress
	closed bool
}

var _ net.Conn = (*rawConn)(nil)

// abortSlice is the slice of connections on which a new deadline can end a call that waits already.
const abortSlice = 20 * time.Millisecond

// acquire keeps the descriptor open until release.
func (c *rawConn) acquire() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.users++
	return nil
}

func (c *rawConn) release() {
	c.mu.Lock()
	c.users--
	last := c.closed && c.users == 0
	c.mu.Unlock()
	if last {
		_ = unix.Close(c.fd)
	}
}

// Close wakes the calls in progress; the last of them closes the descriptor.
func (c *rawConn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.closed = true
	idle := c.users == 0
	if !idle {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR) // the socket may be shut down already
	}
	c.mu.Unlock()
	if idle {
		_ = unix.Close(c.fd)
	}
	return nil
}

// Read implements net.Conn.
func (c *rawConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := c.transfer(unix.POLLIN, &c.readBy, func() (int, error) { return syscall.Read(c.fd, p) })
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (c *rawConn) Write(p []byte) (done int, err error) {
	for done < len(p) {
		n, err := c.transfer(unix.POLLOUT, &c.writeBy, func() (int, error) { return syscall.Write(c.fd, p[done:]) })
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// transfer makes the call. While the call would block, transfer waits for the event and makes the
// call again.
func (c *rawConn) transfer(event int16, by *atomic.Int64, call func() (int, error)) (int, error) {
	if err := c.acquire(); err != nil {
		return 0, err
	}
	defer c.release()
	for {
		if err := c.expired(by); err != nil {
			return 0, err
		}
		n, err := call()
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EAGAIN):
			return 0, os.NewSyscallError("socket", err)
		}
		if err := c.wait(event, by); err != nil {
			return 0, err
		}
	}
}

// expired returns the error of a call whose connection is closed or whose deadline has passed.
func (c *rawConn) expired(by *atomic.Int64) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	if at := by.Load(); at != 0 && time.Now().UnixNano() >= at {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// wait returns when the event has come, the deadline has passed or a slice has passed.
func (c *rawConn) wait(event int16, by *atomic.Int64) error {
	limit := time.Duration(-1)
	if at := by.Load(); at != 0 {
		limit = max(0, time.Until(time.Unix(0, at)))
	}
	if c.slice > 0 && (limit < 0 || limit > c.slice) {
		limit = c.slice
	}
	ms := -1
	if limit >= 0 {
		ms = int((limit + time.Millisecond - 1) / time.Millisecond)
	}
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: event}}, ms)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("poll", err)
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *rawConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *rawConn) SetReadDeadline(t time.Time) error { return setDeadline(&c.readBy, t) }

// SetWriteDeadline implements net.Conn.
func (c *rawConn) SetWriteDeadline(t time.Time) error { return setDeadline(&c.writeBy, t) }

func setDeadline(by *atomic.Int64, t time.Time) error {
	if t.IsZero() {
		by.Store(0)
		return nil
	}
	by.Store(max(1, t.UnixNano()))
	return nil
}

// CloseWrite ends the direction to the other end.
func (c *rawConn) CloseWrite() error {
	if err := c.acquire(); err != nil {
		return err
	}
	defer c.release()
	return os.NewSyscallError("shutdown", unix.Shutdown(c.fd, unix.SHUT_WR))
}

// LocalAddr implements net.Conn.
func (c *rawConn) LocalAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// RemoteAddr implements net.Conn.
func (c *rawConn) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// connectRaw connects to a socket by its path, within limit.
func connectRaw(path string, limit time.Duration) (*rawConn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	// The kernel waits for room in the queue of the listener, but no longer than the limit.
	within := unix.NsecToTimeval(int64(limit))
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &within)
	for err == nil {
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); !errors.Is(err, unix.EINTR) {
			break
		}
		err = nil
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	return &rawConn{fd: fd}, nil
}
