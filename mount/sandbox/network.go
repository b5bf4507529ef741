package sandbox

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Network is a network namespace of the command's own that the caller serves. A socket stays
// in the namespace that it was opened in, so the init opens them and passes them out.
type Network struct {
	// Loopback is how many sockets Serve gets for services of this machine's loopback
	// interface.
	Loopback int
	// ResolvConf is the command's /etc/resolv.conf.
	ResolvConf []byte
	// Serve is called once, before the command is started, with sockets by their names (see
	// networkSockets). It owns them. Its error is Start's.
	Serve func(sockets map[string][]*os.File) error
}

// networkSockets are the sockets that the init opens. Of all but "loopback" there is one, and
// none of a family that the kernel lacks.
var networkSockets = []struct {
	name                   string
	family, kind, protocol int
}{
	{"route", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
	{"netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
	{"datagram", unix.AF_INET, unix.SOCK_DGRAM, 0},
	{"stream4", unix.AF_INET, unix.SOCK_STREAM, 0},
	{"stream6", unix.AF_INET6, unix.SOCK_STREAM, 0},
	{loopbackSocket, unix.AF_INET, unix.SOCK_STREAM, 0},
}

const loopbackSocket = "loopback"

// networkWanted is what the init is told of a Network; nil: there is none.
type networkWanted struct {
	Loopback int `json:"loopback"`
}

func (n *Network) wanted() *networkWanted {
	if n == nil {
		return nil
	}
	return &networkWanted{n.Loopback}
}

// network passes the sockets of this namespace out, and waits until the caller serves it.
func (p *initProc) network() error {
	if p.conf.Network == nil {
		return nil
	}
	var sockets []string
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, s := range networkSockets {
		count := 1
		if s.name == loopbackSocket {
			count = p.conf.Network.Loopback
		}
		for range count {
			fd, err := unix.Socket(s.family, s.kind|unix.SOCK_CLOEXEC, s.protocol)
			if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) {
				break
			} else if err != nil {
				return step(err, "open a socket for the network")
			}
			sockets, fds = append(sockets, s.name), append(fds, fd)
		}
	}
	if err := send(controlFD, message{Kind: kindNetwork, At: strings.Join(sockets, " ")}, fds...); err != nil {
		return step(err, "hand the network's sockets out")
	}
	if m, _, err := receive(controlFD); err != nil || m.Kind != kindNetwork {
		os.Exit(exitStage) // the caller has given up, and knows why
	}
	p.on("network", "approved hosts only")
	return nil
}

// network gives the caller the sockets that the init has passed out.
func (p *Process) network(n *Network, m message, fds []int) error {
	sockets := map[string][]*os.File{}
	for i, name := range strings.Fields(m.At) {
		if i < len(fds) {
			sockets[name] = append(sockets[name], os.NewFile(uintptr(fds[i]), "socket "+name+" of the command's network"))
		}
	}
	if err := n.Serve(sockets); err != nil {
		return unable(err, "give the command a network of approved hosts: %v", err)
	}
	return send(p.sock, message{Kind: kindNetwork})
}
