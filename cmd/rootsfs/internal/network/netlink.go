package network

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// These are the messages of netlink(7), rtnetlink(7) and nf_tables
// (linux/netfilter/nf_tables.h) that the gate needs. Libraries open their own sockets, but the gate
// must use the sockets that it was given.

// request is one message that the kernel acknowledges.
type request struct {
	kind  uint16
	flags uint16 // beyond NLM_F_REQUEST and NLM_F_ACK
	body  []byte // the fixed part
	attrs []byte
}

// attr returns an attribute, padded to four bytes.
func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// nested returns an attribute that holds attributes.
func nested(kind uint16, attrs []byte) []byte { return attr(kind|unix.NLA_F_NESTED, attrs) }

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func native32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }
func big32(n uint32) []byte    { return binary.BigEndian.AppendUint32(nil, n) }
func text(s string) []byte     { return append([]byte(s), 0) }

// ifInfo returns a struct ifinfomsg.
func ifInfo(family byte, index, flags uint32) []byte {
	return join([]byte{family, 0, 0, 0}, native32(index), native32(flags), native32(flags))
}

// ifAddr returns a struct ifaddrmsg for the interface lo.
func ifAddr(family, bits, flags, scope byte) []byte {
	return join([]byte{family, bits, flags, scope}, native32(loopbackIndex))
}

// routeMsg returns a struct rtmsg for a route that makes every address local to the namespace.
func routeMsg(family byte) []byte {
	return join([]byte{family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL}, native32(0))
}

// Constants for the requests to nf_tables. x/sys/unix lacks the first three.
const (
	priorityMangle         = 0xffffff6a // -150
	nftaTproxyFamily       = 1
	nftaTproxyRegPort      = 3
	nftRegister            = unix.NFT_REG_1
	ipProtocolTCP     byte = unix.IPPROTO_TCP
)

func nftRequest(kind uint16, attrs []byte) request {
	r := request{kind: unix.NFNL_SUBSYS_NFTABLES<<8 | kind, body: []byte{unix.NFPROTO_INET, 0, 0, 0}, attrs: attrs}
	r.flags = unix.NLM_F_CREATE | unix.NLM_F_APPEND
	return r
}

func nftRule(table, chain string, expressions []byte) request {
	return nftRequest(unix.NFT_MSG_NEWRULE, join(
		attr(unix.NFTA_RULE_TABLE, text(table)), attr(unix.NFTA_RULE_CHAIN, text(chain)),
		nested(unix.NFTA_RULE_EXPRESSIONS, expressions)))
}

// expression returns one step of a rule of nf_tables.
func expression(name string, data []byte) []byte {
	return nested(unix.NFTA_LIST_ELEM, join(attr(unix.NFTA_EXPR_NAME, text(name)), nested(unix.NFTA_EXPR_DATA, data)))
}

// onProtocol returns the steps that end a rule of nf_tables for every packet except TCP over family.
func onProtocol(family byte) []byte {
	meta := func(key uint32) []byte {
		return expression("meta", join(attr(unix.NFTA_META_DREG, big32(nftRegister)), attr(unix.NFTA_META_KEY, big32(key))))
	}
	return join(meta(unix.NFT_META_NFPROTO), compare(unix.NFT_CMP_EQ, []byte{family}),
		meta(unix.NFT_META_L4PROTO), compare(unix.NFT_CMP_EQ, []byte{ipProtocolTCP}))
}

// load returns the step that reads size bytes at offset of the network header into nftRegister.
func load(offset, size uint32) []byte {
	return expression("payload", join(
		attr(unix.NFTA_PAYLOAD_DREG, big32(nftRegister)), attr(unix.NFTA_PAYLOAD_BASE, big32(unix.NFT_PAYLOAD_NETWORK_HEADER)),
		attr(unix.NFTA_PAYLOAD_OFFSET, big32(offset)), attr(unix.NFTA_PAYLOAD_LEN, big32(size))))
}

