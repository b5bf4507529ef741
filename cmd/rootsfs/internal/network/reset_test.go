package network

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

func init() {
	// slow connects to args[0], waits so that the other side can end first, and reads. It prints how
	// many bytes came.
	programs["slow"] = func(args []string) error {
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		time.Sleep(300 * time.Millisecond)
		k, err := io.Copy(io.Discard, c)
		fmt.Println(k)
		return err
	}
}

// Bytes that a host sent before it broke the connection off arrive, as they do without a gate.
func TestBytesBeforeAResetArrive(t *testing.T) {
	const size = 8 << 20
	port := serve(t, func(c net.Conn) {
		io.ReadFull(c, make([]byte, 1))
		c.Write(make([]byte, size))
		testkit.Eventually(func() bool { return queued(c.(*net.TCPConn)) == 0 })
		c.(*net.TCPConn).SetLinger(0)
	})
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	if got := n.run("count", "api.test:"+port); got != fmt.Sprint(size) {
		t.Errorf("%s bytes arrived, want %d", got, size)
	}
}

func init() {
	// count sends a byte, reads late, and prints how many bytes came before the end or an
	// error.
	programs["count"] = func(args []string) error {
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		c.Write([]byte{0})
		time.Sleep(300 * time.Millisecond)
		k, _ := io.Copy(io.Discard, c)
		fmt.Println(k)
		return nil
	}
}

// If a host resets a connection without having read the program's bytes, the connection ends before
// flushTimeout: the gate does not wait for these bytes to be acknowledged.
func TestResetBeforeBytesAreTaken(t *testing.T) {
	port := serve(t, func(c net.Conn) {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err == nil {
			err = peek(raw, func(int, []byte) bool { return true })
		}
		if err != nil {
			t.Error(err)
		}
		c.(*net.TCPConn).SetLinger(0)
	})
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	if got := n.run("many", append([]string{"hello"}, slices.Repeat([]string{"api.test:" + port}, 10)...)...); strings.Count(got, "error: ") != 10 {
		t.Errorf("got %q", got)
	}
	n.g.Close() // waits for the last records
	for _, e := range n.events {
		if e.Duration >= flushTimeout {
			t.Errorf("%+v", e)
		}
	}
}
