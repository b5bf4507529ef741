package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// relayService returns a service that forwards each connection to host, and the answer back. If the
// service cannot dial host, it answers with the error.
func relayService(t *testing.T, n **namespace, host, port string) *Service {
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{Name: "one.service.test", Host: host, Port: uint16(p)}
	s.Serve = func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				out, err := (*n).g.Dial(context.Background(), s)
				if err != nil {
					_, _ = io.Copy(io.Discard, c)
					fmt.Fprintf(c, "no: %v", err)
					return
				}
				defer out.Close()
				var wg sync.WaitGroup
				wg.Go(func() {
					_, _ = io.Copy(out, struct{ io.Reader }{c})
					_ = out.(*dialledConn).Conn.(*net.TCPConn).CloseWrite()
				})
				_, _ = io.Copy(struct{ io.Writer }{c}, out)
				_ = c.(*servedConn).CloseWrite()
				wg.Wait()
			}()
		}
	}
	return s
}

func newServiceNamespace(t *testing.T, host, port string, o Options) (*namespace, *Service) {
	var n *namespace
	s := relayService(t, &n, host, port)
	o.Services = []*Service{s}
	if o.Resolver == nil {
		o.Resolver = resolver(new(atomic.Int64), local)
	}
	n = newNamespace(t, o)
	return n, s
}

// A program reaches a service by its name and port, and through it the one host that the
// service dials. It cannot reach that host directly. This is also true without
// nf_tables and without routes.
func TestService(t *testing.T) {
	port := echo(t)
	for name, lacks := range map[string]func(*Sockets){
		"every port": nil,
		"some ports": func(s *Sockets) { s.Netfilter.Close(); s.Netfilter = nil },
		"no routes":  func(s *Sockets) { s.Route.Close(); s.Route = nil },
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct{ address, want string }{
				{"one.service.test:80", "you said hello"},
				{"one.service.test:81", "error"},
				{"two.service.test:80", "error"},
				{"127.0.0.1:" + port, "error"},
			} {
				n, _ := newServiceNamespace(t, "127.0.0.1", port, Options{})
				if n.lacks = lacks; name == "no routes" {
					n.dns = "127.0.0.1:53"
				}
				if got := n.run("get", c.address, "hello"); !strings.HasPrefix(got, c.want) {
					t.Errorf("%s: got %q", c.address, got)
				}
				if c.want == "error" {
					continue
				}
				n.g.Close()
				e := n.find(Ended, "127.0.0.1")
				if e.Sent != 5 || e.Received != 14 || e.Addr.String() != "127.0.0.1:"+port {
					t.Errorf("the end of the service's connection is %+v", e)
				}
			}
		})
	}
}

// A service's host is checked like any host: its name may not lead to this machine, unless the
// address has a rule. Such a rule does not let the program connect to the host by its name.
func TestServiceHostIsChecked(t *testing.T) {
	port := echo(t)
	n, _ := newServiceNamespace(t, "api.test", port, Options{})
	if got := n.run("get", "one.service.test:80", "hello"); !strings.Contains(got, ErrClosed.Error()) {
		t.Errorf("got %q", got)
	}
	if e := n.find(Refused, "api.test"); !errors.Is(e.Reason, ErrClosed) {
		t.Errorf("event is %+v", e)
	}
	for address, want := range map[string]string{"one.service.test:80": "you said hello", "api.test:" + port: "error"} {
		n, _ = newServiceNamespace(t, "api.test", port, Options{Rules: mustRules(t, "127.0.0.1:"+port)})
		if got := n.run("get", address, "hello"); !strings.HasPrefix(got, want) {
			t.Errorf("with a rule for the address, %s: got %q", address, got)
		}
	}
}

// RemoveService ends connections that move bytes, and a removed service cannot dial. Removing the
// rule of an address ends the connections that need the rule. Close ends all connections.
func TestRemoveService(t *testing.T) {
	for _, what := range []string{"service", "rule", "close"} {
		t.Run(what, func(t *testing.T) {
			port := serve(t, func(c net.Conn) {
				b := make([]byte, 4096)
				for {
					if _, err := c.Write(b); err != nil {
						return
					}
				}
			})
			rules := mustRules(t, "127.0.0.1")
			n, s := newServiceNamespace(t, "api.test", port, Options{Rules: rules})
			cmd, out := n.start("flood", "one.service.test:80")
			r := bufio.NewReader(out)
			if line, err := r.ReadString('\n'); line != "begun\n" {
				t.Fatal(line, err)
			}
			conns := n.openConns()
			switch what {
			case "service":
				if ended := n.g.RemoveService(s); ended != 2 || len(n.g.Services()) != 0 {
					t.Errorf("%d connections were ended", ended)
				}
				if _, err := n.g.Dial(context.Background(), s); !errors.Is(err, ErrNoRule) {
					t.Errorf("a service that was removed dials: %v", err)
				}
			case "rule":
				n.g.Remove(rules...)
			case "close":
				n.g.Close()
				if _, err := n.g.Dial(context.Background(), s); !errors.Is(err, ErrEnded) {
					t.Errorf("a service dials after Close: %v", err)
				}
			}
			for _, c := range conns {
				if c.outside == nil {
					continue
				}
				if _, err := c.outside.Write(nil); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a connection is not closed: %v", err)
				}
			}
			rest, _ := io.ReadAll(r)
			_ = cmd.Wait()
			if what != "rule" && !strings.Contains(string(rest), "reset") {
				t.Errorf("the program said %q", rest)
			}
			n.g.Close()
			if e := n.find(Ended, "api.test"); e.Reason == nil || e.Received == 0 {
				t.Errorf("event is %+v", e)
			}
		})
	}
}

