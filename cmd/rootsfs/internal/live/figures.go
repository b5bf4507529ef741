package live

import (
	"time"

	"github.com/rootsfs/rootsfs/cmd/rootsfs/internal/control"
)

// Rate is a speed, each figure a second.
type Rate struct {
	Ops     float64 `json:"ops"`
	Refused float64 `json:"refused"`
	Read    float64 `json:"read"`    // bytes
	Written float64 `json:"written"` // bytes
}

func (r *Rate) add(o Rate) {
	r.Ops += o.Ops
	r.Refused += o.Refused
	r.Read += o.Read
	r.Written += o.Written
}

// Points is how many points of time are kept, one each Every.
const Points = 300

// History is a session's speed over time, the oldest first. Rates has a list as
// long as Times for each of the roots there are now.
type History struct {
	Times []int64           `json:"times"` // milliseconds since 1970
	Total []Rate            `json:"total"`
	Rates map[string][]Rate `json:"rates"`
}

// figures makes speeds of a session's counters.
type figures struct {
	at    time.Time // of the counters below
	last  map[uint64]control.Root
	times []int64
	total []Rate
	roots map[string][]Rate
}

// add takes the counters of now.
func (f *figures) add(now time.Time, st control.Status) Session {
	out := Session{Status: st, Rates: map[string]Rate{}}
	if len(st.Roots) > MaxRoots {
		out.MoreRoots = len(st.Roots) - MaxRoots
		out.Roots = st.Roots[:MaxRoots]
	}
	next := make(map[uint64]control.Root, len(st.Roots))
	spent := now.Sub(f.at).Seconds()
	for i := range st.Roots {
		r := &st.Roots[i]
		next[r.Epoch] = *r
		rate := Rate{}
		// The first look at a root tells no speed: when it was granted is not known.
		if was, ok := f.last[r.Epoch]; ok && spent > 0 {
			rate = Rate{
				Ops: perSecond(r.Ops-was.Ops, spent), Refused: perSecond(r.Refused-was.Refused, spent),
				Read: perSecond(r.BytesRead-was.BytesRead, spent), Written: perSecond(r.Written-was.Written, spent),
			}
		}
		out.Rate.add(rate)
		if i < MaxRoots {
			out.Rates[r.Name] = rate
		}
	}
	f.at, f.last = now, next
	f.keep(now, &out)
	return out
}

func perSecond(n int64, seconds float64) float64 { return max(0, float64(n)/seconds) }

// keep appends a point to the rings.
func (f *figures) keep(now time.Time, s *Session) {
	roots := make(map[string][]Rate, len(s.Rates))
	for name, rate := range s.Rates {
		line := f.roots[name]
		if len(line) < len(f.times) { // it came later
			line = append(make([]Rate, len(f.times)-len(line)), line...)
		}
		roots[name] = lastPoints(append(line, rate))
	}
	f.roots = roots
	f.times = lastPoints(append(f.times, now.UnixMilli()))
	f.total = lastPoints(append(f.total, s.Rate))
}

func lastPoints[T any](list []T) []T { return list[max(0, len(list)-Points):] }

// history copies what is kept.
func (f *figures) history() History {
	h := History{
		Times: append([]int64{}, f.times...), Total: append([]Rate{}, f.total...), Rates: map[string][]Rate{},
	}
	for name, line := range f.roots {
		h.Rates[name] = append([]Rate{}, line...)
	}
	return h
}
