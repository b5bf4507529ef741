package guard

import "time"

// SetWall replaces the registry's wall clock; checkInterval is the interval at which the registry's
// timers check the clock. Call SetWall before the first grant.
func (g *Registry) SetWall(wall func() time.Time, checkInterval time.Duration) {
	g.clock.Wall, g.clock.CheckInterval = wall, checkInterval
}

// AtStep makes this package call f before each step that tests can delay, until the returned
// function is called.
func AtStep(f func(step string)) (stop func()) {
	atStep = f
	return func() { atStep = nil }
}
