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

// serveEndless serves connections that send without an end.
func serveEndless(t *testing.T) (port string) { return serveEndlessAfter(t, 0) }

// serveEndlessAfter serves connections that send without an end once they have got a number of
// bytes.
func serveEndlessAfter(t *testing.T, bytes int64) (port string) {
	return serve(t, func(c net.Conn) {
		if _, err := io.CopyN(io.Discard, c, bytes); err != nil {
			return
		}
		for b := make([]byte, 1<<16); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
}

func newLimited(t *testing.T, hosts string, l Limits) *namespace {
	return newNamespace(t, Options{
		Rules: append(mustRules(t, hosts), mustRules(t, "127.0.0.1")...), Resolver: resolver(new(atomic.Int64), local), Limits: l,
	})
}

// movedBytes closes the gate, and returns how many bytes the ended connections have moved.
func (n *namespace) movedBytes() (total int64) {
	n.g.Close() // waits for the last records
	for _, e := range n.events {
		if e.State == Ended {
			total += e.Sent + e.Received
		}
	}
	return total
}

// Connections together move exactly the permitted bytes, and are then reset. Further
// connections are refused.
func TestBytesInAllAreLimited(t *testing.T) {
	const most = 3<<20 + 7
	port := serveEndlessAfter(t, 1)
	n := newLimited(t, "api.test", Limits{Bytes: most})
	got := n.run("pour", "4", "api.test:"+port)
	if got != "4 were reset\nerror: refused" {
		t.Errorf("got %q", got)
	}
	if total := n.movedBytes(); total != most {
		t.Errorf("%d bytes were moved, want %d", total, most)
	}
	limits := 0
	for _, e := range n.events {
		if errors.Is(e.Reason, ErrLimit) {
			limits++
		}
	}
	if limits != 5 {
		t.Errorf("%d events tell of the limit, want 5: %+v", limits, n.events)
	}
}

func init() {
	// pour makes args[0] connections to args[1], sends a byte on each, and reads from them
	// until they end. Then it reads from one more.
	programs["pour"] = func(args []string) error {
		var conns []net.Conn
		for range int(args[0][0] - '0') {
			c, err := net.Dial("tcp", args[1])
			if err != nil {
				return err
			}
			conns = append(conns, c)
		}
		for _, c := range conns {
			c.Write([]byte{1}) // fails if it is reset already
		}
		for _, c := range conns {
			for b := make([]byte, 1<<16); ; {
				if _, err := c.Read(b); err != nil {
					break
				}
			}
		}
		fmt.Println(len(conns), "were reset")
		c, err := net.Dial("tcp", args[1])
		if err == nil {
			c.Write([]byte{1})
			_, err = c.Read(make([]byte, 1))
		}
		if err != nil {
			return errors.New("refused")
		}
		return nil
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	port := serve(t, func(c net.Conn) { c.Read(make([]byte, 1)) })
	n := newLimited(t, "api.test", Limits{Connections: 5})
	cmd, out := n.start("hold", "api.test:"+port)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "refused\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if held := len(n.g.Conns()); held != 5 {
		t.Errorf("%d connections are held, want 5", held)
	}
	if e := n.find(Refused, "api.test"); !errors.Is(e.Reason, ErrLimit) {
		t.Errorf("reason is %v", e.Reason)
	}
	_ = cmd.Process.Kill()
}

// All connections together keep to the pace. The test checks the least time that this takes.
func TestBytesPerSecondAreLimited(t *testing.T) {
	const speed, each = 10 << 20, 1 << 20
	port := serve(t, func(c net.Conn) {
		io.ReadFull(c, make([]byte, 1))
		c.Write(make([]byte, each))
	})
	n := newLimited(t, "api.test", Limits{BytesPerSecond: speed})
	began := time.Now()
	if got := n.run("pour", "4", "api.test:"+port); got != "4 were reset" { // pour prints this after any end
		t.Errorf("got %q", got)
	}
	took := time.Since(began)
	total := n.movedBytes()
	if least := time.Duration(float64(total-speed/10) / speed * float64(time.Second)); total < 4*each || took < least {
		t.Errorf("%d bytes took %v, want at least %v", total, took, least)
	}
}

// A connection that waits for its pace ends like any other.
func TestRemoveEndsWaitingConnections(t *testing.T) {
	port := serveEndless(t)
	n := newLimited(t, "api.test", Limits{BytesPerSecond: 1})
	cmd, out := n.start("flood", "api.test:"+port)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatal(line, err)
	}
	if ended := n.g.Remove(mustRules(t, "api.test")...); ended != 1 {
		t.Errorf("%d connections were ended", ended)
	}
	if e := n.find(Ended, "api.test"); !errors.Is(e.Reason, ErrRevoked) || e.Received == 0 {
		t.Errorf("event is %+v", e)
	}
	_ = cmd.Wait()
}
