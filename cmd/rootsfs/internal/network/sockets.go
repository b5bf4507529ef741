package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sockets are sockets that the init of a confined program has opened in its network namespace,
// and has neither bound nor connected. A socket stays in the namespace that it was opened in. The
// kernel checks the rights of the process that uses the socket. The gate has all rights, because it
// made the user namespace that owns the network namespace. Route, Netfilter, Stream6 and Diag are nil
// if the kernel lacks the address family or the protocol.
type Sockets struct {
	Route     *os.File // AF_NETLINK, SOCK_RAW, NETLINK_ROUTE
	Netfilter *os.File // AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER
	Datagram  *os.File // AF_INET, SOCK_DGRAM
	Stream4   *os.File // AF_INET, SOCK_STREAM
	Stream6   *os.File // AF_INET6, SOCK_STREAM
	Diag      *os.File // AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG; nil: questions and records do not name the program
	// Listeners are AF_INET, SOCK_STREAM, for single ports; the function Listeners returns how
	// many. The gate keeps the sockets that it does not need yet, for rules that are added later.
	Listeners []*os.File
}

// spareListeners is how many ports can be listened on beyond those of the first rules.
const spareListeners = 16

// Listeners returns how many Sockets.Listeners a gate with these rules wants.
func Listeners(list []Rule) int { return len(list) + len(defaultPorts) + spareListeners }

// Reach says which of the program's connections the kernel hands to the gate. The kernel refuses
// the others, without a record.
type Reach string

// The reaches. They depend on the features that the kernel lacks.
const (
	EveryPort Reach = "every address and port"
	// SomePorts is the reach with routes but without nf_tables. A rule without a port then stands for
	// defaultPorts.
	SomePorts Reach = "the ports of the rules"
	// NamedHosts is the reach without routes, with or without nf_tables. A rule without a port then
	// stands for defaultPorts, too.
	NamedHosts Reach = "approved names, at the ports of the rules"
)

// defaultPorts are the ports for rules without a port, if the gate can only listen on single
// ports.
var defaultPorts = []uint16{443, 80, 22}

// gatePort is the port to which the kernel hands connections, on 127.0.0.1 and ::. A program's
// own connection to it needs a rule like any other.
const gatePort = 1

// inside holds the sockets that the gate serves in a namespace.
type inside struct {
	reach     Reach
	datagrams *net.UDPConn
	listeners []*listener
	spare     []*os.File
	bound     map[netip.AddrPort]bool // the addresses of bound spare sockets
	owners    *diag                   // nil: processes cannot be found
}

// Close closes everything.
func (in *inside) Close() {
	if in.datagrams != nil {
		in.datagrams.Close()
	}
	for _, l := range in.listeners {
		l.Close()
	}
	for _, f := range in.spare {
		f.Close()
	}
	in.owners.close()
}

// prepare makes every address local to the namespace, and listens, as far as the kernel allows
// that. It owns the sockets, even after an error.
func (s *Sockets) prepare() (in *inside, err error) {
	made := &inside{reach: EveryPort, spare: s.Listeners, bound: map[netip.AddrPort]bool{}, owners: newDiag(s.Diag)}
	in = made
	defer func() {
		for _, f := range []*os.File{s.Route, s.Netfilter, s.Datagram, s.Stream4, s.Stream6} {
			if f != nil {
				f.Close()
			}
		}
		if err != nil {
			made.Close()
		}
	}()
	if in.datagrams, err = s.listenDatagrams(); err != nil {
		return nil, fmt.Errorf("listen for DNS: %w", err)
	}
	switch err := s.addRoutes(); {
	case isMissing(err):
		in.reach = NamedHosts
		return in, nil
	case err != nil:
		return nil, fmt.Errorf("make addresses local: %w", err)
	}
	switch err := s.divert(); {
	case isMissing(err):
		in.reach = SomePorts
		return in, nil
	case err != nil:
		return nil, fmt.Errorf("have connections handed over by nf_tables: %w", err)
	}
	if err := in.listen(s.Stream4, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), gatePort), true); err != nil {
		return nil, err
	}
	if s.Stream6 == nil {
		return in, nil
	}
	return in, in.listen(s.Stream6, netip.AddrPortFrom(netip.IPv6Unspecified(), gatePort), true)
}

// isMissing reports whether an error means that the kernel lacks a feature, or that a confinement of
// this process forbids the feature.
func isMissing(err error) bool {
	for _, e := range []error{errors.ErrUnsupported, unix.ENOENT, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EPERM, unix.EACCES} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// listenFor opens the listeners that rules need and that are not open yet. If the reach is EveryPort,
// only a rule for a port of one IPv4 loopback address needs a listener. Otherwise each port needs
// one. listenFor returns the new listeners.
func (in *inside) listenFor(list []Rule) (added []*listener, err error) {
	for _, at := range in.needed(list) {
		if in.bound[at] || in.bound[netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())] {
			continue
		}
		if len(in.spare) == 0 {
			return added, fmt.Errorf("listen on %s: a run takes %d such ports beyond those of its start; start it again with the rule", at, spareListeners)
		}
		f := in.spare[0]
		in.spare = in.spare[1:]
		err := in.listen(f, at, false)
		f.Close()
		if err != nil {
			return added, err
		}
		in.bound[at] = true
		added = append(added, in.listeners[len(in.listeners)-1])
	}
	return added, nil
}

