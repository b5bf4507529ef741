package sandbox

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Network is a network namespace of the command's own that the caller serves. A socket stays
// in the namespace that it was opened in, so the init opens them and passes them out.
type Network struct {
	// Listeners is how many sockets Serve gets to listen on single ports.
	Listeners int
	// Optional has levels without a network namespace go on without it.
	Optional bool
	// ResolvConf is the command's /etc/resolv.conf.
	ResolvConf []byte
	// Serve is called once, before the command is started, with sockets by their names (see
	// networkSockets). It owns them. Its error is Start's.
	Serve func(sockets map[string][]*os.File) error
}

// networkSockets are the sockets that the init opens. Of all but "listener" there is one, and
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
	{"diag", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG},
	{listenerSocket, unix.AF_INET, unix.SOCK_STREAM, 0},
}

const listenerSocket = "listener"

// networkWanted is what the init is told of a Network; nil: there is none.
type networkWanted struct {
	Listeners int `json:"listener"`
}

func (n *Network) wanted() *networkWanted {
	if n == nil {
		return nil
	}
	return &networkWanted{n.Listeners}
}

// network passes the sockets of this namespace out. The caller serves them before it has the
// command started.
func (p *initProc) network() error {
	if p.conf.Network == nil {
		return nil
	}
	for _, s := range networkSockets {
		count := 1
		if s.name == listenerSocket {
			count = p.conf.Network.Listeners
		}
		for range count {
			fd, err := unix.Socket(s.family, s.kind|unix.SOCK_CLOEXEC, s.protocol)
			if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) {
				break
			} else if err != nil {
				return step(err, "open a socket for the network")
			}
			err = send(controlFD, message{Kind: kindFile, Name: networkFile + s.name}, fd)
			unix.Close(fd)
			if err != nil {
				return step(err, "hand a socket of the network out")
			}
		}
	}
	p.on("network", "approved hosts only")
	return nil
}
