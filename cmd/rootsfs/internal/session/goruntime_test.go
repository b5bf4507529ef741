package session

import (
	"runtime"
	"testing"
)

// afterEachCollection calls its function after each garbage collection.
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
