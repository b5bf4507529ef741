package flowcontrol

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Tally reports events of several kinds at a bounded rate. It counts events beyond the rate by
// kind, and reports the count of each kind a little later, with the last event of the kind. So no
// event is left out, and many events of one kind do not hide an event of another. A peer can cause
// an event with a few bytes, and the record of the event is many times longer: without a bound a
// fast peer would fill the disk.
type Tally[K comparable] struct {
	pace     *rate.Limiter
	interval time.Duration // how long omitted events wait for their report at most

	mu      sync.Mutex // guards the field below
	omitted map[K]omission
}

// omission stands for events of one kind that are not reported yet.
type omission struct {
	count  int
	report func(count int) // report function of the last event
}

// NewTally makes a Tally that reports up to burst events at once, and perSecond events a second
// from then on. It reports the counts of further events within interval.
func NewTally[K comparable](burst int, perSecond float64, interval time.Duration) *Tally[K] {
	return &Tally[K]{pace: rate.NewLimiter(rate.Limit(perSecond), burst), interval: interval}
}

// Add counts an event. Within the rate, Add calls report with 1 at once. Beyond the rate, the
// report function of the last event of a kind is called later, with the number of events of this
// kind that are not reported yet.
func (t *Tally[K]) Add(kind K, report func(count int)) {
	if t.pace.Allow() {
		report(1)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.omitted == nil {
		t.omitted = map[K]omission{}
		time.AfterFunc(t.interval, t.Flush)
	}
	t.omitted[kind] = omission{t.omitted[kind].count + 1, report}
}

// Flush reports the counts that are not reported yet.
func (t *Tally[K]) Flush() {
	t.mu.Lock()
	omitted := t.omitted
	t.omitted = nil
	t.mu.Unlock()
	for _, o := range omitted {
		o.report(o.count)
	}
}
