package tools

// Hold lowers the bounds of calls without an answer to n bytes, for lines and for bodies.
// It returns the function that restores them.
func Hold(n int64) (restore func()) {
	lines, bodies := maxHeld, subjectBodies
	maxHeld, subjectBodies = n, n
	return func() { maxHeld, subjectBodies = lines, bodies }
}
