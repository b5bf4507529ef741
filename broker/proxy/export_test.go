package proxy

import (
	"testing"
	"time"
)

// SetDrain sets, until the test ends, how long proxies wait for a server to read its answers when
// the host has left. Call it before a proxy runs, and before the clean-up that ends the proxy is
// registered.
func SetDrain(t testing.TB, d time.Duration) {
	before := drainTimeout
	drainTimeout = d
	t.Cleanup(func() { drainTimeout = before })
}

// HeldCalls returns the number of entries for calls, which have one for each id, and the bytes of
// the calls.
func (p *Proxy) HeldCalls() (calls, held int) {
	c := &p.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byHost) + len(c.byServer) + len(c.byQuestion), c.held
}
