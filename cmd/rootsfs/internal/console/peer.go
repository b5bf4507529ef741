package console

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// ownListener lets in connections of one user, and of root, alone: those of others
// of the machine are closed before a byte of them is read. Both ends are on this
// machine and in this network namespace, so that the kernel's table tells whose the
// other one is. It is one door more: what keeps programs of the same user out are
// the secrets.
type ownListener struct {
	net.Listener
	log *slog.Logger
	uid uint32
}

// Accept implements net.Listener.
func (l *ownListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid, err := peerUID(c)
		if err == nil && (uid == l.uid || uid == 0) {
			return c, nil
		}
		if err == nil {
			l.log.Warn("a foreign user was turned away", "uid", uid)
		}
		_ = c.Close() // whose is not known: it has gone by itself
	}
}

// tcpTable lists the connections of the network namespace.
const tcpTable = "/proc/self/net/tcp"

// peerUID is the user whose socket is at the other end of a connection over the
// loopback address.
func peerUID(c net.Conn) (uint32, error) {
	local, err1 := netip.ParseAddrPort(c.LocalAddr().String())
	remote, err2 := netip.ParseAddrPort(c.RemoteAddr().String())
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	for try := 1; ; try++ {
		uid, err := lookUp(local, remote)
		// The kernel writes the table in parts: what moves meanwhile can be left out.
		if err == nil || try == 3 {
			return uid, err
		}
	}
}

// lookUp finds the user of the socket at remote that is connected to local.
func lookUp(local, remote netip.AddrPort) (uint32, error) {
	f, err := os.Open(tcpTable)
	if err != nil {
		return 0, fmt.Errorf("whose connections are: %w", err)
	}
	defer f.Close()
	// The other end is the one that calls ours remote.
	want, from := tableAddr(remote), tableAddr(local)
	for in := bufio.NewScanner(f); in.Scan(); {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid ...
		line := strings.Fields(in.Text())
		if len(line) < 8 || line[1] != want || line[2] != from {
			continue
		}
		uid, err := strconv.ParseUint(line[7], 10, 32)
		return uint32(uid), err
	}
	return 0, errors.New("the other end of the connection is gone")
}

// tableAddr writes an address as the kernel's table has it: in hexadecimal, the
// bytes of the address as one number of this machine's.
func tableAddr(a netip.AddrPort) string {
	ip := a.Addr().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip[:]), a.Port())
}
