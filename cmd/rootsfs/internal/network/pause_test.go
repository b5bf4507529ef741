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

func init() {
	// paused connects to args[0] and prints "begun" when a byte comes. When the connection ends, it
	// connects once more, and prints whether that failed. Then it tries until it gets a byte, and
	// prints "again".
	programs["paused"] = func(args []string) error {
		connect := func() (net.Conn, error) {
			c, err := net.Dial("tcp", args[0])
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, 1))
			}
			return c, err
		}
		c, err := connect()
		if err != nil {
			return err
		}
		fmt.Println("begun")
		_, _ = c.Read(make([]byte, 1)) // no byte comes: Read returns when the connection ends
		_, err = connect()
		for fmt.Println("refused", err != nil); err != nil; _, err = connect() {
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Println("again")
		return nil
	}
}

// A pause ends an open connection and refuses a new one. After Resume the rules permit connections
// again.
func TestPause(t *testing.T) {
	port := serve(t, func(c net.Conn) {
		_, _ = c.Write([]byte{0})
		_, _ = io.Copy(io.Discard, c)
	})
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test:"+port+",127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	_, out := n.start("paused", "api.test:"+port)
	r := bufio.NewReader(out)
	expect := func(want string) {
		t.Helper()
		if line, err := r.ReadString('\n'); err != nil || line != want+"\n" {
			t.Errorf("the program said %q, %v, want %q", line, err, want)
		}
	}
	expect("begun")
	n.g.Pause()
	expect("refused true")
	if e := n.find(Ended, "api.test"); !errors.Is(e.Reason, ErrPaused) {
		t.Errorf("the connection ended because of %v", e.Reason)
	}
	if e := n.find(Refused, "api.test"); !errors.Is(e.Reason, ErrPaused) {
		t.Errorf("the next connection was refused because of %v", e.Reason)
	}
	n.g.Resume()
	expect("again")
}
