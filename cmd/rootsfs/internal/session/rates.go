package session

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
	"github.com/rootsfs/rootsfs/guard"
)

// figures makes speeds of the counters of roots, and keeps those of the last
// minutes for whoever comes to look.
type figures struct {
	mu   sync.Mutex // guards the fields below
	at   time.Time  // of the counters
	last map[uint64]counters
	kept control.Figures
	idle bool // run adds no points: there are no operations
}

// counters are a root's, by epoch: one that is granted anew begins anew.
type counters struct{ ops, refused, read, written int64 }

func countersOf(r *guard.Status) counters {
	return counters{r.Ops, r.Refused, r.BytesRead, r.Written}
}

// rate is what was counted since another time, each second.
func (c counters) rate(was counters, seconds float64) control.Rate {
	return control.Rate{
		Ops: perSecond(c.ops-was.ops, seconds), Refused: perSecond(c.refused-was.refused, seconds),
		Read: perSecond(c.read-was.read, seconds), Written: perSecond(c.written-was.written, seconds),
	}
}

// perSecond is rounded to hundredths, which nobody can see: it is sent as text.
func perSecond(n int64, seconds float64) float64 {
	return math.Round(100*max(0, float64(n)/seconds)) / 100
}

// add takes the counters of now; roots are sorted by name.
func (f *figures) add(now time.Time, roots []guard.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	spent := now.Sub(f.at).Seconds()
	point := control.Figures{
		Last: f.kept.Last + 1, Times: []int64{now.UnixMilli()}, Rates: map[string][]control.Rate{},
	}
	var total control.Rate
	next := make(map[uint64]counters, len(roots))
	for i := range roots {
		r := &roots[i]
		have := countersOf(r)
		next[r.Epoch] = have
		// The first look at a root tells no speed: when it was granted is not known.
		var rate control.Rate
		if was, ok := f.last[r.Epoch]; ok && spent > 0 {
			rate = have.rate(was, spent)
		}
		total.Ops += rate.Ops
		total.Refused += rate.Refused
		total.Read += rate.Read
		total.Written += rate.Written
		if i < control.FiguresRoots {
			point.Rates[string(r.Grant.Root)] = []control.Rate{rate}
		}
	}
	point.Total = []control.Rate{total}
	f.at, f.last = now, next
	f.kept.Add(point)
}

// run takes the counters until ctx ends. It does not run while there are no operations.
func (f *figures) run(ctx context.Context, reg *guard.Registry) {
	for {
		f.add(time.Now(), reg.Roots())
		used := reg.NextUse()
		select {
		case <-ctx.Done():
			return
		case <-time.After(control.FiguresEvery):
		}
		select {
		case <-used:
			continue
		default:
		}
		f.add(time.Now(), reg.Roots())
		f.setIdle(true)
		select {
		case <-ctx.Done():
			return
		case <-used:
		}
		f.setIdle(false)
	}
}

// setIdle begins or ends a time without operations, in which run adds no points.
func (f *figures) setIdle(idle bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked(time.Now())
	f.idle = idle
}

// catchUpLocked adds the points of an idle time: nothing happened.
func (f *figures) catchUpLocked(now time.Time) {
	if !f.idle {
		return
	}
	if first := now.Add(-control.FiguresKept * control.FiguresEvery); f.at.Before(first) {
		f.at = first
	}
	for now.Sub(f.at) >= control.FiguresEvery {
		f.at = f.at.Add(control.FiguresEvery)
		point := control.Figures{
			Last: f.kept.Last + 1, Times: []int64{f.at.UnixMilli()}, Total: []control.Rate{{}}, Rates: map[string][]control.Rate{},
		}
		for name := range f.kept.Rates {
			point.Rates[name] = []control.Rate{{}}
		}
		f.kept.Add(point)
	}
}

// after returns the points that follow the one with a number.
func (f *figures) after(number uint64) control.Figures {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUpLocked(time.Now())
	return f.kept.After(number)
}
