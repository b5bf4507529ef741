package proxy

import (
	"testing"
	"time"
)

// SetDrain makes proxies wait so long for a server to read its answers when the host has left,
// until the test ends. It is called before a proxy runs, and before the clean-up that ends it is
// registered.
func SetDrain(t testing.TB, d time.Duration) {
	before := drainFor
	drainFor = d
	t.Cleanup(func() { drainFor = before })
}

// Kept returns the number of calls that a proxy keeps, under any id, and their bytes.
func (p *Proxy) Kept() (calls, held int) {
	c := &p.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byHost) + len(c.byServer) + len(c.byQuestion), c.held
}
