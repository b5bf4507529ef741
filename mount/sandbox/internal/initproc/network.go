package initproc

import (
	"errors"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/mount/sandbox/internal/landlock"
	"github.com/rootsfs/rootsfs/mount/sandbox/internal/layout"
)

// bringUpLoopback brings up the one interface of a new network namespace.
func bringUpLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return step(err, "open a socket")
	}
	defer unix.Close(s)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return step(err, "name the loopback interface")
	}
	req.SetUint16(unix.IFF_UP)
	return step(unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, req), "bring the loopback interface up")
}

// noteNetwork notes the network that the command has, and permits listing the interfaces if the
// network is the command's own.
func (p *initProc) noteNetwork() {
	if p.conf.Net {
		p.layers = append(p.layers, Layer{"network namespace", Off, "the host's network"})
	} else {
		p.noteOn("network namespace", "a loopback interface only")
		p.conf.Filter.Interfaces = true
	}
}

// networkSockets are the sockets that the init opens for the caller, which serves the
// command's network: a socket stays in the namespace that it was opened in. The init opens one of
// each, except for listenerSocket, of which it opens Config.Listeners. It opens none of a family or
// protocol that the kernel lacks.
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

// maxNetworkSockets is how many network sockets one packet passes to the caller at most
// (SCM_MAX_FD is 253).
const maxNetworkSockets = 128

// passNetwork passes the sockets of this namespace to the caller, which begins to serve them
// before it releases the command.
func (p *initProc) passNetwork() error {
	if !p.conf.OpenNetwork {
		return nil
	}
	var names []string
	var fds []int
	send := func() error {
		err := Send(controlFD, Message{Kind: KindFile, Name: NetworkFile + strings.Join(names, ",")}, fds...)
		for _, fd := range fds {
			unix.Close(fd)
		}
		names, fds = nil, nil
		return step(err, "hand the sockets of the network out")
	}
	for _, s := range networkSockets {
		count := 1
		if s.name == listenerSocket {
			count = p.conf.Listeners
		}
		for range count {
			fd, err := unix.Socket(s.family, s.kind|unix.SOCK_CLOEXEC, s.protocol)
			if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) {
				break
			} else if err != nil {
				return step(err, "open a socket for the network")
			}
			names, fds = append(names, s.name), append(fds, fd)
			if len(fds) == maxNetworkSockets {
				if err := send(); err != nil {
					return err
				}
			}
		}
	}
	if len(fds) > 0 {
		if err := send(); err != nil {
			return err
		}
	}
	p.noteOn("network", "approved hosts only")
	return nil
}

// passOut passes a descriptor to the caller. name tells the caller which one it is.
func passOut(name string, fd int) error {
	return Send(controlFD, Message{Kind: KindFile, Name: name}, fd)
}

// permitUnixSockets permits sockets of the unix family if they can reach only the command's own
// files and names. If sockets of the host are granted, it permits the family even with a kept HOME.
// The command may then reach the sockets in that HOME, too. reachable is the reason why sockets can
// reach other files of the host; nil: they cannot.
func (p *initProc) permitUnixSockets(reachable error) {
	const name = "unix sockets"
	why := ""
	switch {
	case reachable != nil:
		why = "the host's could be reached: " + reachable.Error()
	case p.conf.KeptHome && len(p.conf.Sockets) == 0:
		// seccomp cannot refuse connect(2) by the socket's path, and Landlock cannot before its
		// ABI 9.
		why = "HOME is a directory of the host's, which may hold sockets; they are allowed with a private HOME"
	case p.conf.Net && !landlock.Scoped():
		why = "in the host's network they have names that others use, and this kernel's Landlock has no scopes (Linux 6.12 does)"
	}
	if why != "" {
		p.layers = append(p.layers, Layer{name, Off, "refused: " + why})
		return
	}
	p.conf.Filter.Unix = true
	switch {
	case p.conf.Net:
		// The init makes the command's calls of bind, and refuses to bind these sockets: see
		// package seccomp. Landlock refuses the abstract names of other processes.
		p.noteOn(name, "to granted sockets and in pairs; none can be bound, as they have names in the host's network")
	case p.conf.KeptHome:
		p.noteOn(name, "among its own processes, to granted sockets, and to those of the host's in HOME")
	case len(p.conf.Sockets) > 0:
		p.noteOn(name, "among its own processes, and to granted sockets; no other of the host's can be reached")
	default:
		p.noteOn(name, "among its own processes; none of the host's can be reached")
	}
}

// SocketBacklog is how many connections may wait at a granted socket.
const SocketBacklog = 64

// makeSockets makes the granted sockets in the sandbox and passes them to the caller.
func (p *initProc) makeSockets() error {
	if len(p.conf.Sockets) == 0 {
		return nil
	}
	if !p.conf.Filter.Unix {
		return step(unix.EOPNOTSUPP, "grant a socket: sockets of the unix family are refused here, rootsfs status --json says why (layers, unix sockets) of a run without --socket")
	}
	if err := unix.Mkdir(layout.SocketDir, 0o700); err != nil {
		return step(err, "make %s", layout.SocketDir)
	}
	for _, name := range p.conf.Sockets {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return step(err, "make the socket %s", name)
		}
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(layout.SocketDir, name)})
		if err == nil {
			err = unix.Listen(fd, SocketBacklog)
		}
		if err == nil {
			err = passOut(SocketFile+name, fd)
		}
		unix.Close(fd)
		if err != nil {
			return step(err, "make the socket %s", name)
		}
	}
	return nil
}
