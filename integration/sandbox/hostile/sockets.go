package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func init() {
	attempts = append(attempts,
		attempt{"connect to a socket in a system directory", func(t *targets) error { return dialUnix(t.System) }},
		attempt{"send to a datagram socket in a system directory", func(t *targets) error { return sendDgram(t.System + ".dgram") }},
		attempt{"send to a datagram socket in a directory", func(t *targets) error { return sendDgram(t.Pathname + ".dgram") }},
		attempt{"send to an abstract datagram socket", func(t *targets) error { return sendDgram("\x00" + t.Abstract + ".dgram") }},
		attempt{"connect to the host's socket in a root", func(t *targets) error { return dialUnix(filepath.Join(t.Root, "socket")) }},
		attempt{"pass a descriptor to a process outside", passOut},
		attempt{"make a socket in a directory", func(t *targets) error { return listenUnix(filepath.Join(t.Dir, "made-socket")) }},
		attempt{"make a socket in a kept HOME", func(*targets) error { return listenUnix(filepath.Join(os.Getenv("HOME"), "made-socket")) }},
		attempt{"take an abstract name of the host's", func(t *targets) error { return listenUnix("\x00" + t.Abstract + ".free") }},
		attempt{"lie about its credentials (SCM_CREDENTIALS)", lie},
		attempt{"list the host's sockets (/proc/net/unix)", func(t *targets) error {
			b, err := os.ReadFile("/proc/net/unix")
			if err == nil && !bytes.Contains(b, []byte(t.Abstract)) {
				return errRefused
			}
			return short(err)
		}},
	)
}

func sendDgram(name string) error {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return unix.Sendto(s, []byte("x"), 0, &unix.SockaddrUnix{Name: name})
}

// passOut tries to pass a descriptor to each socket of the host that it may be able to reach. The
// server closes each connection that it accepts, perhaps before the descriptor comes. So if a
// connection succeeds but the descriptor cannot be sent, passOut tries again: 50 times in all.
func passOut(t *targets) error {
	last := error(errRefused)
	for _, name := range []string{t.Pathname, t.System, "\x00" + t.Abstract, filepath.Join(t.Root, "socket")} {
		for range 50 {
			connected, err := passTo(name)
			if err == nil {
				return nil
			}
			if last = err; !connected {
				break
			}
		}
	}
	return last
}

// passTo passes a descriptor to the server of a socket.
func passTo(name string) (connected bool, err error) {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(s)
	if err := unix.Connect(s, &unix.SockaddrUnix{Name: name}); err != nil {
		return false, err
	}
	return true, unix.Sendmsg(s, []byte("x"), unix.UnixRights(0), nil, unix.MSG_NOSIGNAL)
}

// listenUnix works if a process outside could connect to the socket.
func listenUnix(name string) error {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.Bind(s, &unix.SockaddrUnix{Name: name}); err != nil {
		return err
	}
	if name[0] != 0 {
		defer os.Remove(name)
	}
	if err := unix.Listen(s, 1); err != nil {
		return err
	}
	if name[0] != 0 {
		return nil
	}
	// A process outside cannot connect to an abstract name in another network namespace.
	if self, err := os.Readlink("/proc/self/ns/net"); err == nil && self != hostNet {
		return errRefused
	}
	return nil
}

// hostNet is the network namespace that counts as the host's: targets.Net, or with -listen this
// process's own.
var hostNet string

// lie sends a message with the credentials of root, or of another process.
func lie(t *targets) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	for _, c := range []unix.Ucred{{Pid: int32(os.Getpid()), Uid: 0, Gid: 0}, {Pid: int32(t.Victim), Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())}} {
		if c.Uid == uint32(os.Getuid()) && c.Uid == 0 {
			continue
		}
		if err = unix.Sendmsg(pair[0], []byte("x"), unix.UnixCredentials(&c), nil, 0); err == nil {
			return nil
		}
	}
	return err
}

// passByStreams sends a descriptor over each of the standard streams, and prints the results.
func passByStreams() int {
	for fd := range 3 {
		err := unix.Sendmsg(fd, []byte("x"), unix.UnixRights(0), nil, unix.MSG_NOSIGNAL)
		fmt.Fprintf(os.Stderr, "stream %d: %v\n", fd, err)
	}
	return 0
}

// connectOwn connects to itself over sockets of every type, in each of its own directories, in its
// root and by an abstract name, and passes a descriptor each time. It prints failures.
func connectOwn() int {
	failed := 0
	for _, dir := range []string{os.Getenv("HOME"), os.Getenv("TMPDIR"), os.Getenv("XDG_RUNTIME_DIR"), ".", "\x00"} {
		for kind, what := range map[int]string{unix.SOCK_STREAM: "stream", unix.SOCK_DGRAM: "dgram", unix.SOCK_SEQPACKET: "seqpacket"} {
			if err := talkOver(filepath.Join(dir, "own-"+what), kind); err != nil {
				fmt.Printf("%s in %q: %v\n", what, dir, err)
				failed = 1
			}
		}
	}
	return failed
}

func talkOver(name string, kind int) error {
	var fds [3]int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
		os.Remove(name)
	}()
	for i := range 2 {
		var err error
		if fds[i], err = unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("socket: %w", err)
		}
	}
	listener, client := fds[0], fds[1]
	if err := unix.Bind(listener, &unix.SockaddrUnix{Name: name}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if kind != unix.SOCK_DGRAM {
		if err := unix.Listen(listener, 1); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	if err := unix.Connect(client, &unix.SockaddrUnix{Name: name}); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	server := listener
	if kind != unix.SOCK_DGRAM {
		var err error
		if server, _, err = unix.Accept(listener); err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		fds[2] = server
	}
	if err := unix.Sendmsg(client, []byte("x"), unix.UnixRights(1), nil, 0); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	oob := make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(server, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return fmt.Errorf("receive: %d bytes of control messages, %w", n, err)
	}
	return nil
}
