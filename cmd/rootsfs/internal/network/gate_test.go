package network

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

type ctx = context.Context

// programs are the programs that tests run in a namespace.
var programs = map[string]func(args []string) error{
	// get connects to args[0], sends args[1], and prints what comes until the end.
	"get": func(args []string) error {
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		if _, err := io.WriteString(c, args[1]); err != nil {
			return err
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		b, err := io.ReadAll(c)
		fmt.Printf("%s\n", b)
		return err
	},
	// urgent does what get does, but sends the first byte as urgent data.
	"urgent": func(args []string) error {
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return err
		}
		_ = raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), []byte(args[1][:1]), unix.MSG_OOB, nil) })
		if err == nil {
			_, err = io.WriteString(c, args[1][1:])
		}
		if err == nil {
			err = c.(*net.TCPConn).CloseWrite()
		}
		if err != nil {
			return err
		}
		b, err := io.ReadAll(c)
		fmt.Printf("%s\n", b)
		return err
	},
	// tls connects to args[0] and asks for the server args[1].
	"tls": func(args []string) error {
		c, err := tls.Dial("tcp", args[0], &tls.Config{ServerName: args[1], InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		b, err := io.ReadAll(c)
		fmt.Printf("%s\n", b)
		return err
	},
	// flood reads from args[0] without an end, and prints when it has begun.
	"flood": func(args []string) error {
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		b := make([]byte, 1<<16)
		if _, err := c.Read(b); err != nil {
			return err
		}
		fmt.Println("begun")
		for {
			if _, err := c.Read(b); err != nil {
				return err
			}
		}
	},
	// own serves at 127.0.0.1 and connects to itself.
	"own": func([]string) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		go func() {
			c, err := l.Accept()
			if err == nil {
				io.WriteString(c, "own")
				c.Close()
			}
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		b, err := io.ReadAll(c)
		fmt.Printf("%s\n", b)
		return err
	},
	// lookup prints the addresses of each name in args, and whether the look-up failed.
	"lookup": func(args []string) error {
		for _, name := range args {
			addrs, err := net.DefaultResolver.LookupHost(context.Background(), name)
			fmt.Println(name, addrs, err != nil)
		}
		return nil
	},
	// udp sends to args[0] and waits for the kernel's refusal.
	"udp": func(args []string) error {
		c, err := net.Dial("udp", args[0])
		if err != nil {
			return err
		}
		for range 2 {
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
			c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := c.Read(make([]byte, 1)); err != nil {
				return err
			}
		}
		return nil
	},
}

// echo serves at 127.0.0.1: it answers "you said " and what it got.
func echo(t *testing.T) (port string) {
	return serve(t, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "you said %s", b)
	})
}

func serve(t *testing.T, f func(net.Conn)) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c) }()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// resolver returns a resolver that answers each name with the addresses that table gives, through a
// real exchange of DNS over a pipe. asked counts the queries.
func resolver(asked *atomic.Int64, table func(name string) []string) *net.Resolver {
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx, string, string) (net.Conn, error) {
		a, b := net.Pipe()
		go func() {
			defer b.Close()
			for {
				var head [2]byte
				if _, err := io.ReadFull(b, head[:]); err != nil {
					return
				}
				query := make([]byte, int(head[0])<<8|int(head[1]))
				if _, err := io.ReadFull(b, query); err != nil {
					return
				}
				asked.Add(1)
				reply := dnsReply(query, table)
				b.Write(append([]byte{byte(len(reply) >> 8), byte(len(reply))}, reply...))
			}
		}()
		return a, nil
	}}
}

