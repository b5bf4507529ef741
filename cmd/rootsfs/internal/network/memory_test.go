package network

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/integration/testkit"
)

func init() {
	// stuff opens args[1] connections to args[0] and writes to them until the peers accept no
	// more.
	programs["stuff"] = func(args []string) error {
		count, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		for range count {
			c, err := net.Dial("tcp", args[0])
			if err != nil {
				return err
			}
			wg.Go(func() {
				for b := make([]byte, 1<<16); err == nil; _, err = c.Write(b) {
					c.SetWriteDeadline(time.Now().Add(time.Second))
				}
			})
		}
		wg.Wait()
		fmt.Println("stuffed")
		time.Sleep(time.Minute) // is killed
		return nil
	}
}

func init() {
	// idle opens args[1] connections to each of args[2:] and keeps them, without a byte.
	// If args[0] is "closed", it closes each at once.
	programs["idle"] = func(args []string) error {
		count, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		var held []net.Conn
		for range count {
			for _, address := range args[2:] {
				c, err := net.Dial("tcp", address)
				if err != nil {
					continue // it is refused already
				}
				if args[0] == "closed" {
					c.Close()
				} else {
					held = append(held, c)
				}
			}
		}
		fmt.Println("opened")
		time.Sleep(time.Minute) // is killed
		runtime.KeepAlive(held)
		return nil
	}
}

// memory returns how many bytes are in use on the heap and on the stacks of goroutines.
func memory() int64 {
	var m runtime.MemStats
	bytes := heap()
	runtime.ReadMemStats(&m)
	return bytes + int64(m.StackInuse)
}

// waitForConns waits until the gate holds a number of connections.
func (n *namespace) waitForConns(count int) {
	n.t.Helper()
	if !testkit.Eventually(func() bool { return len(n.g.Conns()) == count }) {
		n.t.Errorf("%d connections are held, want %d", len(n.g.Conns()), count)
	}
}

// Each connection that is opened and never written to takes little memory of this process.
func TestIdleConnectionsAreSmall(t *testing.T) {
	const count = 1000
	port := serve(t, func(c net.Conn) { c.Read(make([]byte, 1)) })
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	n.drop = true
	before := memory()
	cmd, out := n.start("idle", "kept", fmt.Sprint(count), "api.test:"+port)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "opened\n" {
		t.Fatal(line, err)
	}
	n.waitForConns(count)
	// The host of this test has a goroutine for each, too.
	each := (memory() - before) / count
	t.Logf("%d bytes for each connection, the host's side included", each)
	if each > 40<<10 {
		t.Errorf("each connection holds %d bytes", each)
	}
	_ = cmd.Process.Kill()
	n.waitForConns(0)
}

// After a flood of connections that are closed or refused at once, at most 8 MiB more memory is in
// use than before.
func TestFloodOfConnectionsLeavesNothing(t *testing.T) {
	const count = 3000
	port := serve(t, func(c net.Conn) { c.Read(make([]byte, 1)) })
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test:"+port+",127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	n.drop = true
	before := memory()
	cmd, out := n.start("idle", "closed", fmt.Sprint(count), "api.test:"+port, "api.test:1", "10.0.0.1:80")
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "opened\n" {
		t.Fatal(line, err)
	}
	n.waitForConns(0)
	// The host's side of this test has to end its goroutines, too. On a busy machine it does so
	// late.
	var left int64
	if !testkit.Eventually(func() bool { left = memory() - before; return left <= 8<<20 }) {
		t.Errorf("%d bytes are left of %d connections", left, 3*count)
	}
	_ = cmd.Process.Kill()
}

// heap returns how many bytes are in use on the heap, including pooled buffers.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// kernelMemory returns how many bytes TCP holds on this machine (/proc/net/sockstat).
func kernelMemory(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "TCP: ")
	_, pages, _ := strings.Cut(after, " mem ")
	n, err := strconv.ParseInt(strings.Fields(pages)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n * int64(os.Getpagesize())
}

// Connections whose peer does not read hold no buffer. The kernel's own buffers for them are
// logged, not bounded here.
func TestStuckConnectionsHoldNoBuffers(t *testing.T) {
	const count = 200
	done := make(chan struct{})
	port := serve(t, func(net.Conn) { <-done })
	defer close(done)
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	before, inKernel := heap(), kernelMemory(t)
	cmd, out := n.start("stuff", "api.test:"+port, fmt.Sprint(count))
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "stuffed\n" {
		t.Fatal(line, err)
	}
	if held := len(n.g.Conns()); held != count {
		t.Errorf("%d connections are held", held)
	}
	t.Logf("the kernel holds %d bytes for each connection, the program's and the host's ends included", (kernelMemory(t)-inKernel)/count)
	if each := (heap() - before) / count; each > 20<<10 {
		t.Errorf("each connection holds %d bytes", each)
	}
	_ = cmd.Process.Kill()
}
