package network

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// insideVar makes the test binary a program in a namespace: it opens the sockets, passes them
// out, waits, and runs the function of programs that the variable names.
const insideVar = "ROOTSFS_TEST_INSIDE"

func TestMain(m *testing.M) {
	if name := os.Getenv(insideVar); name != "" {
		runInside(name)
	}
	os.Exit(m.Run())
}

func runInside(name string) {
	open := func(family, kind, protocol int) int {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			fmt.Fprintln(os.Stderr, "open a socket:", err)
			os.Exit(3)
		}
		return fd
	}
	fds := []int{
		open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE), open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER),
		open(unix.AF_INET, unix.SOCK_DGRAM, 0), open(unix.AF_INET, unix.SOCK_STREAM, 0), open(unix.AF_INET6, unix.SOCK_STREAM, 0),
		open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG),
	}
	for range 8 {
		fds = append(fds, open(unix.AF_INET, unix.SOCK_STREAM, 0))
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(fds...), nil, 0); err != nil {
		fmt.Fprintln(os.Stderr, "pass the sockets:", err)
		os.Exit(3)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	if n, err := unix.Read(3, make([]byte, 1)); n != 1 {
		fmt.Fprintln(os.Stderr, "wait for the gate:", err)
		os.Exit(3)
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx ctx, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, os.Getenv("ROOTSFS_TEST_DNS"))
	}}
	if err := programs[name](os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// namespace runs programs in network namespaces that g serves.
type namespace struct {
	t      *testing.T
	g      *Gate
	mu     sync.Mutex
	events []Event
	drop   bool // no event is kept
	dns    string
	lacks  func(*Sockets) // removes sockets, as if the kernel lacked them
}

// newNamespace returns a namespace with its own gate.
func newNamespace(t *testing.T, o Options) *namespace {
	n := &namespace{t: t, dns: "198.18.0.1:53"}
	o.Record = func(e Event) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.drop {
			n.events = append(n.events, e)
		}
		return nil
	}
	n.g = New(o)
	t.Cleanup(n.g.Close)
	return n
}

// start starts a program of programs in a network namespace that the gate serves.
func (n *namespace) start(name string, args ...string) (*exec.Cmd, io.Reader) {
	n.t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), insideVar+"="+name, "ROOTSFS_TEST_DNS="+n.dns)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		theirs.Close()
		if e := err.Error(); strings.Contains(e, "operation not permitted") || strings.Contains(e, "no space left") {
			n.t.Skip("no user namespaces here: ", err)
		}
		n.t.Fatal(err)
	}
	theirs.Close()
	n.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	oob := make([]byte, unix.CmsgSpace(4*16))
	_, oobn, _, _, err := unix.Recvmsg(int(ours.Fd()), make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		n.t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) != 1 {
		n.t.Fatal("no sockets came", err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		n.t.Fatal(err)
	}
	var fs []*os.File
	for _, fd := range fds {
		fs = append(fs, os.NewFile(uintptr(fd), "a socket inside"))
	}
	// In a sandbox, an init brings lo up. Here the owner of the namespace brings it up, since a
	// program that an ordinary user executes has no capabilities in the namespace.
	up, err := unix.NewIfreq("lo")
	if err != nil {
		n.t.Fatal(err)
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fds[2], unix.SIOCSIFFLAGS, up); err != nil {
		n.t.Fatal("bring the loopback interface up: ", err)
	}
	s := &Sockets{Route: fs[0], Netfilter: fs[1], Datagram: fs[2], Stream4: fs[3], Stream6: fs[4], Diag: fs[5], Listeners: fs[6:]}
	if n.lacks != nil {
		n.lacks(s)
	}
	if err := n.g.Serve(s, slog.New(slog.DiscardHandler)); err != nil {
		n.t.Fatal(err)
	}
	if _, err := ours.Write([]byte{0}); err != nil {
		n.t.Fatal(err)
	}
	return cmd, out
}

// run runs a program to its end and returns what it printed.
func (n *namespace) run(name string, args ...string) string {
	n.t.Helper()
	cmd, out := n.start(name, args...)
	b, _ := io.ReadAll(out)
	_ = cmd.Wait() // the output has the program's error
	return string(bytes.TrimSpace(b))
}

// find waits for an event.
func (n *namespace) find(state State, host string) Event {
	n.t.Helper()
	at := -1
	found := testkit.Eventually(func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		at = slices.IndexFunc(n.events, func(e Event) bool { return e.State == state && e.Host.Raw() == host })
		return at >= 0
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	if !found {
		n.t.Fatalf("no event %s of %s among %+v", state, host, n.events)
	}
	return n.events[at]
}