func dnsReply(query []byte, table func(string) []string) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil
	}
	q := m.Questions[0]
	r := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions[:1]}
	addrs := table(strings.TrimSuffix(q.Name.String(), "."))
	if addrs == nil {
		r.RCode = dnsmessage.RCodeNameError
	}
	for _, s := range addrs {
		a := netip.MustParseAddr(s)
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			r.Answers = append(r.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			r.Answers = append(r.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	b, _ := r.Pack()
	return b
}

func mustRules(t *testing.T, list string) []Rule {
	t.Helper()
	rs, err := ParseRules(list)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// local resolves every name below test to 127.0.0.1.
func local(name string) []string {
	if strings.HasSuffix(name, ".test") {
		return []string{"127.0.0.1"}
	}
	return nil
}

func TestApprovedHostIsReached(t *testing.T) {
	port := echo(t)
	var asked atomic.Int64
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test:"+port+",127.0.0.1"), Resolver: resolver(&asked, local)})
	if got := n.run("get", "API.test:"+port, "hello"); got != "you said hello" {
		t.Fatalf("got %q", got)
	}
	e := n.find(Ended, "api.test")
	if e.Sent != 5 || e.Received != 14 || e.Reason != nil || e.Addr.String() != "127.0.0.1:"+port {
		t.Errorf("event is %+v", e)
	}
}

func TestOthersAreRefused(t *testing.T) {
	port := echo(t)
	for _, c := range []struct {
		what, address string
		state         State
		host          string
		reason        error
	}{
		{"another name", "evil.test:" + port, Refused, "evil.test", ErrNoRule},
		{"a name that ends like an approved one", "xapi.test:" + port, Refused, "xapi.test", ErrNoRule},
		{"the domain of a wildcard", "wild.test:" + port, Refused, "wild.test", ErrNoRule},
		{"another port", "api.test:1234", Refused, "api.test", ErrNoRule},
		{"metadata", "169.254.169.254:80", Refused, "169.254.169.254", ErrNoRule},
		{"IPv6", "[2606:4700::1]:443", Refused, "2606:4700::1", ErrNoRule},
		{"an address that no name has", "198.18.9.9:80", Refused, "198.18.9.9", errNoAddress},
		{"the gate's own listener", "127.0.0.1:1", Refused, "127.0.0.1", ErrNoRule},
		{"a name that leads to this machine", "rebound.test:" + port, Refused, "rebound.test", ErrClosed},
		{"a name that leads to metadata", "metadata.test:80", Refused, "metadata.test", ErrClosed},
		{"a name that does not exist", "none.wild.test:80", Failed, "none.wild.test", nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			var asked atomic.Int64
			n := newNamespace(t, Options{
				Rules: mustRules(t, "api.test:"+port+",*.wild.test,rebound.test,metadata.test"),
				Resolver: resolver(&asked, func(name string) []string {
					switch name {
					case "metadata.test":
						return []string{"169.254.169.254"}
					case "none.wild.test":
						return nil
					}
					return []string{"127.0.0.1"}
				}),
			})
			if got := n.run("get", c.address, "hello"); !strings.Contains(got, "error:") || strings.Contains(got, "you said") {
				t.Errorf("got %q", got)
			}
			e := n.find(c.state, c.host)
			if c.reason != nil && !errors.Is(e.Reason, c.reason) {
				t.Errorf("reason is %v, want %v", e.Reason, c.reason)
			}
			if c.reason == ErrNoRule && asked.Load() != 0 {
				t.Errorf("a resolver was asked %d times about a name that no rule permits", asked.Load())
			}
		})
	}
}

func TestUDPIsRefused(t *testing.T) {
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test")})
	if got := n.run("udp", "api.test:443"); !strings.Contains(got, "connection refused") {
		t.Errorf("got %q", got)
	}
}

func TestOwnServersWork(t *testing.T) {
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test")})
	if got := n.run("own"); got != "own" {
		t.Errorf("got %q", got)
	}
}

func TestLoopbackOfThisMachine(t *testing.T) {
	port := echo(t)
	n := newNamespace(t, Options{Rules: mustRules(t, "127.0.0.1:"+port)})
	if got := n.run("get", "127.0.0.1:"+port, "hello"); got != "you said hello" {
		t.Errorf("got %q", got)
	}
}

func TestLookups(t *testing.T) {
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,*.wild.test")})
	got := n.run("lookup", "api.test", "API.TEST", "a.b.wild.test", "localhost.", "evil.test", "wild.test")
	lines := strings.Split(got, "\n")
	if len(lines) != 6 || strings.Contains(lines[0], "true") || lines[0][len("api.test"):] != lines[1][len("API.TEST"):] {
		t.Fatalf("got %q", got)
	}
	for i, failed := range []bool{false, false, false, false, true, true} {
		if strings.HasSuffix(lines[i], "true") != failed {
			t.Errorf("line %q, want failed %v", lines[i], failed)
		}
	}
}

func TestServerNames(t *testing.T) {
	cert, err := tls.X509KeyPair(testCert(t))
	if err != nil {
		t.Fatal(err)
	}
	port := serve(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
		io.WriteString(s, "hello")
		s.Close()
	})
	for _, c := range []struct {
		server string
		any    bool
		want   string
	}{
		{"api.test", false, "hello"},
		{"other.test", false, "hello"}, // is approved, too
		{"evil.test", false, "error:"},
		{"a.wild.test", false, "hello"},
		{"evil.test/.wild.test", false, "error:"}, // is no name
		{"evil.test", true, "hello"},
		{"", false, "hello"},
	} {
		var asked atomic.Int64
		n := newNamespace(t, Options{Rules: mustRules(t, "api.test,other.test,*.wild.test,127.0.0.1"), Resolver: resolver(&asked, local), AnyServerName: c.any})
		if got := n.run("tls", "api.test:"+port, c.server); !strings.Contains(got, c.want) {
			t.Errorf("server %q, any %v: got %q, want %q", c.server, c.any, got, c.want)
		}
		if e := n.find(Ended, "api.test"); c.want == "error:" && (!errors.Is(e.Reason, ErrNoRule) || e.ServerName.Raw() != c.server) {
			t.Errorf("event is %+v", e)
		}
	}
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	if got := n.run("get", "api.test:"+port, "\x16no TLS at all"); !strings.Contains(got, "error:") {
		t.Errorf("bytes that begin like TLS: got %q", got)
	}
}

// Urgent bytes are checked and arrive in their place among the others.
func TestUrgentBytes(t *testing.T) {
	port := echo(t)
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	if got := n.run("urgent", "api.test:"+port, "hello"); got != "you said hello" {
		t.Errorf("got %q", got)
	}
	n = newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	if got := n.run("urgent", "api.test:"+port, "\x16no TLS at all"); !strings.Contains(got, "error:") {
		t.Errorf("bytes that begin like TLS: got %q", got)
	}
}

func TestRemoveEndsConnections(t *testing.T) {
	var sent atomic.Int64
	port := serve(t, func(c net.Conn) {
		b := make([]byte, 1<<16)
		for {
			k, err := c.Write(b)
			sent.Add(int64(k))
			if err != nil {
				return
			}
		}
	})
	rule := mustRules(t, "api.test:"+port)
	n := newNamespace(t, Options{Rules: append(rule, mustRules(t, "127.0.0.1")...), Resolver: resolver(new(atomic.Int64), local)})
	cmd, out := n.start("flood", "api.test:"+port)
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatal(line, err)
	}
	if ended := n.g.Remove(rule...); ended != 1 {
		t.Errorf("%d connections were ended", ended)
	}
	c := receivedBytes(n)
	rest, _ := io.ReadAll(r)
	_ = cmd.Wait()
	if !strings.Contains(string(rest), "error:") {
		t.Errorf("got %q", rest)
	}
	if e := n.find(Ended, "api.test"); !errors.Is(e.Reason, ErrRevoked) {
		t.Errorf("reason is %v", e.Reason)
	} else if c >= 0 && e.Received != c {
		t.Errorf("%d bytes were carried when Remove returned, and %d later", c, e.Received)
	}
}

