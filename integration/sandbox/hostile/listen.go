package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func init() {
	attempts = append(attempts,
		attempt{"listen on the host's addresses", func(*targets) error { return listenInet(&unix.SockaddrInet4{}, false) }},
		attempt{"listen on a port of its choice", func(*targets) error { return listenInet(&unix.SockaddrInet4{Port: freePort(unix.SOCK_STREAM)}, false) }},
		attempt{"listen without an address", func(*targets) error { return listenInet(nil, false) }},
		attempt{"take connections of another listener (SO_REUSEPORT)", func(t *targets) error {
			at, err := address(t.Shared)
			if err != nil {
				return err
			}
			return listenInet(at, true)
		}},
		attempt{"receive on a UDP port of its choice", func(*targets) error {
			s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(s)
			return requireHostNet(unix.Bind(s, &unix.SockaddrInet4{Port: freePort(unix.SOCK_DGRAM)}))
		}},
		attempt{"receive on a UDP port of its choice by a range", func(*targets) error { return requireHostNet(bindRange(unix.SOCK_DGRAM)) }},
	)
}

// bindRange binds to a port of its choice without naming the port in bind(2): it limits the range of
// automatic ports to that port.
func bindRange(kind int) error {
	s, err := unix.Socket(unix.AF_INET, kind, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	const ipLocalPortRange = 51 // linux/in.h, Linux 6.3
	port := 50000 + os.Getpid()%1000
	if err := unix.SetsockoptInt(s, unix.IPPROTO_IP, ipLocalPortRange, port<<16|port); err != nil {
		return err
	}
	return unix.Bind(s, &unix.SockaddrInet4{})
}

// freePort returns a port that the kernel does not choose by itself.
func freePort(kind int) int { return 20000 + kind*1000 + os.Getpid()%1000 }

// requireHostNet returns err if err is not nil. Otherwise it returns errRefused if this process is
// in a network namespace that is not the host's.
func requireHostNet(err error) error {
	if err == nil {
		if self, e := os.Readlink("/proc/self/ns/net"); e == nil && self != hostNet {
			return errRefused
		}
	}
	return err
}

func listenInet(at *unix.SockaddrInet4, shared bool) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if shared {
		if err := unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			return err
		}
	}
	if at != nil {
		if err := unix.Bind(s, at); err != nil {
			return err
		}
	}
	return requireHostNet(unix.Listen(s, 1))
}

// tryListening tries several ways to use an address, as a client and as a server, and prints the
// result of each. port is the port that --listen may name. tcp is the address of a TCP server.
func tryListening(port int, tcp string) int {
	at := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: port}
	bind := func(kind int, addr unix.Sockaddr) error {
		s, err := unix.Socket(unix.AF_INET, kind, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return unix.Bind(s, addr)
	}
	client := func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		if err := unix.Bind(s, &unix.SockaddrInet4{}); err != nil {
			return err
		}
		to, err := address(tcp)
		if err != nil {
			return err
		}
		return unix.Connect(s, to)
	}
	undumpable := func() error { // makes this process undumpable, as ssh-agent is, and binds
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
		return bind(unix.SOCK_DGRAM, &unix.SockaddrInet4{})
	}
	for _, a := range []struct {
		name string
		err  error
	}{
		{"client with an address", client()},
		{"UDP, any port", bind(unix.SOCK_DGRAM, &unix.SockaddrInet4{})},
		{"listen on the port", listenInet(at, false)},
		{"UDP, the port", bind(unix.SOCK_DGRAM, at)},
		{"listen on another port", listenInet(&unix.SockaddrInet4{Port: freePort(unix.SOCK_STREAM)}, false)},
		{"UDP, another port", bind(unix.SOCK_DGRAM, &unix.SockaddrInet4{Port: freePort(unix.SOCK_DGRAM)})},
		{"listen on any port", listenInet(&unix.SockaddrInet4{}, false)},
		{"listen without an address", listenInet(nil, false)},
		{"UDP, a range", bindRange(unix.SOCK_DGRAM)},
		{"listen on a range", bindRange(unix.SOCK_STREAM)},
		{"UDP, undumpable process", undumpable()},
		{"listen by SCTP", listenBy(unix.SOCK_STREAM, unix.IPPROTO_SCTP, at)},
		{"listen by DCCP", listenBy(unix.SOCK_DCCP, unix.IPPROTO_DCCP, at)},
		{"listen by MPTCP", listenBy(unix.SOCK_STREAM, unix.IPPROTO_MPTCP, at)},
	} {
		fmt.Printf("%s: %v\n", a.name, detail(a.err))
	}
	return 0
}

// listenBy listens on an address by another protocol than TCP.
func listenBy(kind, protocol int, at *unix.SockaddrInet4) error {
	s, err := unix.Socket(unix.AF_INET, kind, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.Bind(s, at); err != nil {
		return err
	}
	return unix.Listen(s, 1)
}
