package network

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/guard/names"
)

// dnsTTL is how many seconds programs may keep an address. Addresses stay the same for the
// whole run; whether a connection is permitted is decided when it is made.
const dnsTTL = 60

// dnsIdle is how long a DNS connection may wait for its next question, and maxDNSConns how
// many there may be at once.
const (
	dnsIdle     = 10 * time.Second
	maxDNSConns = 16
)

// serveDatagrams answers the questions that come to conn until it is closed. One goroutine
// is enough, as no answer waits for anybody, and a flood of questions takes no more memory.
func (g *Gate) serveDatagrams(conn *net.UDPConn) {
	query, oob := make([]byte, 4096), make([]byte, 128)
	for {
		n, oobn, _, from, err := conn.ReadMsgUDPAddrPort(query, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // ICMP errors of earlier answers
		}
		if reply := g.answer(query[:n]); reply != nil {
			_, _, _ = conn.WriteMsgUDPAddrPort(reply, sourceOf(oob[:oobn]), from) // who asks again is answered again
		}
	}
}

// sourceOf returns the control message that makes an answer come from the address that was
// asked. Resolvers drop answers from others.
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

// serveDNS answers the questions of a DNS connection, each after its length (RFC 1035, 4.2.2).
func (g *Gate) serveDNS(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	query := make([]byte, 4096)
	for {
		_ = conn.SetDeadline(time.Now().Add(dnsIdle))
		if _, err := io.ReadFull(conn, query[:2]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(query))
		if n > len(query) {
			return
		}
		if _, err := io.ReadFull(conn, query[:n]); err != nil {
			return
		}
		reply := g.answer(query[:n])
		if reply == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// answer returns the answer to one question, or nil if the query is none. A permitted name
// has an A record and no other; any other name does not exist.
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
		return nil // a name that cannot be packed again is nobody's
	}
	return b
}

// lookup answers a question. No answer asks another resolver.
func (g *Gate) lookup(q dnsmessage.Question) (dnsmessage.ResourceBody, dnsmessage.RCode) {
	name := canonical(q.Name.String())
	if q.Class != dnsmessage.ClassINET {
		return nil, dnsmessage.RCodeNotImplemented
	}
	switch {
	case name == "localhost", strings.HasSuffix(name, ".localhost"):
		switch q.Type {
		case dnsmessage.TypeA:
			return &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}, dnsmessage.RCodeSuccess
		case dnsmessage.TypeAAAA:
			return &dnsmessage.AAAAResource{AAAA: netip.IPv6Loopback().As16()}, dnsmessage.RCodeSuccess
		}
		return nil, dnsmessage.RCodeSuccess
	case q.Type == dnsmessage.TypePTR:
		return g.lookupAddr(name)
	case !isName(name):
		if g.mayResolve(name) { // below a wildcard
			g.refuseName(names.Quote(name), errNotName)
		}
		return nil, dnsmessage.RCodeNameError // others are not recorded: they may be anything
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

// lookupAddr answers which name an address of ours has, for programs that check it
// (Kerberos, Java). name is as in 5.0.18.198.in-addr.arpa.
func (g *Gate) lookupAddr(name string) (dnsmessage.ResourceBody, dnsmessage.RCode) {
	digits, ok := strings.CutSuffix(name, ".in-addr.arpa")
	parts := strings.Split(digits, ".")
	if !ok || len(parts) != 4 {
		return nil, dnsmessage.RCodeNameError
	}
	addr, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
	if err != nil {
		return nil, dnsmessage.RCodeNameError
	}
	host, ok := g.names.name(addr)
	if !ok {
		return nil, dnsmessage.RCodeNameError
	}
	ptr, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return nil, dnsmessage.RCodeNameError
	}
	return &dnsmessage.PTRResource{PTR: ptr}, dnsmessage.RCodeSuccess
}
