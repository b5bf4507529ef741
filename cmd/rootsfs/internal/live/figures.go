package control

import (
	"slices"
	"time"
)

const (
	// FiguresEvery is how far the points of Figures lie apart.
	FiguresEvery = time.Second
	// FiguresKept is how many points there are at most: the last five minutes.
	FiguresKept = 300
	// FiguresRoots is of how many roots speeds are kept one by one: the first by
	// name. The total is that of all.
	FiguresRoots = 200
)

// Rate is a speed, each figure a second.
type Rate struct {
	Ops     float64 `json:"ops"`
	Refused float64 `json:"refused"`
	Read    float64 `json:"read"`    // bytes
	Written float64 `json:"written"` // bytes
}

// Figures are a session's speeds over time, the oldest first. The session keeps
// them, so that whoever looks, and whenever, sees the same. The zero Figures are
// none; they are not for concurrent use.
type Figures struct {
	Last  uint64  `json:"last"`  // number of the last point; the session's first is 1
	Times []int64 `json:"times"` // milliseconds since 1970, rising
	Total []Rate  `json:"total"`
	// Rates has a list as long as Times for each of the roots there are at the last
	// point, by name; before a root was granted it holds zeros.
	Rates map[string][]Rate `json:"rates"`
}

// Add appends points that follow, and drops what is more than FiguresKept. Where
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

func lastPoints[T any](list []T) []T { return list[max(0, len(list)-FiguresKept):] }

// After returns a copy of the points that follow the one with a number; 0: of all.
func (f *Figures) After(number uint64) Figures {
	n := len(f.Times)
	if number > 0 && number <= f.Last {
		n = int(min(uint64(n), f.Last-number))
	}
	out := Figures{Last: f.Last, Times: tail(f.Times, n), Total: tail(f.Total, n), Rates: make(map[string][]Rate, len(f.Rates))}
	for name, line := range f.Rates {
		out.Rates[name] = tail(line, n)
	}
	return out
}

func tail[T any](list []T, n int) []T { return append([]T{}, list[len(list)-n:]...) }

// Now is the speed of each root, and of all, at the last point.
func (f *Figures) Now() (total Rate, roots map[string]Rate) {
	roots = make(map[string]Rate, len(f.Rates))
	if len(f.Times) == 0 {
		return total, roots
	}
	for name, line := range f.Rates {
		roots[name] = line[len(line)-1]
	}
	return f.Total[len(f.Total)-1], roots
}

// whole reports that the lists are as long as they are to be.
func (f *Figures) whole() bool {
	n := len(f.Times)
	ok := len(f.Total) == n && n <= FiguresKept && slices.IsSorted(f.Times)
	for _, line := range f.Rates {
		ok = ok && len(line) == n
	}
	return ok
}
