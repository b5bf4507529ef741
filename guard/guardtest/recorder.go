package guardtest

import (
	"slices"
	"sync"

	"github.com/rootsfs/rootsfs/guard"
)

// Recorder is a guard.Auditor that keeps the records. After a call of Fail it refuses them.
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

// Fail makes the recorder refuse records with err from now on. If err is nil, the recorder keeps
// records again.
func (r *Recorder) Fail(err error) {
	r.mu.Lock()
	r.err = err
	r.mu.Unlock()
}

// All returns the records so far. The caller must not change them, because All does not copy them:
// copying took a third of the time of the conformance suite.
func (r *Recorder) All() []guard.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.list)
}

// Of returns the records of one operation.
func (r *Recorder) Of(op guard.Op) (list []guard.Record) {
	for _, rec := range r.All() {
		if rec.Op == op {
			list = append(list, rec)
		}
	}
	return list
}
