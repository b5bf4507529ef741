package guard

import "time"

// SetWall makes the registry's wall clock show another time than the machine's, and
// look is how often its timers look at it. Before the first grant.
func (g *Registry) SetWall(wall func() time.Time, look time.Duration) {
	g.clock.Wall, g.clock.Look = wall, look
}

// AtStep has f called before each step of guard that tests hold up, until the returned
// func is called.
func AtStep(f func(step string)) (stop func()) {
	atStep = f
	return func() { atStep = nil }
}