// receivedBytes returns the received bytes in the event of the ended connection, or -1 if there is
// no such event yet.
func receivedBytes(n *namespace) int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.events {
		if e.State == Ended {
			return e.Received
		}
	}
	return -1
}

func TestWaitingBytesArrive(t *testing.T) {
	const size = 8 << 20
	port := serve(t, func(c net.Conn) { c.Write(make([]byte, size)) })
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	cmd, out := n.start("slow", "api.test:"+port)
	b, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(size) {
		t.Errorf("got %q, %v", b, err)
	}
}

// A program that holds as many connections as it can get leaves descriptors for the session.
func TestConnectionsLeaveDescriptors(t *testing.T) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	low := files
	low.Cur = 400
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &files)
	var asked atomic.Int64
	port := serve(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(&asked, local)})
	cmd, out := n.start("hold", "api.test:"+port)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "refused\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if held := len(n.g.Conns()); held == 0 || held > 100 {
		t.Errorf("%d connections are held, with 400 descriptors", held)
	}
	_ = cmd.Process.Kill()
}

func init() {
	// hold keeps connections to args[0] open until one more is refused, 300 at most.
	programs["hold"] = func(args []string) error {
		var held []net.Conn
		for range 300 {
			c, err := net.Dial("tcp", args[0])
			if err == nil {
				held = append(held, c)
				c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				_, err = c.Read(make([]byte, 1))
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				fmt.Println("refused")
				time.Sleep(time.Minute) // is killed
			}
		}
		return fmt.Errorf("%d connections are held", len(held))
	}
}
