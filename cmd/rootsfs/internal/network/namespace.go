package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Sockets were opened by the init of a confined program in its network namespace, without
// being bound or connected. A socket stays in the namespace that it was opened in, and the
// kernel asks the process that uses it for rights: the gate has them all, since it made the
// user namespace that owns the network namespace.
type Sockets struct {
	Route     *os.File // AF_NETLINK, SOCK_RAW, NETLINK_ROUTE
	Netfilter *os.File // AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER
	Datagram  *os.File // AF_INET, SOCK_DGRAM
	Stream4   *os.File // AF_INET, SOCK_STREAM
	Stream6   *os.File // AF_INET6, SOCK_STREAM
	// Loopback are AF_INET, SOCK_STREAM: one for each rule that names a loopback address and
	// a port.
	Loopback []*os.File
}

// inside is what the gate serves in a namespace.
type inside struct {
	datagrams *net.UDPConn
	listeners []net.Listener
}

// Close closes everything.
func (in *inside) Close() {
	if in.datagrams != nil {
		in.datagrams.Close()
	}
	for _, l := range in.listeners {
		l.Close()
	}
}

// gatePort is where the kernel hands connections to, on 127.0.0.1 and ::. A program that
// connects to it is asked for a rule like everybody.
const gatePort = 1

// loopbackRules returns the rules that lead to services of this machine's loopback interface.
func loopbackRules(list []Rule) []Rule {
	var found []Rule
	for _, r := range list {
		if r.Prefix.IsSingleIP() && r.Prefix.Addr().Is4() && r.Prefix.Addr().IsLoopback() && r.Port != 0 {
			found = append(found, r)
		}
	}
	return found
}

// LoopbackSockets returns how many Sockets.Loopback the rules need.
func LoopbackSockets(list []Rule) int { return len(loopbackRules(list)) }

// Close closes the sockets.
func (s *Sockets) Close() {
	for _, f := range append([]*os.File{s.Route, s.Netfilter, s.Datagram, s.Stream4, s.Stream6}, s.Loopback...) {
		if f != nil {
			f.Close()
		}
	}
}

// prepare makes every address local to the namespace, and listens. The sockets are closed
// when it returns; what it returns has copies.
func (s *Sockets) prepare(loopback []Rule) (_ *inside, err error) {
	defer s.Close()
	in := &inside{}
	defer func() {
		if err != nil {
			in.Close()
		}
	}()
	if err := s.addRoutes(); err != nil {
		return nil, fmt.Errorf("make addresses local: %w", err)
	}
	if in.datagrams, err = s.listenDatagrams(); err != nil {
		return nil, fmt.Errorf("listen for DNS: %w", err)
	}
	to4 := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), gatePort)
	to6 := netip.AddrPortFrom(netip.IPv6Unspecified(), gatePort)
	if err := in.listen(s.Stream4, to4, true); err != nil {
		return nil, err
	}
	if s.Stream6 != nil {
		if err := in.listen(s.Stream6, to6, true); err != nil {
			return nil, err
		}
	}
	if len(s.Loopback) < len(loopback) {
		return nil, fmt.Errorf("%d rules name loopback addresses, and there are sockets for %d", len(loopback), len(s.Loopback))
	}
	for i, r := range loopback {
		if err := in.listen(s.Loopback[i], netip.AddrPortFrom(r.Prefix.Addr(), r.Port), false); err != nil {
			return nil, err
		}
	}
	if err := s.divert(); err != nil {
		return nil, fmt.Errorf("have connections handed over by nf_tables: %w", err)
	}
	return in, nil
}

// listen binds a socket. A transparent one takes connections to addresses other than its own.
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
	l, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", at, err)
	}
	in.listeners = append(in.listeners, l)
	return nil
}

// listenDatagrams takes DNS questions to any address.
func (s *Sockets) listenDatagrams() (*net.UDPConn, error) {
	fd := int(s.Datagram.Fd())
	if err := unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_PKTINFO, 1); err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 53}); err != nil {
		return nil, err
	}
	c, err := net.FilePacketConn(s.Datagram)
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// ResolvConf is what /etc/resolv.conf holds inside.
func ResolvConf() []byte {
	return []byte("nameserver " + resolverAddr.String() + "\noptions timeout:2 attempts:2\n")
}

var errAck = errors.New("the kernel sent no answer")

// loopbackIndex is the index of the interface lo, the first of each namespace.
const loopbackIndex = 1

