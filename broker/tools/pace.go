package tools

import "time"

// pacer lets something happen at most ten times a second. It is not for
// concurrent use.
type pacer struct{ last time.Time }

func (p *pacer) due() bool {
	now := time.Now()
	if now.Sub(p.last) < 100*time.Millisecond {
		return false
	}
	p.last = now
	return true
}
