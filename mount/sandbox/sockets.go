package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/initproc"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// A socket of the host is granted to the command through a second socket. The init makes the
// second socket inside and passes it to the caller. The caller accepts connections on it and
// copies bytes between them and the host's socket. It reads with read(2), so the kernel drops
// every descriptor that is sent along (unix(7), SCM_RIGHTS), in either direction.

const (
	// maxSocketConns bounds the connections of one granted socket at a time. Each connection
	// counts twice: inside and at the host's socket.
	maxSocketConns = 2 * initproc.SocketBacklog
	// maxSocketName keeps the path inside below the length of sun_path.
	maxSocketName = 64
	// acceptPause is how long the caller waits when it cannot accept a connection.
	acceptPause = 100 * time.Millisecond
)

// SocketPath returns where a granted socket is inside.
func SocketPath(name string) string { return filepath.Join(layout.SocketDir, name) }

// Sockets are the sockets of the host that a command may connect to. Its methods may be
// called concurrently.
type Sockets struct {
	mu       sync.Mutex // guards the fields below, and the grants in list
	list     []*grant
	isPaused bool
}

// Socket is a socket of the host that a command may connect to.
type Socket struct {
	Name, Path string // Path is resolved
}

// grant is a Socket while it is granted.
type grant struct {
	Socket
	pin   *os.File // the socket's inode (O_PATH), while connections are served
	isCut bool
	// listener is the socket inside; nil: there is none yet.
	listener net.Listener
	conns    map[net.Conn]bool
	serving  sync.WaitGroup // all goroutines of the grant
	carrying sync.WaitGroup // the goroutines that carry a connection
}

// Add grants a socket under a name. path is resolved. Add opens the socket now: another socket
// that is later put in its place is not granted.
func (s *Sockets) Add(name, path string) error {
	if name == "" || len(name) > maxSocketName || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return invalid("the socket %s cannot be called %s: choose a name of at most %d bytes without a slash", names.Quote(path), names.Quote(name), maxSocketName)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return invalid("the socket %s cannot be opened (%v): give the path of a socket that a program listens on", names.Quote(path), err)
	}
	pin := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		pin.Close()
		return invalid("%s is not a Unix socket: give the path of a socket that a program listens on", names.Quote(path))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.findLocked(name) != nil {
		pin.Close()
		return invalid("two sockets are called %s: write NAME=PATH to name one of them", names.Quote(name))
	}
	s.list = append(s.list, &grant{Socket: Socket{name, path}, pin: pin, conns: map[net.Conn]bool{}})
	return nil
}

// findLocked returns the grant of a name, nil if there is none or it was cut. The caller holds
// s.mu.
func (s *Sockets) findLocked(name string) *grant {
	for _, g := range s.list {
		if g.Name == name && !g.isCut {
			return g
		}
	}
	return nil
}

// Live returns the sockets that are still granted, in the order in which they were added. A nil
// Sockets has none.
func (s *Sockets) Live() (list []Socket) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.list {
		if !g.isCut {
			list = append(list, g.Socket)
		}
	}
	return list
}

// Cut ends a grant: when it returns, every connection is closed and no other will be accepted.
// It reports whether there was a grant of that name.
func (s *Sockets) Cut(name string) bool {
	s.mu.Lock()
	g := s.findLocked(name)
	if g == nil {
		s.mu.Unlock()
		return false
	}
	g.isCut = true
	if g.listener != nil {
		g.listener.Close()
	}
	for c := range g.conns {
		c.Close()
	}
	s.mu.Unlock()
	g.serving.Wait()
	g.pin.Close()
	return true
}

// Pause closes every connection and refuses new ones until Resume. When it returns, no
// connection carries any more data. A nil Sockets has no connections.
func (s *Sockets) Pause() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.isPaused = true
	for _, g := range s.list {
		for c := range g.conns {
			c.Close()
		}
	}
	s.mu.Unlock()
	for _, g := range s.list { // the list only grows before the command runs
		g.carrying.Wait()
	}
}

// Resume ends a pause.
func (s *Sockets) Resume() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isPaused = false
}

// cutAll ends every grant.
func (s *Sockets) cutAll() {
	for _, g := range s.Live() {
		s.Cut(g.Name)
	}
}

// listen starts to accept connections on a socket inside. It takes ownership of the socket's
// descriptor.
func (s *Sockets) listen(name string, fd int) error {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return failed("listen for connections to the socket %s: %v", names.Quote(name), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.findLocked(name)
	if g == nil {
		l.Close() // the grant was cut before the command was started
		return nil
	}
	g.listener = l
	g.serving.Add(1)
	go func() {
		defer g.serving.Done()
		s.serve(g, l)
	}()
	return nil
}

// serve accepts connections until the socket is cut.
func (s *Sockets) serve(g *grant, l net.Listener) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // descriptors are used up, for instance
			time.Sleep(acceptPause)
			continue
		}
		s.mu.Lock()
		if g.isCut || s.isPaused || len(g.conns) >= maxSocketConns {
			s.mu.Unlock()
			c.Close()
			continue
		}
		g.conns[c] = true
		g.serving.Add(1)
		g.carrying.Add(1)
		s.mu.Unlock()
		go func() {
			defer g.serving.Done()
			defer g.carrying.Done()
			s.carry(g, c)
		}()
	}
}

// carry copies bytes between a connection and a new one to the host's socket.
func (s *Sockets) carry(g *grant, inside net.Conn) {
	defer s.drop(g, inside)
	host, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d", g.pin.Fd()))
	if err != nil {
		return
	}
	defer s.drop(g, host)
	s.mu.Lock()
	if g.isCut || s.isPaused {
		s.mu.Unlock()
		return
	}
	g.conns[host] = true
	s.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { copyBytes(host, inside) })
	both.Go(func() { copyBytes(inside, host) })
	both.Wait()
}

// copyBytes copies what one connection receives into another. It hides the connections' methods
// ReadFrom and WriteTo: with them io.Copy would let the kernel move the data, and descriptors
// with it.
func copyBytes(to, from net.Conn) {
	_, err := io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	if err != nil {
		to.Close()
		from.Close()
		return
	}
	_ = to.(*net.UnixConn).CloseWrite() // the connection may be closed
}

func (s *Sockets) drop(g *grant, c net.Conn) {
	s.mu.Lock()
	delete(g.conns, c)
	s.mu.Unlock()
	c.Close()
}

// names returns the names of the sockets that the init has to make inside.
func (s *Sockets) names() (list []string) {
	for _, g := range s.Live() {
		list = append(list, g.Name)
	}
	return list
}

// hole describes the access through granted sockets; "" if none is granted.
func (s *Sockets) hole() string {
	var paths []string
	for _, g := range s.Live() {
		paths = append(paths, names.Quote(g.Path))
	}
	if len(paths) == 0 {
		return ""
	}
	slices.Sort(paths)
	return "It can have whatever listens on " + strings.Join(paths, ", ") + " do what that does for you: these sockets of the host's were granted to it."
}
