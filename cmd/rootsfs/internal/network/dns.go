package network

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// dnsTTL is how many seconds programs may keep an address. Addresses stay the same for the
// whole run; whether a connection is permitted is decided when it is made.
const dnsTTL = 60

// serveDatagrams answers the questions that come to conn until conn is closed. One goroutine
// is enough, because no answer waits for another peer. So a flood of questions takes no more
// memory.
func (g *Gate) serveDatagrams(conn *net.UDPConn) {
	query, oob := make([]byte, 4096), make([]byte, 128)
	for {
		n, oobn, _, from, err := conn.ReadMsgUDPAddrPort(query, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about an earlier answer
		}
		if reply := g.answer(query[:n]); reply != nil {
			_, _, _ = conn.WriteMsgUDPAddrPort(reply, sourceOf(oob[:oobn]), from) // after an error the program asks again
		}
	}
}

// sourceOf returns the control message that makes an answer come from the address that was
// asked. Resolvers drop answers from other addresses.
func sourceOf(oob []byte) []byte {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range msgs {
		// struct in_pktinfo: interface, ipi_spec_dst, ipi_addr (ip(7)).
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo {
			info := &unix.Inet4Pktinfo{}
			copy(info.Spec_dst[:], m.Data[8:12])
			return unix.PktInfo4(info)
		}
	}
	return nil
}

// answer returns the answer to a query. It returns nil if the query's header is malformed, if the query
// is itself a response, or if the question cannot be repeated. A malformed question gets the answer
// FORMERR. A name that mayResolve permits has an A record and no other, localhost also has an AAAA
// record, and any other name does not exist.
func (g *Gate) answer(query []byte) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil || head.Response {
		return nil
	}
	reply := dnsmessage.Header{
		ID: head.ID, Response: true, OpCode: head.OpCode, RecursionDesired: head.RecursionDesired, RecursionAvailable: true,
	}
	q, err := p.Question()
	switch {
	case err != nil:
		reply.RCode = dnsmessage.RCodeFormatError
		return buildReply(reply, nil, nil)
	case head.OpCode != 0:
		reply.RCode = dnsmessage.RCodeNotImplemented
		return buildReply(reply, nil, nil)
	}
	var record dnsmessage.ResourceBody
	record, reply.RCode = g.lookup(q)
	return buildReply(reply, &q, record)
}

// buildReply packs an answer; the question is repeated as it came, since resolvers compare
// the case of its letters.
func buildReply(head dnsmessage.Header, q *dnsmessage.Question, record dnsmessage.ResourceBody) []byte {
	m := dnsmessage.Message{Header: head}
	if q != nil {
		m.Questions = []dnsmessage.Question{*q}
		if record != nil {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: dnsTTL}, Body: record}}
		}
	}
	b, err := m.Pack()
	if err != nil {
		return nil // a name that cannot be packed again belongs to no host
	}
	return b
}

// lookup answers a question. It asks no other resolver.
func (g *Gate) lookup(q dnsmessage.Question) (dnsmessage.ResourceBody, dnsmessage.RCode) {
	name := canonical(q.Name.String())
	if q.Class != dnsmessage.ClassINET {
		return nil, dnsmessage.RCodeNotImplemented
	}
	switch {
	case isLocalhost(name):
		switch q.Type {
		case dnsmessage.TypeA:
			return &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}, dnsmessage.RCodeSuccess
		case dnsmessage.TypeAAAA:
			return &dnsmessage.AAAAResource{AAAA: netip.IPv6Loopback().As16()}, dnsmessage.RCodeSuccess
		}
		return nil, dnsmessage.RCodeSuccess
	case !isName(name):
		if g.mayResolve(name) { // a wildcard permits it, or every name may resolve
			g.refuseName(names.Quote(name), errNotName)
		}
		return nil, dnsmessage.RCodeNameError // other names are not recorded: they may be anything
	case !g.mayResolve(name):
		g.refuseName(name, ErrNoRule)
		return nil, dnsmessage.RCodeNameError
	}
	if q.Type != dnsmessage.TypeA {
		return nil, dnsmessage.RCodeSuccess // the name exists, without such records
	}
	addr, err := g.names.address(name)
	if err != nil {
		// Not logged: the program could write as many lines as it likes to a terminal.
		g.refuseName(name, err)
		return nil, dnsmessage.RCodeServerFailure
	}
	return &dnsmessage.AResource{A: addr.As4()}, dnsmessage.RCodeSuccess
}
