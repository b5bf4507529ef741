package ledger_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rootsfs/rootsfs/guard/ledger"
	"github.com/rootsfs/rootsfs/guard/rules"
)

// R076, R078: a burst of operations begins at once, and the others one after the other at the
// set speed. The default burst is the number of operations per second, rounded down, and at least
// one.
func TestSpeed(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit rules.Limits
		waits []time.Duration
	}{
		{"burst", rules.Limits{OpsPerSecond: 10, Burst: 2}, []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond}},
		{"default burst", rules.Limits{OpsPerSecond: 2.5}, []time.Duration{0, 0, 400 * time.Millisecond, 800 * time.Millisecond}},
		{"less than one operation a second", rules.Limits{OpsPerSecond: 0.5}, []time.Duration{0, 2 * time.Second, 4 * time.Second}},
		{"no speed limit", rules.Limits{Burst: 1}, []time.Duration{0, 0, 0, 0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := ledger.SpeedOf(&c.limit)
			for i, want := range c.waits {
				if got := s.Reserve(false).Wait; got != want {
					t.Errorf("%s: operation %d waits %v, want %v", c.name, i, got, want)
				}
			}
		})
	}
}

// A dry run learns the time of the next turn and does not take the turn. A turn that is given back
// goes to the next caller.
func TestSpeedGivesTurnsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ledger.SpeedOf(&rules.Limits{OpsPerSecond: 10, Burst: 1})
		checkWait := func(what string, turn ledger.Turn, want time.Duration) ledger.Turn {
			t.Helper()
			if turn.Wait != want {
				t.Errorf("%s: waits %v, want %v", what, turn.Wait, want)
			}
			return turn
		}
		checkWait("a dry run", s.Reserve(true), 0)
		checkWait("the first", s.Reserve(false), 0)
		checkWait("a dry run after it", s.Reserve(true), 100*time.Millisecond)
		second := checkWait("the second", s.Reserve(false), 100*time.Millisecond)
		second.Cancel()
		checkWait("the one after a cancelled turn", s.Reserve(false), 100*time.Millisecond)
		time.Sleep(200 * time.Millisecond)
		checkWait("a dry run after the speed allows another", s.Reserve(true), 0)
		ledger.Turn{}.Cancel() // nothing is reserved
	})
}

// The room for a record is handed over once, so that it is never both used and released.
func TestRoom(t *testing.T) {
	var r ledger.Room
	checkRoom := func(what string, n, want int64) {
		t.Helper()
		if n != want {
			t.Errorf("%s: %d, want %d", what, n, want)
		}
	}
	checkRoom("nothing promised", r.Take()+r.TakeClosing(), 0)
	r.SetRecord(300)
	r.SetClosing(700)
	checkRoom("the record's", r.Take(), 300)
	checkRoom("the record's, again", r.Take(), 0)
	checkRoom("the close's", r.TakeClosing(), 700)
	checkRoom("the close's, again", r.TakeClosing(), 0)
}
