package guardtest

import (
	"slices"
	"sync"

	"github.com/rootsfs/rootsfs/guard"
)

// Recorder is a guard.Auditor that keeps the records, or refuses them (Fail).
type Recorder struct {
	mu   sync.Mutex // guards the fields below
	err  error
	list []guard.Record
}

// Record implements guard.Auditor.
func (r *Recorder) Record(rec guard.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	r.list = append(r.list, rec)
	return nil
}

// Fail makes the recorder refuse records with err from now on; nil ends it.
func (r *Recorder) Fail(err error) {
	r.mu.Lock()
	r.err = err
	r.mu.Unlock()
}

// All returns the records so far.
func (r *Recorder) All() []guard.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// Of returns the records of one operation.
func (r *Recorder) Of(op guard.Op) []guard.Record {
	return slices.DeleteFunc(r.All(), func(rec guard.Record) bool { return rec.Op != op })
}
