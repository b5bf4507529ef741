package broker

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rootsfs/rootsfs/guard/names"
)

// refusals puts on record what a session refuses before the gate. A server makes
// such a request out of a few bytes, and a record is many times that: one that sent
// them as fast as it could would fill the disk and keep the writer busy long after
// it is gone. So beyond a rate they are counted, and the count goes on record, for
// each kind, with the last one's own words. None goes without.
type refusals struct {
	note func(kind names.Kind, detail string) // puts one on record
	pace *rate.Limiter

	mu    sync.Mutex // guards the fields below
	held  map[names.Kind]*heldBack
	timer *time.Timer // not nil while something is held back
}

// heldBack are refusals of one kind that have no record yet.
type heldBack struct {
	n    int
	last string
}

const (
	// So many get a record of their own at once, and so many a second from
	// then on: a server at work makes a handful.
	refusalBurst = 1000
	refusalRate  = 100
	// summaryEvery is the longest time that a count stays off the record.
	summaryEvery = time.Second
)

func newRefusals(note func(kind names.Kind, detail string)) *refusals {
	return &refusals{note: note, pace: rate.NewLimiter(refusalRate, refusalBurst)}
}

// add puts one refusal on record, or counts it.
func (r *refusals) add(kind names.Kind, detail string) {
	if r.pace.Allow() {
		r.note(kind, detail)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = map[names.Kind]*heldBack{}
	}
	h := r.held[kind]
	if h == nil {
		h = &heldBack{}
		r.held[kind] = h
	}
	h.n++
	h.last = names.Brief(detail)
	if r.timer == nil {
		r.timer = time.AfterFunc(summaryEvery, r.flush)
	}
}

// flush puts what was counted on record.
func (r *refusals) flush() {
	r.mu.Lock()
	held := r.held
	r.held = nil
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.mu.Unlock()
	for kind, h := range held {
		r.note(kind, fmt.Sprintf("%d more within a second, the last: %s", h.n, h.last))
	}
}