// needed returns the addresses that listenFor listens on.
func (in *inside) needed(list []Rule) (at []netip.AddrPort) {
	for _, r := range list {
		switch {
		case in.reach != EveryPort:
			ports := defaultPorts
			if r.Port != 0 {
				ports = []uint16{r.Port}
			}
			for _, p := range ports {
				at = append(at, netip.AddrPortFrom(netip.IPv4Unspecified(), p))
			}
		case r.Port != 0 && r.Prefix.IsSingleIP() && r.Prefix.Addr().Is4() && r.Prefix.Addr().IsLoopback():
			at = append(at, netip.AddrPortFrom(r.Prefix.Addr(), r.Port))
		}
	}
	return at
}

// listen makes a socket listen at an address, and adds the listener to in.listeners. A transparent
// socket also takes connections to other addresses. The caller closes f.
func (in *inside) listen(f *os.File, at netip.AddrPort, transparent bool) error {
	fd := int(f.Fd())
	set := func(level, option int) error { return unix.SetsockoptInt(fd, level, option, 1) }
	var addr unix.Sockaddr
	var err error
	if at.Addr().Is4() {
		addr = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
		if transparent {
			err = set(unix.SOL_IP, unix.IP_TRANSPARENT)
		}
	} else {
		addr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
		err = set(unix.SOL_IPV6, unix.IPV6_V6ONLY)
		if err == nil && transparent {
			err = set(unix.SOL_IPV6, unix.IPV6_TRANSPARENT)
		}
	}
	if err == nil {
		err = unix.Bind(fd, addr)
	}
	if err == nil {
		err = unix.Listen(fd, 4096)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", at, err)
	}
	l, err := newListener(f)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", at, err)
	}
	in.listeners = append(in.listeners, l)
	return nil
}

// dnsBuffer is the size of the receive buffer for DNS, in bytes. It holds some 5,000 waiting
// questions. With the usual size, a program that asks for a few hundred names at once has to ask
// again, seconds later, or gives up.
const dnsBuffer = 2 << 20

// listenDatagrams returns a socket that receives DNS questions to any IPv4 address.
func (s *Sockets) listenDatagrams() (*net.UDPConn, error) {
	fd := int(s.Datagram.Fd())
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_PKTINFO, 1); err != nil {
		return nil, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, dnsBuffer) // works without it, too
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 53}); err != nil {
		return nil, err
	}
	c, err := net.FilePacketConn(s.Datagram)
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// ResolvConf returns the content of /etc/resolv.conf inside. Programs use the second server if
// they cannot reach the first one, for want of routes.
func ResolvConf() []byte {
	return []byte("nameserver " + resolverAddr.String() + "\nnameserver 127.0.0.1\noptions timeout:2 attempts:2\n")
}

// Settle waits, for at most settleTime, until the gate has decided about each connection that a
// program made before its end. The kernel accepts a connection before the gate does, so a program
// can have ended before the refusal of its connection is on record.
func (g *Gate) Settle() {
	for end := time.Now().Add(settleTime); g.hasQueued() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

const settleTime = time.Second

// hasQueued reports whether a connection waits until the gate accepts it or decides about it.
func (g *Gate) hasQueued() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside == nil || g.closed {
		return false
	}
	// Look at the backlog first: acceptOne counts a connection in deciding before it takes the
	// connection from the kernel.
	return slices.ContainsFunc(g.inside.listeners, (*listener).hasBacklog) || g.deciding.Load() > 0
}

// listener is a listening socket. A net.Listener alone cannot report a waiting connection without
// accepting it.
type listener struct {
	net.Listener
	socket *os.File // another descriptor of the same socket
	raw    syscall.RawConn
}

// newListener returns a listener for a socket. The caller still has to close f.
func newListener(f *os.File) (*listener, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	inner, err := net.FileListener(f) // makes the socket non-blocking, so that the runtime can wait for it
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	l := &listener{Listener: inner, socket: os.NewFile(uintptr(fd), "a listener")}
	if l.raw, err = l.socket.SyscallConn(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *listener) Close() error { return errors.Join(l.Listener.Close(), l.socket.Close()) }

// await waits until the kernel has accepted a connection that l has not, or l is closed.
func (l *listener) await() error { return l.raw.Read(hasConn) }

// hasBacklog reports whether the kernel has accepted a connection that l has not.
func (l *listener) hasBacklog() (is bool) {
	_ = l.raw.Control(func(fd uintptr) { is = hasConn(fd) }) // a closed listener has none
	return is
}

// hasConn reports whether Accept on a listener's descriptor would return at once, with a
// connection or an error.
func hasConn(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n > 0 || err != nil
}
