package network

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func init() {
	// stuff opens args[1] connections to args[0] and writes to them until nobody takes more.
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

// heap returns how many bytes of memory are in use, buffers that wait for a use among them.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Connections whose bytes nobody takes hold no buffer.
func TestStuckConnectionsHoldNoBuffers(t *testing.T) {
	const count = 200
	done := make(chan struct{})
	port := serve(t, func(net.Conn) { <-done })
	defer close(done)
	n := newNamespace(t, Options{Rules: mustRules(t, "api.test,127.0.0.1"), Resolver: resolver(new(atomic.Int64), local)})
	before := heap()
	cmd, out := n.start("stuff", "api.test:"+port, fmt.Sprint(count))
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "stuffed\n" {
		t.Fatal(line, err)
	}
	if held := len(n.g.Conns()); held != count {
		t.Errorf("%d connections are held", held)
	}
	if each := (heap() - before) / count; each > 20<<10 {
		t.Errorf("each connection holds %d bytes", each)
	}
	_ = cmd.Process.Kill()
}
