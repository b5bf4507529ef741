package live

import (
	"math"
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// kept is how many points of Figures there are at most: those of five minutes.
const kept = 300

// Rate is a speed, each figure a second.
type Rate struct {
	Ops     float64 `json:"ops"`
	Refused float64 `json:"refused"`
	Read    float64 `json:"read"`    // bytes
	Written float64 `json:"written"` // bytes
}

// Figures are a session's speeds over time, the oldest first. The zero Figures are
// none; they are not for concurrent use.
type Figures struct {
	Last  uint64  `json:"last"`  // number of the last point; the first is 1
	Times []int64 `json:"times"` // milliseconds since 1970, rising
	Total []Rate  `json:"total"` // of all roots
	// Rates has a list as long as Times for each of the first MaxRoots roots that there
	// are at the last point, by name; before a root was granted it holds zeros.
	Rates map[string][]Rate `json:"rates"`
}

// Add appends points that follow, and drops what is more than kept. Where
// the clock was set back the points before are dropped.
func (f *Figures) Add(more Figures) {
	if len(more.Times) == 0 {
		return
	}
	if n := len(f.Times); n > 0 && more.Times[0] <= f.Times[n-1] {
		*f = Figures{}
	}
	rates := make(map[string][]Rate, len(more.Rates))
	for name, line := range more.Rates {
		old, ok := f.Rates[name]
		if !ok {
			old = make([]Rate, len(f.Times))
		}
		rates[name] = lastPoints(append(old, line...))
	}
	f.Last, f.Rates = more.Last, rates
	f.Times = lastPoints(append(f.Times, more.Times...))
	f.Total = lastPoints(append(f.Total, more.Total...))
}

func lastPoints[T any](list []T) []T { return list[max(0, len(list)-kept):] }

// after returns a copy of the points that follow the one with a number; 0: of all.
func (f *Figures) after(number uint64) Figures {
	n := int(min(uint64(len(f.Times)), f.Last-number))
	out := Figures{Last: f.Last, Times: tail(f.Times, n), Total: tail(f.Total, n), Rates: make(map[string][]Rate, len(f.Rates))}
	for name, line := range f.Rates {
		out.Rates[name] = tail(line, n)
	}
	return out
}

func tail[T any](list []T, n int) []T { return append([]T{}, list[len(list)-n:]...) }

// Now is the speed of each root, and of all, at the last point.
func (f Figures) Now() (total Rate, roots map[string]Rate) {
	roots = make(map[string]Rate, len(f.Rates))
	if len(f.Times) == 0 {
		return total, roots
	}
	for name, line := range f.Rates {
		roots[name] = line[len(line)-1]
	}
	return f.Total[len(f.Total)-1], roots
}

// speeds makes Figures of the counters in a session's states.
type speeds struct {
	Figures
	at     time.Time                // of the last point
	counts map[uint64]*control.Root // then, by epoch: a root that is granted anew begins anew
}

// count adds a point. A state that comes soon after the last point, as those do that follow
// an event, adds none. roots are sorted by name.
func (s *speeds) count(now time.Time, roots []control.Root) {
	spent := now.Sub(s.at)
	if spent < Every/2 {
		return
	}
	point := Figures{Last: s.Last + 1, Times: []int64{now.UnixMilli()}, Rates: map[string][]Rate{}}
	var total Rate
	counts := make(map[uint64]*control.Root, len(roots))
	for i := range roots {
		r := &roots[i]
		counts[r.Epoch] = r
		// The first look at a root tells no speed: when it was granted is not known.
		var rate Rate
		if was := s.counts[r.Epoch]; was != nil {
			rate = rateOf(r, was, spent.Seconds())
		}
		total.Ops += rate.Ops
		total.Refused += rate.Refused
		total.Read += rate.Read
		total.Written += rate.Written
		if i < MaxRoots {
			point.Rates[r.Name] = []Rate{rate}
		}
	}
	point.Total = []Rate{total}
	s.at, s.counts = now, counts
	s.Add(point)
}

// rateOf is what a root has counted since another time, each second.
func rateOf(now, was *control.Root, seconds float64) Rate {
	// Rounded to hundredths, which nobody can see: it is sent as text.
	each := func(n int64) float64 { return math.Round(100*max(0, float64(n)/seconds)) / 100 }
	return Rate{
		Ops: each(now.Ops - was.Ops), Refused: each(now.Refused - was.Refused),
		Read: each(now.BytesRead - was.BytesRead), Written: each(now.Written - was.Written),
	}
}
