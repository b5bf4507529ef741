package network

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func init() {
	// holds connects to args[0] and sends args[1], which is in hexadecimal. It prints "begun" when
	// the answer begins, then reads until the connection ends.
	programs["holds"] = func(args []string) error {
		sent, err := hex.DecodeString(args[1])
		if err != nil {
			return err
		}
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		if _, err := c.Write(sent); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return err
		}
		fmt.Println("begun")
		_, err = io.Copy(io.Discard, c)
		return err
	}
}

// answerAfter serves at 127.0.0.1: it answers when count bytes have come, then echoes every byte.
func answerAfter(t *testing.T, count int) (port string) {
	return serve(t, func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, count)); err != nil {
			return
		}
		_, _ = c.Write([]byte{0})
		_, _ = io.Copy(c, c)
	})
}

// secondHello returns the record of the second hello in a TLS handshake. Both hellos have the server
// name server. secondHello leaves out the other records of the handshake.
func secondHello(t *testing.T, server string) []byte {
	t.Helper()
	_, second := helloPair(t, server)
	if second[0] == changeCipherRecord {
		second = second[recordSize(second):]
	}
	return second[:recordSize(second)]
}

// A connection ends when anything that permitted it is removed: the rule of its name or
// address, of the address that its name leads to, or of a server name that a hello asked for.
func TestRemovedRuleEndsConnections(t *testing.T) {
	for _, c := range []struct {
		what, host string
		sent       []byte
		removed    string // a rule
		ended      int
	}{
		{"the name", "a.test", hello("a.test"), "a.test", 1},
		{"the address that the name leads to", "a.test", hello("a.test"), "127.0.0.1:PORT", 1},
		{"the server name", "a.test", hello("b.test"), "b.test", 1},
		{"the server name, by a wildcard", "a.test", hello("c.wild.test"), "*.wild.test", 1},
		{"the name, which is not the server name", "a.test", hello("b.test"), "a.test", 1},
		{"the server name of the second hello", "a.test", append(hello("a.test"), secondHello(t, "b.test")...), "b.test", 1},
		{"the server name of the first hello", "a.test", append(hello("b.test"), secondHello(t, "a.test")...), "b.test", 1},
		{"the address", "127.0.0.1", []byte("hello"), "127.0.0.1:PORT", 1},
		{"the server name at an address", "127.0.0.1", hello("b.test"), "b.test", 1},
		{"another name", "a.test", hello("a.test"), "b.test", 0},
	} {
		for how, remove := range map[string]func(*Gate, ...Rule) int{"Remove": (*Gate).Remove, "Expire": (*Gate).Expire} {
			t.Run(c.what+", "+how, func(t *testing.T) {
				port := answerAfter(t, len(c.sent))
				n := newNamespace(t, Options{Rules: mustRules(t, "a.test,b.test,*.wild.test,127.0.0.1:"+port), Resolver: resolver(new(atomic.Int64), local)})
				_, out := n.start("holds", c.host+":"+port, hex.EncodeToString(c.sent))
				r := bufio.NewReader(out)
				if line, err := r.ReadString('\n'); line != "begun\n" {
					t.Fatal(line, err)
				}
				gone := mustRules(t, strings.ReplaceAll(c.removed, "PORT", port))
				if list := n.g.Conns(); len(list) != 1 || slices.Contains(list[0].Rules, gone[0]) != (c.ended == 1) {
					t.Errorf("before the rule is removed the connections are %+v", list)
				}
				if ended := remove(n.g, gone...); ended != c.ended {
					t.Fatalf("%d connections were ended, want %d", ended, c.ended)
				}
				if c.ended == 0 {
					return
				}
				if rest, _ := io.ReadAll(r); !strings.Contains(string(rest), "error:") {
					t.Errorf("the program said %q", rest)
				}
				if e := n.find(Ended, c.host); !errors.Is(e.Reason, ErrRevoked) {
					t.Errorf("%+v", e)
				}
			})
		}
	}
}

