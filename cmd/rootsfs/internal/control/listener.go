package control

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard/names"
)

// The control socket must answer even if a program has used up epoll watches or descriptors. Its
// listener waits in accept4(2) on a thread of its own, so the listener needs no epoll watch. The
// listener survives every error. It keeps descriptors in reserve for the time when no other is
// left. Connections for which no epoll watch is left are served by blocking calls (rawConn), a few
// at a time.

const (
	// maxConns bounds the connections that are served at a time. A quarter of the process's limit
	// of descriptors bounds them, too. The streams of `serve` and MCP clients count, too.
	maxConns = 16 << 10
	// maxRawConns bounds the connections that are served by blocking calls. Each takes two
	// waiting threads.
	maxRawConns = 16
	// reserveFDs is how many descriptors are kept for the owner's next connections.
	reserveFDs = 8
	backlog    = 128
)

// The shortest and the longest wait between attempts to accept, while accepting fails.
const (
	leastBackoff = 5 * time.Millisecond
	mostBackoff  = 250 * time.Millisecond
)

// listener is the net.Listener of a control socket. It lets in only connections of the
// session's user and of root. The modes of the socket and its directory allow no others. The
// listener checks the peer's uid in the kernel's record as well, in case the modes were
// changed.
type listener struct {
	fd   int
	uid  int
	log  *slog.Logger
	pace *rate.Limiter // of lines in the log
	most int           // connections at a time

	mu      sync.Mutex // guards the fields below
	inUse   bool       // Accept was called, and will close the socket
	closed  bool
	reserve []int      // descriptors to give up for a connection
	all     *list.List // of *ownerConn, the oldest first
	raw     int        // how many of them are served by blocking calls
}

// ownerConn is one accepted connection.
type ownerConn struct {
	net.Conn
	l       *listener
	element *list.Element
	raw     bool
	// hasAsked: the whole header of a request has come.
	hasAsked bool
}

// listen opens the socket of a session's directory.
func (d *Dir) listen(log *slog.Logger) (*listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the control socket in %s: %w", names.Quote(d.path), err)
	}
	// The path may be longer than a socket address can be (107 bytes). The path of the
	// descriptor is short, and no link can be put in its way.
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: d.fdPath(socketFile)})
	if err == nil {
		// Set the mode here and not by the umask: the whole process shares the umask, and may create
		// files for the mount meanwhile. Until here the directory's mode keeps others out.
		err = unix.Fchmodat(d.fd, socketFile, 0o600, 0)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("open the control socket in %s: %w", names.Quote(d.path), err)
	}
	l := &listener{fd: fd, uid: os.Geteuid(), log: log, pace: rate.NewLimiter(0.1, 3), most: maxConns, all: list.New()}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		l.most = max(2*maxRawConns, int(min(limit.Cur/4, maxConns)))
	}
	l.refillLocked() // without the lock: no other goroutine has l yet
	return l, nil
}

// Accept implements net.Listener. Its error is always net.ErrClosed. Only one goroutine may call
// Accept.
func (l *listener) Accept() (net.Conn, error) {
	if !l.begin() {
		return nil, net.ErrClosed
	}
	// On a thread of its own, the goroutine returns from accept4 without waiting for a thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for wait := leastBackoff; ; {
		fd, err := l.accept()
		switch {
		case l.finish(fd):
			return nil, net.ErrClosed
		case err == nil:
			wait = leastBackoff
			if c := l.admit(fd); c != nil {
				return c, nil
			}
			continue
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		}
		if l.pending() {
			if l.pace.Allow() {
				l.log.Error("the control socket cannot accept a connection; trying again", "error", err)
			}
			l.makeRoom(err)
		}
		time.Sleep(wait)
		wait = min(2*wait, mostBackoff)
	}
}

// begin marks the socket as in use. It reports false if the listener is closed.
func (l *listener) begin() bool {
	if l.finish(-1) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inUse = !l.closed
	return l.inUse
}

// finish reports whether the listener was closed. If so, it closes the socket, if the socket is in
// use, and fd. fd is the descriptor that was accepted last, or -1 if there is none.
func (l *listener) finish(fd int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		return false
	}
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	if l.inUse {
		l.inUse = false
		_ = unix.Close(l.fd)
	}
	return true
}

// accept accepts a connection. As long as no descriptor is left, it closes one of the reserve and
// tries again. accept4 takes the free number before it waits for a connection, so no other file
// gets that number meanwhile.
func (l *listener) accept() (int, error) {
	fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	for (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) && l.giveUpOne() {
		fd, _, err = unix.Accept4(l.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	}
	return fd, err
}

// pending reports whether a connection waits to be accepted. accept4 cannot tell: without a
// free descriptor it fails at once in any case.
func (l *listener) pending() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}, 0)
	return n > 0 || err != nil
}

