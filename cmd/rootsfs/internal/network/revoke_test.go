package network

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func init() {
	// floods opens args[1] connections to args[0]. Then it moves bytes both ways on all of them
	// until they break off. It prints "begun" when each connection has read for the first time.
	programs["floods"] = func(args []string) error {
		count, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		var conns []net.Conn
		for range count {
			c, err := net.Dial("tcp", args[0])
			if err == nil {
				_, err = c.Write([]byte{0})
			}
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, 1))
			}
			if err != nil {
				return err
			}
			conns = append(conns, c)
		}
		var wg sync.WaitGroup
		begun := make(chan struct{}, count)
		for _, c := range conns {
			wg.Go(func() { moveBytes(c, new(atomic.Int64), begun) })
		}
		for range count {
			<-begun
		}
		fmt.Println("begun")
		wg.Wait()
		return nil
	}
}

// moveBytes writes and reads until the connection breaks off. It adds the number of bytes that it
// reads to count, and sends to begun after the first read.
func moveBytes(c net.Conn, count *atomic.Int64, begun chan<- struct{}) {
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, 4096)
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond) // leaves the processors to the other connections
		}
	})
	b := make([]byte, 4096)
	for first := true; ; first = false {
		n, err := c.Read(b)
		count.Add(int64(n))
		if first {
			begun <- struct{}{}
		}
		if err != nil {
			break
		}
	}
	c.Close()
	wg.Wait()
}

// Remove ends many connections that move bytes. When Remove has returned, both sides of each
// connection are closed. Each connection gets an event, and together the events count at least the
// bytes that the host has read. ROOTSFS_SOAK=1 opens 1,000 connections.
func TestRemoveEndsManyConnections(t *testing.T) {
	count := 200
	if os.Getenv("ROOTSFS_SOAK") != "" {
		count = 1000
	}
	var atHost atomic.Int64 // bytes that the host has read
	var open sync.WaitGroup
	open.Add(count)
	port := serve(t, func(c net.Conn) {
		defer open.Done()
		one := make([]byte, 1)
		for range 2 { // the second byte comes when every connection is open
			if _, err := io.ReadFull(c, one); err != nil {
				return
			}
			atHost.Add(1)
			if _, err := c.Write(one); err != nil {
				return
			}
		}
		moveBytes(c, &atHost, make(chan struct{}, 1))
	})
	rule := mustRules(t, "api.test:"+port)
	n := newNamespace(t, Options{Rules: append(rule, mustRules(t, "127.0.0.1")...), Resolver: resolver(new(atomic.Int64), local)})
	cmd, out := n.start("floods", "api.test:"+port, fmt.Sprint(count))
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatal(line, err)
	}
	conns := n.openConns()
	began := time.Now()
	ended := n.g.Remove(rule...)
	took := time.Since(began)
	var sent, received int64
	for _, c := range conns {
		sent += c.sent.Load()
		received += c.received.Load()
		for _, side := range []*net.TCPConn{c.inside, c.outside} {
			if _, err := side.Write(nil); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a connection was not closed when Remove returned: %v", err)
			}
		}
	}
	if ended != count || len(conns) != count {
		t.Errorf("%d of %d connections were ended", ended, len(conns))
	}
	open.Wait()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("the program said %q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	n.g.Close() // waits for the last records
	t.Logf("Remove took %v; %d bytes were sent and %d received until then", took, sent, received)
	n.checkEnded(count, sent, received, atHost.Load())
}

// checkEnded compares the figures of events with sent and received, which were counted when Remove
// returned, and with atHost, the bytes that the host has read. Remove waits for at most one write for
// each connection and direction. The bytes of such a write may be counted after Remove has returned.
func (n *namespace) checkEnded(count int, sent, received, atHost int64) {
	var ended int
	var toHost, toProgram int64
	for _, e := range n.events {
		if e.State == Ended && errors.Is(e.Reason, ErrRevoked) {
			ended++
			toHost += e.Sent
			toProgram += e.Received
		}
	}
	if ended != count {
		n.t.Errorf("%d events tell that a connection ended, want %d", ended, count)
	}
	if late := int64(count) * copyBuffer; toHost > sent+late || toProgram > received+late {
		n.t.Errorf("after Remove %d bytes to the host and %d to the program were counted", toHost-sent, toProgram-received)
	}
	if atHost > toHost {
		n.t.Errorf("the host has got %d bytes, and %d are on record", atHost, toHost)
	}
}

// openConns returns the open connections themselves, with their counters.
func (n *namespace) openConns() (list []*conn) {
	n.g.mu.Lock()
	defer n.g.mu.Unlock()
	for c := range n.g.conns {
		list = append(list, c)
	}
	return list
}
