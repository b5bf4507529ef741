package secret

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
)

// ledger is an audit log with room for some records.
type ledger struct {
	mu      sync.Mutex
	room    int
	records []Request
	calls   sync.WaitGroup // calls of record that have not been made yet
}

func (l *ledger) reserve(_ context.Context, r Request) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.room == 0 {
		return 0, errors.New("the disk is full")
	}
	l.room--
	return 1, nil
}

func (l *ledger) record(r Request) error {
	defer l.calls.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case r.Room == 0 && r.Refused != nil: // the audit log counts the refusals for which it has no room
		return nil
	case r.Room == 0 && l.room == 0:
		return errors.New("the disk is full")
	case r.Room == 0:
		l.room--
	}
	l.records = append(l.records, r)
	return nil
}

// A request that cannot be recorded is not sent, also while others are under way. When there is
// room again, requests are sent again.
func TestUnrecordedRequestsAreNotSent(t *testing.T) {
	const room, all = 5, 20
	log := &ledger{room: room}
	events, open := make(chan bool, all+1), make(chan struct{}) // true: a request has arrived at the host; false: one was refused
	l := newLab(t, &Secret{}, func(w http.ResponseWriter, r *http.Request) {
		events <- true
		<-open
	})
	l.proxy.opt.Reserve, l.proxy.opt.Record = log.reserve, log.record
	log.calls.Add(all + 1)
	var wg sync.WaitGroup
	for range all {
		wg.Go(func() {
			if res, body := l.get("/x"); res.StatusCode != 200 {
				if res.StatusCode != 503 || body != "rootsfs: the disk is full\n" {
					t.Errorf("%s %q", res.Status, body)
				}
				events <- false
			}
		})
	}
	arrived := 0
	for range all {
		if <-events {
			arrived++
		}
	}
	close(open)
	wg.Wait()
	log.mu.Lock()
	log.room++
	log.mu.Unlock()
	if res, body := l.get("/x"); res.StatusCode != 200 {
		t.Errorf("with room again: %s %q", res.Status, body)
	}
	log.calls.Wait()
	sent := len(slices.DeleteFunc(log.records, func(r Request) bool { return r.Status != 200 }))
	if arrived != room || sent != room+1 {
		t.Errorf("%d requests have arrived at the host, %d are on record with the last one; there was room for %d", arrived, sent, room)
	}
}
