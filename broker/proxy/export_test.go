package proxy

// Kept returns how many calls a proxy keeps, by any id, and their bytes.
func (p *Proxy) Kept() (calls, held int) {
	c := &p.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byHost) + len(c.byServer) + len(c.byQuestion), c.held
}
