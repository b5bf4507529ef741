package ledger_test

import (
	"testing"
	"time"

	"github.com/rootsfs/rootsfs/guard/ledger"
)

const day = 24 * time.Hour

// at returns the Instant at which the wall clock is at the time wall after 1970, and the monotonic
// clock at the time own after its start.
func at(wall, own time.Duration) ledger.Instant {
	return ledger.Instant{Wall: int64(wall), Own: int64(own)}
}

// R070: a grant ends at its time by the wall clock, or after its remaining time by the
// monotonic clock, whichever comes first.
func TestLifetimeEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		now  ledger.Instant
		left time.Duration
	}{
		{"at once", at(day, 0), time.Hour},
		{"later", at(day+time.Minute, time.Minute), 59 * time.Minute},
		{"the wall clock was set back", at(day-time.Hour, time.Minute), 59 * time.Minute},
		{"the wall clock stands still", at(day, 50*time.Minute), 10 * time.Minute},
		{"the wall clock was set forward", at(day+2*time.Hour, time.Minute), -time.Hour},
		{"the machine slept", at(day+time.Hour, 0), 0},
	} {
		var l ledger.Lifetime
		l.SetEnd(time.Unix(0, int64(day+time.Hour)), at(day, 0))
		if left, ok := l.Left(c.now, 0, false); !ok || left != c.left {
			t.Errorf("%s: %v left, %v; want %v", c.name, left, ok, c.left)
		}
	}
}

// A grant without an end, or whose end was removed, does not end. A new end replaces the old
// one.
func TestLifetimeEndIsReplaced(t *testing.T) {
	var l ledger.Lifetime
	if left, ok := l.Left(at(day, 0), 0, false); ok || !l.End().IsZero() {
		t.Errorf("no end: %v left, ends %v", left, l.End())
	}
	l.SetEnd(time.Unix(0, int64(day+time.Hour)), at(day, 0))
	later := time.Unix(0, int64(2*day))
	l.SetEnd(later, at(day, 0))
	if left, ok := l.Left(at(day, 0), 0, false); !ok || left != day || !l.End().Equal(later) {
		t.Errorf("renewed: %v left, %v, ends %v", left, ok, l.End())
	}
	l.SetEnd(time.Time{}, at(day, 0))
	if left, ok := l.Left(at(5*day, 5*day), 0, false); ok || !l.End().IsZero() {
		t.Errorf("taken away: %v left, ends %v", left, l.End())
	}
}

// R139: a grant with an idle time ends when it has not been used for that time. Granting,
// renewal, and a running or waiting operation count as use.
func TestLifetimeIdle(t *testing.T) {
	const idle = time.Hour
	for _, c := range []struct {
		name string
		used time.Duration // 0: never
		end  time.Duration // 0: none
		now  time.Duration
		busy bool
		left time.Duration
	}{
		{"granted", 0, 0, day, false, idle},
		{"not used since", 0, 0, day + 20*time.Minute, false, 40 * time.Minute},
		{"used", day + 10*time.Minute, 0, day + 20*time.Minute, false, 50 * time.Minute},
		{"used before it was renewed", day - time.Hour, 0, day + 20*time.Minute, false, 40 * time.Minute},
		{"over", day + 10*time.Minute, 0, day + 2*time.Hour, false, -50 * time.Minute},
		{"in use", day + 10*time.Minute, 0, day + 2*time.Hour, true, idle},
		{"the end comes first", 0, day + 30*time.Minute, day + 20*time.Minute, false, 10 * time.Minute},
		{"idle comes first", 0, day + 3*time.Hour, day + 20*time.Minute, false, 40 * time.Minute},
		{"in use until the end", 0, day + 30*time.Minute, day + 20*time.Minute, true, 10 * time.Minute},
	} {
		var l ledger.Lifetime
		end := time.Time{}
		if c.end != 0 {
			end = time.Unix(0, int64(c.end))
		}
		l.SetEnd(end, at(day, 0))
		if c.used != 0 {
			l.Use(time.Unix(0, int64(c.used)))
		}
		if left, ok := l.Left(at(c.now, c.now-day), idle, c.busy); !ok || left != c.left {
			t.Errorf("%s: %v left, %v; want %v", c.name, left, ok, c.left)
		}
	}
}

// If the wall clock is set back to before the last use, the idle time begins anew when Left is
// called next. The grant neither lives until the clock has caught up, nor ends at once.
func TestLifetimeIdleByAClockSetBack(t *testing.T) {
	var l ledger.Lifetime
	l.SetEnd(time.Time{}, at(day, 0))
	l.Use(time.Unix(0, int64(day)))
	back := day - 12*time.Hour
	for _, after := range []time.Duration{0, time.Minute, 59 * time.Minute} {
		if left, ok := l.Left(at(back+after, after), time.Hour, false); !ok || left != time.Hour-after {
			t.Errorf("%v after the clock was set back: %v left, %v", after, left, ok)
		}
	}
	if used := l.LastUse(); used.UnixNano() != int64(back) {
		t.Errorf("last used %v", used)
	}
}
