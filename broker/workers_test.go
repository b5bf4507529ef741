package broker

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"weak"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
	"github.com/rootsfs/rootsfs/integration/testkit"
)

// A request is answered by a waiting goroutine, if there is one. After many concurrent requests,
// at most maxIdle goroutines wait.
func TestWorkers(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadOnly, map[string]string{"a": "text"})
	p := l.connect("")
	awaitIdle := func(want func(int) bool) int {
		t.Helper()
		testkit.Eventually(func() bool { return want(len(p.s.idle)) })
		return len(p.s.idle)
	}
	// A goroutine that is about to wait may not wait yet when the next request comes;
	// that request then gets another goroutine.
	const requests = 20
	for range requests {
		p.must(wire.Stat, `{"path":"r/a"}`, nil)
		awaitIdle(func(n int) bool { return n > 0 })
	}
	if n := awaitIdle(func(n int) bool { return n > 0 }); n < 1 || n > requests/2 {
		t.Fatalf("%d goroutines wait after %d requests, want hardly more than one", n, requests)
	}
	var wg sync.WaitGroup
	for range 2 * maxIdle {
		_, ch := p.send(wire.Stat, `{"path":"r/a"}`)
		wg.Go(func() {
			if r := <-ch; r.Error != nil {
				t.Errorf("refused: %+v", r.Error)
			}
		})
	}
	wg.Wait()
	p.must(wire.Stat, `{"path":"r/a"}`, nil)
	if n := awaitIdle(func(n int) bool { return n > 0 }); n < 1 || n > maxIdle {
		t.Errorf("%d goroutines wait after many requests, want 1 to %d", n, maxIdle)
	}
}

// A waiting goroutine holds nothing of the request that it answered: a frame can be
// megabytes.
func TestWorkers_memory(t *testing.T) {
	l := newLab(t, nil)
	p := l.connect("")
	serve := func() weak.Pointer[byte] { // returns a pointer to the request's params
		params := append(bytes.Repeat([]byte{' '}, 1<<20), `{"path":"r/a"}`...)
		answered := make(chan struct{})
		p.s.Handle(wire.Frame{ID: []byte("1"), Method: wire.Stat, Params: params}, len(params), func(context.Context, []byte, Recheck) error {
			close(answered)
			return nil
		})
		<-answered
		return weak.Make(&params[0])
	}
	for range 2 { // by a new goroutine, and by one that waits
		held := serve()
		testkit.Eventually(func() bool { // the answer is sent before the goroutine waits
			runtime.GC()
			return held.Value() == nil
		})
		if held.Value() != nil || len(p.s.idle) != 1 {
			t.Fatalf("a request's frame is still held; %d goroutines wait", len(p.s.idle))
		}
	}
}
