package flowcontrol

import (
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Events beyond the rate are counted, each kind by itself. No event is left out. The last event
// of a kind is reported with the count, after the interval or by Flush.
func TestTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally := NewTally[string](2, 0.001, time.Second)
		var mu sync.Mutex
		reported := map[int]int{} // counts, by the number of the event that was reported
		event := 0
		add := func(kind string) {
			event++
			n := event
			tally.Add(kind, func(count int) {
				mu.Lock()
				defer mu.Unlock()
				reported[n] = count
			})
		}
		check := func(want map[int]int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !maps.Equal(reported, want) {
				t.Fatalf("reported %v, want %v", reported, want)
			}
		}
		for range 10 {
			add("many")
		}
		add("other")
		check(map[int]int{1: 1, 2: 1})
		time.Sleep(time.Second)
		check(map[int]int{1: 1, 2: 1, 10: 8, 11: 1})
		add("many")
		add("many")
		tally.Flush()
		check(map[int]int{1: 1, 2: 1, 10: 8, 11: 1, 13: 2})
		tally.Flush()
		time.Sleep(time.Minute)
		check(map[int]int{1: 1, 2: 1, 10: 8, 11: 1, 13: 2})
	})
}