func mask(bits []byte) []byte {
	value := func(b []byte) []byte { return attr(unix.NFTA_DATA_VALUE, b) }
	return expression("bitwise", join(
		attr(unix.NFTA_BITWISE_SREG, big32(nftRegister)), attr(unix.NFTA_BITWISE_DREG, big32(nftRegister)),
		attr(unix.NFTA_BITWISE_LEN, big32(uint32(len(bits)))),
		nested(unix.NFTA_BITWISE_MASK, value(bits)), nested(unix.NFTA_BITWISE_XOR, value(make([]byte, len(bits))))))
}

func compare(op uint32, with []byte) []byte {
	return expression("cmp", join(
		attr(unix.NFTA_CMP_SREG, big32(nftRegister)), attr(unix.NFTA_CMP_OP, big32(op)),
		nested(unix.NFTA_CMP_DATA, attr(unix.NFTA_DATA_VALUE, with))))
}

// tproxy returns the steps that hand the connection to the listener at gatePort.
func tproxy(family uint32) []byte {
	port := binary.BigEndian.AppendUint16(nil, gatePort)
	return join(
		expression("immediate", join(attr(unix.NFTA_IMMEDIATE_DREG, big32(nftRegister)),
			nested(unix.NFTA_IMMEDIATE_DATA, attr(unix.NFTA_DATA_VALUE, port)))),
		expression("tproxy", join(attr(nftaTproxyFamily, big32(family)), attr(nftaTproxyRegPort, big32(nftRegister)))))
}

// append appends the message, with the sequence number seq, to b.
func (r request) append(b []byte, seq uint32) []byte {
	n := unix.SizeofNlMsghdr + len(r.body) + len(r.attrs)
	b = append(b, native32(uint32(n))...)
	b = binary.NativeEndian.AppendUint16(b, r.kind)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_ACK|r.flags)
	return append(append(join(b, native32(seq), native32(0)), r.body...), r.attrs...)
}

// exchange sends a request and waits for its acknowledgement.
func exchange(fd int, r request) error { return talk(fd, r.append(nil, 1), 1, 1) }

// exchangeBatch sends requests as one transaction of nf_tables, and waits for their acknowledgements.
// The kernel carries out all of the requests or none.
func exchangeBatch(fd int, batch []request) error {
	edge := func(kind uint16) []byte {
		b := binary.NativeEndian.AppendUint16(native32(unix.SizeofNlMsghdr+4), kind)
		b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
		return join(b, native32(0), native32(0), []byte{unix.AF_UNSPEC, 0, 0, unix.NFNL_SUBSYS_NFTABLES})
	}
	b := edge(unix.NFNL_MSG_BATCH_BEGIN)
	for i, r := range batch {
		b = r.append(b, uint32(i+1))
	}
	return talk(fd, append(b, edge(unix.NFNL_MSG_BATCH_END)...), 1, uint32(len(batch)))
}

// netlinkTimeout bounds the wait for the kernel, which answers at once.
const netlinkTimeout = 5 * time.Second

// answerRoom is the room for an acknowledgement in bytes, without the request that it repeats.
const answerRoom = 1 << 10

// talk sends b and waits until the messages from first to last are acknowledged. It sends to the
// address of the kernel instead of connecting the socket: for a connected socket the kernel would
// also check the rights of the process that opened the socket, and that process has none.
func talk(fd int, b []byte, first, last uint32) error {
	tv := unix.NsecToTimeval(netlinkTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return err
	}
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, len(b)+answerRoom)
	for done := first; done <= last; {
		n, _, err := unix.Recvfrom(fd, answer, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errAck, err)
		}
		msgs, err := syscall.ParseNetlinkMessage(answer[:n])
		if err != nil {
			return err
		}
		for _, m := range msgs {
			if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 {
				continue
			}
			if errno := -int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
				return unix.Errno(errno)
			}
			done++
		}
	}
	return nil
}
