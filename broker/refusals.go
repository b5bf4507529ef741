package broker

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard/names"
)

// refusals puts on record what a session refuses before the gate. A server makes such a
// request out of a few bytes, and a record is many times that: one that sent them as fast
// as it could would fill the disk and keep the writer busy long after it is gone. So those
// beyond a rate are counted, and the count of each kind goes on record, with the text of
// the last. None is left out.
type refusals struct {
	record func(kind names.Kind, detail string)
	pace   *rate.Limiter

	mu      sync.Mutex // guards the field below
	omitted map[names.Kind]omission
}

// omission counts refusals of one kind that have no record yet.
type omission struct {
	count int
	last  string
}

const (
	// refusalBurst refusals get a record of their own at once, and refusalRate a second
	// from then on: a server at work makes a handful.
	refusalBurst = 1000
	refusalRate  = 100
	// summaryEvery is the longest time that a count stays off the record.
	summaryEvery = time.Second
)

func newRefusals(record func(kind names.Kind, detail string)) *refusals {
	return &refusals{record: record, pace: rate.NewLimiter(refusalRate, refusalBurst)}
}

// add puts one refusal on record, or counts it.
func (r *refusals) add(kind names.Kind, detail string) {
	if r.pace.Allow() {
		r.record(kind, detail)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.omitted == nil {
		r.omitted = map[names.Kind]omission{}
		time.AfterFunc(summaryEvery, r.flush)
	}
	r.omitted[kind] = omission{r.omitted[kind].count + 1, names.Brief(detail)}
}

// flush puts the counts on record.
func (r *refusals) flush() {
	r.mu.Lock()
	omitted := r.omitted
	r.omitted = nil
	r.mu.Unlock()
	for kind, o := range omitted {
		r.record(kind, fmt.Sprintf("%d more within a second, the last: %s", o.count, o.last))
	}
}
