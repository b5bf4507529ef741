package network

import (
	"sync/atomic"
	"testing"
	"time"
)

// Events name the program that made the connection.
func TestEventsNameThePrograms(t *testing.T) {
	port := echo(t)
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test:"+port+",rebound.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), func(name string) []string {
		if name == "rebound.test" {
			return []string{"169.254.169.254"}
		}
		return []string{"127.0.0.1"}
	})})
	n.run("series", "hi", "api.test:"+port, "api.test:"+port, "api.test:1", "10.0.0.1:80", "rebound.test:80")
	n.find(Refused, "rebound.test")
	n.mu.Lock()
	defer n.mu.Unlock()
	named := 0
	for _, e := range n.events {
		if e.Program.Path == exe(t) && e.Program.PID > 0 {
			named++
		} else if e.Port != 0 {
			t.Errorf("%+v", e)
		}
	}
	if named != 7 { // two are opened and end

		t.Errorf("%d programs are named", named)
	}
}

// Searches for records have a bound, which those for questions do not have.
func TestSearchesOfProgramsAreBounded(t *testing.T) {
	port := echo(t)
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	cmd, _ := n.start("idle", "kept", "1", "api.test:"+port)
	n.settled(1)
	var c *conn
	n.g.mu.Lock()
	for c = range n.g.conns {
	}
	n.g.mu.Unlock()
	if p := n.g.owner(c, true); p.PID != cmd.Process.Pid {
		t.Errorf("%+v", p)
	}
	n.g.inside.owners.spent.ReserveN(time.Now(), searchBurst)
	if p := n.g.owner(c, true); p != (Program{}) {
		t.Errorf("%+v", p)
	}
	if p := n.g.owner(c, false); p.PID != cmd.Process.Pid {
		t.Errorf("%+v", p)
	}
	_ = cmd.Process.Kill()
}