// makeRoom closes a connection for a waiting one, if err means that descriptors are missing.
func (l *listener) makeRoom(err error) {
	if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {
		return
	}
	l.mu.Lock()
	victim := l.victimLocked(nil, false)
	l.mu.Unlock()
	if victim != nil {
		_ = victim.Close()
	}
}

// giveUpOne closes a descriptor of the reserve, if there is one.
func (l *listener) giveUpOne() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.reserve)
	if n == 0 {
		return false
	}
	_ = unix.Close(l.reserve[n-1])
	l.reserve = l.reserve[:n-1]
	return true
}

// refillLocked fills the reserve as far as there are descriptors. Each is an open file of its
// own, because the limit of the whole machine counts open files.
func (l *listener) refillLocked() {
	for !l.closed && len(l.reserve) < reserveFDs {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return
		}
		l.reserve = append(l.reserve, fd)
	}
}

// admit makes a connection of an accepted descriptor, or refuses it and returns nil.
func (l *listener) admit(fd int) net.Conn {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(cred.Uid) != l.uid && cred.Uid != 0 {
		uid := -1
		if err == nil {
			uid = int(cred.Uid)
		}
		l.log.Warn("a foreign user was turned away from the control socket", "uid", uid, "error", err)
		_ = unix.Close(fd)
		return nil
	}
	c := &ownerConn{l: l}
	if polled := pollConn(fd); polled != nil {
		c.Conn = polled
	} else {
		c.Conn, c.raw = &rawConn{fd: fd, slice: abortSlice}, true
	}
	if victim := l.add(c); victim != nil {
		_ = victim.Close()
	}
	return c
}

// pollConn hands a descriptor to the runtime's poller. It returns nil if no epoll watch or no
// descriptor is left; then the caller keeps fd.
func pollConn(fd int) net.Conn {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(dup), "control connection")
	conn, err := net.FileConn(f) // FileConn duplicates the descriptor
	_ = f.Close()
	if err != nil {
		return nil
	}
	_ = unix.Close(fd)
	return conn
}

// add counts a connection. If there are too many, it returns the connection to close for c.
func (l *listener) add(c *ownerConn) *ownerConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.element = l.all.PushBack(c)
	if c.raw {
		l.raw++
	}
	if l.raw > maxRawConns {
		return l.victimLocked(c, true)
	}
	if l.all.Len() > l.most {
		return l.victimLocked(c, false)
	}
	return nil
}

// victimLocked chooses the connection to close for a new one: the oldest that has sent no request,
// or else the oldest. newest is the new connection, which it does not choose, or nil if the new
// connection is not accepted yet. If raw is set, it chooses only among the connections that are
// served by blocking calls. The chosen connection does not count from then on, because closing it
// may take a moment.
func (l *listener) victimLocked(newest *ownerConn, raw bool) *ownerConn {
	var oldest *ownerConn
	for e := l.all.Front(); e != nil; e = e.Next() {
		c := e.Value.(*ownerConn)
		if c == newest || raw && !c.raw {
			continue
		}
		if !c.hasAsked {
			oldest = c
			break
		}
		if oldest == nil {
			oldest = c
		}
	}
	if oldest != nil {
		l.forgetLocked(oldest)
	}
	return oldest
}

// forgetLocked takes a connection out of the count, once.
func (l *listener) forgetLocked(c *ownerConn) {
	if c.element == nil {
		return
	}
	l.all.Remove(c.element)
	c.element = nil
	if c.raw {
		l.raw--
	}
}

// Close implements net.Conn.
func (c *ownerConn) Close() error {
	err := c.Conn.Close()
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.forgetLocked(c)
	c.l.refillLocked()
	return err
}

// CloseWrite ends the direction to the client.
func (c *ownerConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// connKey is the key of the connection in a request's context.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// noteRequest notes that the whole header of a request has come over its connection.
func noteRequest(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*ownerConn); ok {
		c.l.mu.Lock()
		c.hasAsked = true
		c.l.mu.Unlock()
	}
}

// Close implements net.Listener. Shutting the socket down wakes the thread that waits in
// accept4.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	for _, fd := range l.reserve {
		_ = unix.Close(fd)
	}
	l.reserve = nil
	if !l.inUse {
		return os.NewSyscallError("close", unix.Close(l.fd))
	}
	return os.NewSyscallError("shutdown", unix.Shutdown(l.fd, unix.SHUT_RDWR))
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }
