package broker

import (
	"sync"
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/broker/wire"
	"github.com/rootsfs/rootsfs/guard"
)

// A request is answered by a goroutine that waits, if one does, and no more wait
// than maxIdle after many at a time. (That Close returns, in the clean-up, shows
// that they end with the session.)
func TestWorkers(t *testing.T) {
	l := newLab(t, nil)
	l.root("r", guard.ReadOnly, map[string]string{"a": "text"})
	p := l.connect("")
	waiting := func(want func(int) bool) int {
		t.Helper()
		for range 500 { // the bound only ends a test that has failed
			if want(len(p.s.workers.idle)) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return len(p.s.workers.idle)
	}
	for range 10 {
		p.must(wire.Stat, `{"path":"r/a"}`, nil)
		if n := waiting(func(n int) bool { return n == 1 }); n != 1 {
			t.Fatalf("%d goroutines wait, want the one that answers each request", n)
		}
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
	if n := waiting(func(n int) bool { return n > 0 }); n == 0 {
		t.Error("nobody waits")
	}
}
