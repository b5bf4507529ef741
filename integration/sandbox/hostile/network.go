package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// netTargets are the names, addresses and ports of the tests' servers that netAttempts use.
type netTargets struct {
	Approved string // the name of an approved server
	Address  string // the address of that server; the address is approved, too
	TLS      string // its port for TLS
	UDP      string // its UDP port, which echoes
	Evil     string // a name that is not approved, of the same server
	Rebound  string // an approved name that leads to this machine's loopback interface
	Metadata string // an approved name that leads to a metadata service
	Own      string // an address of this machine that no rule names
	Port     string // of a server at every address of this machine

	Group, Everybody string // address and port at which a server of this machine receives multicast and broadcast
}

// netAttempts try to get an answer from a host, a port or a protocol that was not approved, or to
// use the network in ways that need privileges.
var netAttempts = []struct {
	name string
	try  func(t *netTargets) error
}{
	{"connect to an address of the host's", func(t *netTargets) error { return reach(net.JoinHostPort(t.Own, t.Port)) }},
	{"the same as a mapped IPv6 address", func(t *netTargets) error { return reach("[::ffff:" + t.Own + "]:" + t.Port) }},
	{"connect to the host's loopback, IPv4", func(t *netTargets) error { return reach("127.0.0.1:" + t.Port) }},
	{"connect to the host's loopback, IPv6", func(t *netTargets) error { return reach("[::1]:" + t.Port) }},
	{"connect to a metadata service", func(*netTargets) error { return reach("169.254.169.254:80") }},
	{"connect to an approved name that leads to one", func(t *netTargets) error { return reach(t.Metadata + ":80") }},
	{"connect to an approved name that leads to the host", func(t *netTargets) error { return reach(t.Rebound + ":" + t.Port) }},
	{"connect to another port of an approved name", func(t *netTargets) error { return reach(t.Approved + ":" + t.Port) }},
	{"connect to a listener of rootsfs itself", func(*netTargets) error { return reach("127.0.0.1:1") }},
	{"look up a name that is not approved", func(t *netTargets) error { return resolve(t.Evil, "udp", "") }},
	{"the same by TCP", func(t *netTargets) error { return resolve(t.Evil, "tcp", "") }},
	{"the same from another resolver", func(t *netTargets) error { return resolve(t.Evil, "udp", "8.8.8.8:53") }},
	{"connect to a resolver over TLS", func(*netTargets) error { return reach("1.1.1.1:853") }},
	{"ask an approved host for another server by TLS", func(t *netTargets) error { return askOther(t, t.Approved) }},
	{"the same at an approved address", func(t *netTargets) error { return askOther(t, t.Address) }},
	{"send by UDP to an approved host", sendDatagram},
	{"send by multicast", func(t *netTargets) error { return shout(t.Group) }},
	{"send by broadcast", func(t *netTargets) error { return shout(t.Everybody) }},
	{"open a raw socket", func(*netTargets) error { return withSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, nil) }},
	{"write packets (IP_HDRINCL), as half-open floods and fragments need", func(*netTargets) error {
		return withSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW, nil)
	}},
	{"the same to a device (AF_PACKET)", func(*netTargets) error { return withSocket(unix.AF_PACKET, unix.SOCK_RAW, 0, nil) }},
	{"the same to a tunnel of its own", func(*netTargets) error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}},
	{"forge the state of a connection (TCP_REPAIR)", func(*netTargets) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1) })
	}},
	{"ask a resolver in fragments (IPV6_MTU)", sendFragments},
	{"send by SCTP", func(*netTargets) error { return withSocket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP, nil) }},
	{"choose a route (IP_OPTIONS)", func(*netTargets) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error {
			return unix.SetsockoptString(fd, unix.SOL_IP, unix.IP_OPTIONS, looseRoute)
		})
	}},
	{"choose a route for a datagram (IP_RETOPTS)", sendRouted},
	{"choose a route for IPv6 (IPV6_RTHDR)", func(*netTargets) error {
		return withSocket(unix.AF_INET6, unix.SOCK_DGRAM, 0, func(fd int) error {
			return unix.SetsockoptString(fd, unix.SOL_IPV6, unix.IPV6_RTHDR, "\x00\x02\x02\x01\x00\x00\x00\x00"+string(net.IPv6loopback))
		})
	}},
	{"send with another's address (IP_TRANSPARENT)", func(*netTargets) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT, 1) })
	}},
	{"mark packets (SO_MARK)", func(*netTargets) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1) })
	}},
}

// looseRoute is the option of IPv4 that routes a packet through 127.0.0.1.
const looseRoute = "\x83\x07\x04\x7f\x00\x00\x01\x00"

// attackNetwork makes netAttempts and prints the results. raw is the netTargets as JSON.
func attackNetwork(raw string) int {
	var t netTargets
	if err := json.Unmarshal([]byte(raw), &t); err != nil {
		return 2
	}
	return atOnce(len(netAttempts), func(i int) (string, error) { return netAttempts[i].name, netAttempts[i].try(&t) })
}

