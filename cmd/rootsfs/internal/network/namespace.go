package network

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// This file configures a namespace: the interface lo with its addresses, the routes, and a table of
// nf_tables.

var errAck = errors.New("the kernel sent no answer")

// loopbackIndex is the index of the interface lo, the first of each namespace.
const loopbackIndex = 1

// addRoutes brings lo up and makes every address local.
func (s *Sockets) addRoutes() error {
	if s.Route == nil {
		return errors.ErrUnsupported
	}
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
	// Without an explicit source a connection's source would be its destination.
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

// divert adds this table, in the notation of nft. Without Stream6 it leaves out the rule for IPv6.
//
//	table inet rootsfs {
//		chain divert {
//			type filter hook prerouting priority mangle; policy accept;
//			meta nfproto ipv4 meta l4proto tcp ip daddr & 255.0.0.0 != 127.0.0.0 ip daddr != 198.18.0.2 tproxy ip to :1
//			meta nfproto ipv6 meta l4proto tcp ip6 daddr != ::1 ip6 daddr != fd72:6f6f:7473::2 tproxy ip6 to :1
//		}
//	}
func (s *Sockets) divert() error {
	if s.Netfilter == nil {
		return errors.ErrUnsupported
	}
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
