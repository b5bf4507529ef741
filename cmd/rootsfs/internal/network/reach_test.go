package network

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// If the kernel lacks nf_tables, or if no routes can be made, an approved host is reached at the port
// of its rule.
func TestLessReach(t *testing.T) {
	port := echo(t)
	for _, c := range []struct {
		reach Reach
		dns   string
		lacks func(*Sockets)
	}{
		{SomePorts, "198.18.0.1:53", func(s *Sockets) { s.Netfilter.Close(); s.Netfilter = nil }},
		{NamedHosts, "127.0.0.1:53", func(s *Sockets) { s.Route.Close(); s.Route = nil }},
	} {
		t.Run(string(c.reach), func(t *testing.T) {
			n := newNamespace(t, Options{Rules: mustRules(t, "api.test:"+port+",127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
			n.dns, n.lacks = c.dns, c.lacks
			if got := n.run("get", "api.test:"+port, "hello"); got != "you said hello" {
				t.Errorf("got %q", got)
			}
			if got := n.g.Reach(); got != c.reach {
				t.Errorf("reach is %q", got)
			}
		})
	}
}

// A rule that is added while a program runs permits connections, even if the rule needs a listener.
func TestAddWhileServed(t *testing.T) {
	port := echo(t)
	n := newNamespace(t, Options{Resolver: resolver(new(atomic.Int64), local)})
	cmd, out := n.start("ask", "api.test:"+port, "127.0.0.1:"+port)
	r := bufio.NewReader(out)
	for _, want := range []string{"refused\n", "refused\n"} {
		if line, err := r.ReadString('\n'); line != want {
			t.Fatal(line, err)
		}
	}
	if err := n.g.Add(mustRules(t, "api.test,127.0.0.1:"+port)...); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(r)
	if err := cmd.Wait(); err != nil || string(rest) != "you said \nyou said \n" {
		t.Errorf("got %q, %v", rest, err)
	}
}

func init() {
	// ask tries each address of args once, and fails if an address answers. Then it tries each
	// address until the address answers, and prints the answer.
	programs["ask"] = func(args []string) error {
		try := func(address string) (string, bool) {
			c, err := net.Dial("tcp", address)
			if err != nil {
				return "", false
			}
			defer c.Close()
			_ = c.(*net.TCPConn).CloseWrite()
			b, err := io.ReadAll(c)
			return string(b), err == nil
		}
		for _, a := range args {
			if s, ok := try(a); ok {
				return errors.New("an address answers although no rule permits it: " + s)
			}
			fmt.Println("refused")
		}
		for _, a := range args {
			for {
				if s, ok := try(a); ok {
					fmt.Println(s)
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		return nil
	}
}