// atOnce makes n attempts at the same time, because many end only after netPatience. It prints
// their results in order.
func atOnce(n int, try func(i int) (name string, err error)) int {
	results := make([]result, n)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			name, err := try(i)
			results[i] = result{name, err == nil, outcome(err)}
		})
	}
	wg.Wait()
	out := json.NewEncoder(os.Stdout)
	for _, r := range results {
		if err := out.Encode(r); err != nil {
			return 1
		}
	}
	return 0
}

// outcome returns the same as detail, but has short texts for missing names and timeouts.
func outcome(err error) string {
	var missing *net.DNSError
	switch {
	case errors.As(err, &missing) && missing.IsNotFound:
		return "NXDOMAIN"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &missing) && missing.IsTimeout:
		return "no answer"
	}
	return detail(err)
}

const netPatience = 3 * time.Second

// reach connects to address, sends a line, and waits for the first byte of an answer.
func reach(address string) error {
	c, err := net.DialTimeout("tcp", address, netPatience)
	if err != nil {
		return err
	}
	defer c.Close()
	return exchangeLine(c)
}

// exchangeLine sends a line, and waits for the first byte of an answer.
func exchangeLine(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(netPatience))
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

// resolve looks a name up at the resolver at server. If server is "", it uses the resolver of the
// system.
func resolve(name, network, server string) error {
	ctx, cancel := context.WithTimeout(context.Background(), netPatience)
	defer cancel()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
		var d net.Dialer
		if server != "" {
			address = server
		}
		return d.DialContext(ctx, network, address)
	}}
	_, err := r.LookupHost(ctx, name)
	return err
}

// askOther connects to an approved host by TLS, with the server name of a host that is not
// approved.
func askOther(t *netTargets, host string) error {
	d := &net.Dialer{Timeout: netPatience}
	c, err := tls.DialWithDialer(d, "tcp", host+":"+t.TLS, &tls.Config{ServerName: t.Evil, InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	defer c.Close()
	return exchangeLine(c)
}

func sendDatagram(t *netTargets) error {
	c, err := net.Dial("udp", t.Approved+":"+t.UDP)
	if err != nil {
		return err
	}
	defer c.Close()
	return exchangeLine(c)
}

// shout sends to a multicast or broadcast address and waits for one answer.
func shout(address string) error {
	c, err := net.ListenPacket("udp4", ":0")
	if err != nil {
		return err
	}
	defer c.Close()
	to, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(netPatience))
	if _, err := c.WriteTo([]byte("hello\n"), to); err != nil {
		return err
	}
	_, _, err = c.ReadFrom(make([]byte, 1))
	return err
}

// sendFragments sends a datagram that does not fit into one packet, and waits for an answer.
func sendFragments(*netTargets) error {
	c, err := net.Dial("udp6", "[::1]:53")
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_MTU, 1280) })
	if err == nil {
		_, err = c.Write(make([]byte, 4000))
	}
	if err != nil {
		return err
	}
	return exchangeLine(c)
}

// sendRouted sends a datagram with a route of its own to an approved host.
func sendRouted(t *netTargets) error {
	to, err := net.ResolveUDPAddr("udp4", t.Approved+":"+t.UDP)
	if err != nil {
		return err
	}
	c, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return err
	}
	defer c.Close()
	option := make([]byte, unix.CmsgSpace(len(looseRoute)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&option[0]))
	h.Level, h.Type = unix.SOL_IP, unix.IP_RETOPTS
	h.SetLen(unix.CmsgLen(len(looseRoute)))
	copy(option[unix.CmsgLen(0):], looseRoute)
	if _, _, err := c.WriteMsgUDP([]byte("hello\n"), option, to); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(netPatience))
	_, _, err = c.ReadFrom(make([]byte, 1))
	return err
}

func withSocket(family, kind, protocol int, f func(fd int) error) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil || f == nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}

// get prints the content of a URL, fetched as a Go program with net/http does.
func get(url string) int {
	resp, err := http.Get(url)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.Copy(os.Stdout, resp.Body)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// dial sends a descriptor to a Unix socket, and prints whether a descriptor comes with the answer.
// Unless once is set, it then waits for the end of the connection and prints "cut".
func dial(path string, once bool) int {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(s, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Sendmsg(s, []byte("x"), unix.UnixRights(0), nil, unix.MSG_NOSIGNAL)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	oob := make([]byte, 64)
	n, oobn, _, _, err := unix.Recvmsg(s, make([]byte, 8), oob, 0)
	switch {
	case err != nil || n == 0:
		fmt.Println("no answer:", err)
		return 1
	case oobn > 0:
		fmt.Println("answered, with 1 descriptor")
	default:
		fmt.Println("answered, with 0 descriptors")
	}
	if once {
		return 0
	}
	if n, err := unix.Read(s, make([]byte, 8)); n > 0 {
		fmt.Println("received", n, err)
		return 1
	}
	fmt.Println("cut")
	return 0
}
