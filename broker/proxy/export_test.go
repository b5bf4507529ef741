package proxy

// Kept returns the number of calls that a proxy keeps, under any id, and their bytes.
func (p *Proxy) Kept() (calls, held int) {
	c := &p.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byHost) + len(c.byServer) + len(c.byQuestion), c.held
}
