package session

import (
	"runtime"
	"testing"
)

// A function for the end of garbage collections is called after each one.
func TestAfterEachCollection(t *testing.T) {
	calls := make(chan struct{}, 1000)
	afterEachCollection(func() {
		select {
		case calls <- struct{}{}:
		default:
		}
	})
	for range 3 {
		runtime.GC()
		<-calls
	}
}
