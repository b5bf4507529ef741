package network

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

// Events name the program that made the connection.
func TestEventsNameThePrograms(t *testing.T) {
	usual := recordSearch
	t.Cleanup(func() { recordSearch = usual })
	recordSearch = testkit.Patience // on a busy machine a search takes longer than the usual bound
	port := echo(t)
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test:"+port+",rebound.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), func(name string) []string {
		if name == "rebound.test" {
			return []string{"169.254.169.254"}
		}
		return []string{"127.0.0.1"}
	})})
	n.run("series", "hi", "api.test:"+port, "api.test:"+port, "api.test:1", "10.0.0.1:80", "rebound.test:80")
	const want = 7 // two connections are opened and end, and three are refused
	named := 0
	if !testkit.Eventually(func() bool { // the ends are recorded after the program has seen them
		n.mu.Lock()
		defer n.mu.Unlock()
		named = 0
		for _, e := range n.events {
			if e.Program.Path.Raw() == exe(t) && e.Program.PID > 0 {
				named++
			} else if e.Port != 0 {
				t.Errorf("%+v", e)
			}
		}
		return named >= want || t.Failed()
	}) || named != want {
		t.Errorf("%d events name the program, want %d", named, want)
	}
}

// All searches for the programs of records share a bound on their time. When the bound is reached, a
// search for a question still finds the program.
func TestSearchesForProgramsAreBounded(t *testing.T) {
	port := echo(t)
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	cmd, _ := n.start("idle", "kept", "1", "api.test:"+port)
	n.waitForConns(1)
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

func init() {
	// swaps connects to args[0] and reads a byte. When a second byte comes, it resets the connection
	// and listens at the port from which it had connected.
	programs["swaps"] = func(args []string) error {
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return err
		}
		at := c.LocalAddr().(*net.TCPAddr)
		fmt.Println("connected")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // the test has seen the connection
			return err
		}
		reset(c.(*net.TCPConn))
		l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: at.Port})
		if err != nil {
			return err
		}
		fmt.Println("listening")
		_, err = l.Accept()
		return err
	}
}

// A closed connection has no program, even if a process now listens at its port.
func TestClosedConnectionHasNoProgram(t *testing.T) {
	next := make(chan struct{})
	port := serve(t, func(c net.Conn) {
		_, _ = c.Write([]byte{0})
		<-next
		_, _ = c.Write([]byte{0})
		_, _ = c.Read(make([]byte, 1))
	})
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	cmd, out := n.start("swaps", "api.test:"+port)
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "connected\n" {
		t.Fatal(line, err)
	}
	c := n.openConns()[0]
	if p := n.g.owner(c, false); p.PID != cmd.Process.Pid {
		t.Errorf("%+v", p)
	}
	close(next)
	if line, err := r.ReadString('\n'); line != "listening\n" {
		t.Fatal(line, err)
	}
	if p := n.g.owner(c, false); p != (Program{}) {
		t.Errorf("%+v", p)
	}
	from, to := c.ends()
	if inode, err := n.g.inside.owners.inode(from, to, questionSearch); err == nil {
		t.Errorf("inode %d", inode)
	}
	_ = cmd.Process.Kill()
}
