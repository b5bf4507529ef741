package guard

import "time"

// SetWall replaces the registry's wall clock; look is the interval at which its timers check
// the clock. Call it before the first grant.
func (g *Registry) SetWall(wall func() time.Time, look time.Duration) {
	g.clock.Wall, g.clock.CheckInterval = wall, look
}

// AtStep makes guard call f before each step that tests can block, until the returned function
// is called.
func AtStep(f func(step string)) (stop func()) {
	atStep = f
	return func() { atStep = nil }
}
