package proxy

import (
	"testing"
	"time"
)

// SetDrain sets drainTimeout until the test ends. This is how long a proxy whose host has left waits
// for the server to read the answers to the server's requests. Call SetDrain before a proxy runs, and
// before the clean-up that ends the proxy is registered.
func SetDrain(t testing.TB, d time.Duration) {
	before := drainTimeout
	drainTimeout = d
	t.Cleanup(func() { drainTimeout = before })
}

// HeldCalls returns the number of entries in the maps of kept calls, and the bytes that the calls
// hold. A call has one entry for each id by which it can be found.
func (p *Proxy) HeldCalls() (calls, held int) {
	c := &p.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byHost) + len(c.byServer) + len(c.byQuestion), c.held
}
