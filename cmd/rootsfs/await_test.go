package main

import (
	"testing"
	"time"
)

// await waits for something that happens by itself, in another process or beside; the
// bound only ends a test that has failed.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: it has not come", what)
		}
	}
}
