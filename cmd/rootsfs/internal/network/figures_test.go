package network

import (
	"bufio"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A gate counts the bytes that it carries and the connections that it refuses, and reports the
// speed.
func TestFigures(t *testing.T) {
	port := serveEndless(t)
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test:"+port), Resolver: resolver(new(atomic.Int64), local)})
	if got := n.run("get", "api.test:"+port, "hello"); !strings.Contains(got, "error:") {
		t.Errorf("a name that leads to this machine: got %q", got)
	}
	n.find(Refused, "api.test")
	if got := n.g.Totals(); got != (Totals{Refused: 1}) {
		t.Errorf("after a refusal: %+v", got)
	}

	port = echo(t)
	n = newNamespace(t, Options{Rules: mustRules(t, "api.test:"+port+",127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	if got := n.run("get", "api.test:"+port, "hello"); got != "you said hello" {
		t.Errorf("got %q", got)
	}
	n.find(Ended, "api.test")
	if got := n.g.Totals(); got != (Totals{Opened: 1, Sent: 5, Received: 14}) {
		t.Errorf("after a connection: %+v", got)
	}

	n = newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	cmd, out := n.start("flood", "api.test:"+serveEndless(t))
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatal(line, err)
	}
	n.g.mu.Lock()
	for c := range n.g.conns {
		c.sample.at = c.began.Add(-time.Second) // old enough for the next sample to measure a rate
	}
	n.g.mu.Unlock()
	testkit.Until(t, "delivered bytes are counted", func() bool { return n.g.Totals().Received > 0 })
	conns, totals := n.g.Conns(), n.g.Totals()
	if len(conns) != 1 || conns[0].Rate <= 0 || conns[0].Received == 0 || totals.Received < conns[0].Received {
		t.Errorf("while it moves bytes: %s, %+v", fmt.Sprint(conns), totals)
	}
	_ = cmd.Process.Kill()
}
