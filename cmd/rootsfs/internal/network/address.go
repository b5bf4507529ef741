package network

import (
	"net"
	"net/netip"
)

// closedPrefixes has the addresses to which a name may not lead: addresses of this machine, of its
// link, of private networks, of carriers' networks and of metadata services. It also has addresses
// for multicast, addresses without a public owner, and addresses of tunnels, whose other end is
// unknown. A rule for such an address permits the address nevertheless.
var closedPrefixes = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
	"168.63.129.16/32", // Azure's host, which answers for its metadata
	"::/127", "64:ff9b:1::/48", "100::/64", "2001::/32", "2001:db8::/32", "3fff::/20", "5f00::/16",
	"fc00::/7", "fe80::/9", "ff00::/8",
)

// embeddingPrefixes has the IPv6 prefixes whose addresses lead to an embedded IPv4 address, each
// with the index of the byte at which the IPv4 address begins. The IPv4 address is judged in place
// of the IPv6 address.
var embeddingPrefixes = map[netip.Prefix]int{
	netip.MustParsePrefix("::/96"):           12,
	netip.MustParsePrefix("::ffff:0:0:0/96"): 12,
	netip.MustParsePrefix("64:ff9b::/96"):    12,
	netip.MustParsePrefix("2002::/16"):       2,
}

func prefixes(list ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(list))
	for i, s := range list {
		ps[i] = netip.MustParsePrefix(s)
	}
	return ps
}

// isClosed reports whether a name may not lead to addr.
func isClosed(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, p := range closedPrefixes {
		if p.Contains(addr) {
			return true
		}
	}
	for p, at := range embeddingPrefixes {
		if p.Contains(addr) {
			b := addr.As16()
			return isClosed(netip.AddrFrom4([4]byte(b[at : at+4])))
		}
	}
	return false
}

// isOwn reports whether addr belongs to this machine: the kernel then chooses addr itself as the
// source address of a datagram to addr. isOwn sends nothing.
func isOwn(addr netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 9)))
	if err != nil {
		return false
	}
	defer c.Close()
	local := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
	return local.Unmap().WithZone("") == addr.Unmap().WithZone("")
}