// If the rule for the server name in a hello is removed while the gate checks the hello, bytes that
// the program sends after Remove has returned do not arrive.
func TestRemoveWhileHelloIsChecked(t *testing.T) {
	b := mustRules(t, "b.test")
	sent := hello("b.test")
	for round := range 200 {
		program, inside := smallPair(t)
		outside, host := smallPair(t)
		g := New(Options{Rules: mustRules(t, "a.test,b.test")})
		g.log = slog.New(slog.DiscardHandler)
		c := &conn{inside: inside, host: "a.test", port: 443}
		if err := g.register(c); err != nil {
			t.Fatal(err)
		}
		c.outside, c.addr = outside, netip.MustParseAddrPort("192.0.2.1:443")
		g.served.Go(func() { g.relay(c) })
		program.Write(sent)
		for range round { // Remove comes a little later in each round
			runtime.Gosched()
		}
		if round%4 == 3 {
			if _, err := io.ReadFull(host, make([]byte, len(sent))); err != nil {
				t.Fatal(err)
			}
		}
		g.Remove(b...)
		program.Write([]byte("\x17\x03\x03\x00\x04late"))
		program.CloseWrite()
		got, _ := io.ReadAll(host)
		if strings.HasSuffix(string(got), "late") {
			t.Fatalf("round %d: bytes that were sent after Remove have arrived", round)
		}
		g.Close()
		for _, one := range []*net.TCPConn{program, host} {
			one.Close()
		}
	}
}

// TLS to an address may ask for an approved name, for the address itself, or for no name.
func TestServerNamesAtAddresses(t *testing.T) {
	for _, c := range []struct {
		host, server string
		any          bool
		want         string
	}{
		{"127.0.0.1", "", false, "begun"},
		{"127.0.0.1", "b.test", false, "begun"}, // is approved
		{"127.0.0.1", "evil.test", false, "error:"},
		{"127.0.0.1", "evil.test", true, "begun"},
		{"127.0.0.1", "localhost", false, "begun"}, // no rule can name it
		{"127.0.0.1", "evil.localhost.test", false, "error:"},
		{"a.test", "localhost", false, "error:"},
		{"127.0.0.1", "127.0.0.1", false, "begun"},
		{"127.0.0.1", "127.0.0.2", false, "error:"},
	} {
		t.Run(fmt.Sprintf("%s asked for %s, any %v", c.host, c.server, c.any), func(t *testing.T) {
			sent := hello(c.server)
			if _, err := netip.ParseAddr(c.server); err == nil { // crypto/tls does not ask for addresses
				sent = bytes.ReplaceAll(hello("some.test"), []byte("some.test"), []byte(c.server))
			}
			port := answerAfter(t, len(sent))
			n := newNamespace(t, Options{Rules: mustRules(t, "a.test,b.test,127.0.0.1:"+port), Resolver: resolver(new(atomic.Int64), local), AnyServerName: c.any})
			cmd, out := n.start("holds", c.host+":"+port, hex.EncodeToString(sent))
			if line, err := bufio.NewReader(out).ReadString('\n'); !strings.HasPrefix(line, c.want) {
				t.Fatalf("got %q, %v; want %q", line, err, c.want)
			}
			_ = cmd.Process.Kill()
			if c.want != "error:" {
				return
			}
			if e := n.find(Ended, c.host); !errors.Is(e.Reason, ErrNoRule) || e.ServerName.Raw() != c.server {
				t.Errorf("%+v", e)
			}
		})
	}
}

// If the owner has allowed only an address, the gate does not pass on a TLS hello to this address
// that asks for a server name without a rule.
func TestServerNameAtAnAddressThatWasAllowed(t *testing.T) {
	g := New(Options{Rules: []Rule{target{"1.1.1.1", 443}.rule()}})
	g.log = slog.New(slog.DiscardHandler)
	defer g.Close()
	program, inside := smallPair(t)
	outside, host := smallPair(t)
	defer program.Close()
	defer host.Close()
	c := connTo(target{"1.1.1.1", 443})
	c.inside = inside
	if err := g.register(c); err != nil {
		t.Fatal(err)
	}
	c.outside = outside
	g.served.Go(func() { g.relay(c) })
	program.Write(hello("evil.test"))
	program.CloseWrite()
	if got, _ := io.ReadAll(host); len(got) > 0 {
		t.Errorf("%d bytes have arrived", len(got))
	}
}