// Bytes between a service and its host count towards the limits.
func TestServiceKeepsToLimits(t *testing.T) {
	port := echo(t)
	n, s := newServiceNamespace(t, "127.0.0.1", port, Options{Limits: Limits{Bytes: 7, BytesPerSecond: 50}})
	if got := n.run("get", "one.service.test:80", "hello"); got != "yo" && !strings.HasPrefix(got, "yo\nerror") && !strings.HasPrefix(got, "error") {
		t.Errorf("got %q", got)
	}
	if _, err := n.g.Dial(context.Background(), s); !errors.Is(err, ErrLimit) {
		t.Errorf("beyond the limit: %v", err)
	}
	if e := n.find(Ended, "127.0.0.1"); e.Sent != 5 || e.Received != 2 || !errors.Is(e.Reason, ErrLimit) {
		t.Errorf("event is %+v", e)
	}
}

// A program may hold maxServed connections to services. Further ones are refused until one of
// these ends.
func TestServicesAreBounded(t *testing.T) {
	g := New(Options{Services: []*Service{{Name: "one.service.test"}}})
	defer g.Close()
	s := g.Services()[0]
	var held []*conn
	for range maxServed {
		c := &conn{inside: &net.TCPConn{}, service: s, port: ServicePort}
		if err := g.register(c); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	more := &conn{inside: &net.TCPConn{}, service: s, port: ServicePort}
	if err := g.register(more); !errors.Is(err, errTooManyServed) {
		t.Errorf("one more: %v", err)
	}
	if err := g.register(&conn{service: s}); err != nil {
		t.Errorf("one that a service dials: %v", err)
	} else {
		g.served.Done()
	}
	g.unserve(held[0])
	if err := g.register(more); err != nil {
		t.Errorf("when one has ended: %v", err)
	}
	for _, c := range append(held[1:], more) {
		g.unserve(c)
	}
}

// newDoor returns a namespace with a service, the door, that answers on behalf of two other services
// at the name of their host.
func newDoor(t *testing.T, answer func(net.Conn), o Options) (n *namespace, door *Service) {
	door = &Service{Name: "api.test", InsidePort: 443, For: []*Service{{Name: "one.service.test"}, {Name: "two.service.test"}}}
	door.Serve = func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); answer(c) }()
		}
	}
	for _, s := range door.For {
		s.Serve = func(net.Listener) {}
	}
	o.Services, o.Resolver = append([]*Service{door}, door.For...), resolver(new(atomic.Int64), local)
	return newNamespace(t, o), door
}

// A service at the name of a host answers at its own port, even if a rule permits the host. The
// rules decide about the other ports, and about this one when the service is gone.
func TestServiceAtAHost(t *testing.T) {
	port := echo(t)
	for _, c := range []struct {
		address, want string
		isGone        bool
	}{
		{"api.test:443", "the door", false},
		{"api.test:" + port, "you said hello", false},
		{"api.test:444", "error", false},
		{"api.test:443", "error", true},
		{"api.test:" + port, "you said hello", true},
	} {
		n, door := newDoor(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c); fmt.Fprint(c, "the door") }, Options{Rules: mustRules(t, "api.test:"+port+",127.0.0.1")})
		if n.g.RemoveService(door.For[0]); c.isGone {
			n.g.RemoveService(door.For[1])
		}
		if got := n.run("get", c.address, "hello"); !strings.HasPrefix(got, c.want) || n.g.IsLive(door) == c.isGone {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

// A door answers on behalf of two services. Removing one of them ends the connections to the door,
// which may carry bytes of either.
func TestRemoveServiceAtAHost(t *testing.T) {
	n, door := newDoor(t, func(c net.Conn) {
		b := make([]byte, 4096)
		for err := error(nil); err == nil; {
			_, err = c.Write(b)
		}
	}, Options{})
	cmd, out := n.start("flood", "api.test:443")
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "begun\n" {
		t.Fatal(line, err)
	}
	if ended := n.g.RemoveService(door.For[1]); ended != 1 || !n.g.IsLive(door) {
		t.Fatalf("%d connections were ended", ended)
	}
	rest, _ := io.ReadAll(r)
	_ = cmd.Wait()
	if !strings.Contains(string(rest), "reset") {
		t.Errorf("the program said %q", rest)
	}
}