// addRoutes brings lo up and makes every address local.
func (s *Sockets) addRoutes() error {
	own4, own6 := ownAddr.As4(), ownAddr6.As16()
	up := request{kind: unix.RTM_NEWLINK, body: ifInfo(unix.AF_UNSPEC, loopbackIndex, unix.IFF_UP)}
	if err := s.route(up); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	addr4 := request{kind: unix.RTM_NEWADDR, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
		body: ifAddr(unix.AF_INET, 32, 0, unix.RT_SCOPE_HOST), attrs: join(attr(unix.IFA_LOCAL, own4[:]), attr(unix.IFA_ADDRESS, own4[:]))}
	if err := s.route(addr4); err != nil {
		return fmt.Errorf("add %s: %w", ownAddr, err)
	}
	// Without a source of its own a connection's source would be its destination.
	route4 := request{kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
		body: routeMsg(unix.AF_INET), attrs: join(attr(unix.RTA_OIF, native32(loopbackIndex)), attr(unix.RTA_PREFSRC, own4[:]))}
	if err := s.route(route4); err != nil {
		return fmt.Errorf("route IPv4: %w", err)
	}
	if s.Stream6 == nil {
		return nil
	}
	addr6 := request{kind: unix.RTM_NEWADDR, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
		body: ifAddr(unix.AF_INET6, 128, unix.IFA_F_NODAD, unix.RT_SCOPE_HOST), attrs: attr(unix.IFA_ADDRESS, own6[:])}
	if err := s.route(addr6); err != nil {
		return fmt.Errorf("add %s: %w", ownAddr6, err)
	}
	route6 := request{kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
		body: routeMsg(unix.AF_INET6), attrs: attr(unix.RTA_OIF, native32(loopbackIndex))}
	if err := s.route(route6); err != nil {
		return fmt.Errorf("route IPv6: %w", err)
	}
	return nil
}

func (s *Sockets) route(r request) error { return exchange(int(s.Route.Fd()), r) }

// divert adds, as nft shows it:
//
//	table inet rootsfs {
//		chain divert {
//			type filter hook prerouting priority mangle; policy accept;
//			meta nfproto ipv4 meta l4proto tcp ip daddr & 255.0.0.0 != 127.0.0.0 ip daddr != 198.18.0.2 tproxy ip to :1
//			meta nfproto ipv6 meta l4proto tcp ip6 daddr != ::1 ip6 daddr != fd72:6f6f:7473::2 tproxy ip6 to :1
//		}
//	}
func (s *Sockets) divert() error {
	const table, chain = "rootsfs", "divert"
	own4, own6, loop6 := ownAddr.As4(), ownAddr6.As16(), netip.IPv6Loopback().As16()
	hook := join(attr(unix.NFTA_HOOK_HOOKNUM, big32(unix.NF_INET_PRE_ROUTING)), attr(unix.NFTA_HOOK_PRIORITY, big32(priorityMangle)))
	batch := []request{
		nftRequest(unix.NFT_MSG_NEWTABLE, attr(unix.NFTA_TABLE_NAME, text(table))),
		nftRequest(unix.NFT_MSG_NEWCHAIN, join(
			attr(unix.NFTA_CHAIN_TABLE, text(table)), attr(unix.NFTA_CHAIN_NAME, text(chain)),
			nested(unix.NFTA_CHAIN_HOOK, hook), attr(unix.NFTA_CHAIN_TYPE, text("filter")))),
	}
	ip4 := join(onProtocol(unix.NFPROTO_IPV4),
		load(16, 4), mask([]byte{255, 0, 0, 0}), compare(unix.NFT_CMP_NEQ, []byte{127, 0, 0, 0}),
		load(16, 4), compare(unix.NFT_CMP_NEQ, own4[:]), tproxy(unix.NFPROTO_IPV4))
	batch = append(batch, nftRule(table, chain, ip4))
	if s.Stream6 != nil {
		ip6 := join(onProtocol(unix.NFPROTO_IPV6),
			load(24, 16), compare(unix.NFT_CMP_NEQ, loop6[:]),
			load(24, 16), compare(unix.NFT_CMP_NEQ, own6[:]), tproxy(unix.NFPROTO_IPV6))
		batch = append(batch, nftRule(table, chain, ip6))
	}
	return exchangeBatch(int(s.Netfilter.Fd()), batch)
}
